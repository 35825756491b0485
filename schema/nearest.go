package schema

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns the one of the names that takes the fewest insertions, deletions and replacements of bytes to become
// word, and how many it takes. Of several, it is the first in the alphabet. There must be a name.
func Nearest(word string, names []string) (nearest string, distance int) {
	nearest = slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(editDistance(word, a)-editDistance(word, b), strings.Compare(a, b))
	})
	return nearest, editDistance(word, nearest)
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, row[j+1]+1, replaced)
		}
	}
	return row[len(b)]
}
