package schema

import "fmt"

// Count is a number with the words for one or for any other number of things: "1 process was",
// "2 processes were".
func Count[N int | int64 | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
