package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// noise is how many seconds more a package may take before it is named as slower.
const noise = 2

// compare names each package that took a third longer than in the run that wrote this file, and writes the file anew:
// "SECONDS PACKAGE" for each package that passed, where the others keep their time, and "SECONDS PACKAGE TEST" for
// the slowest tests.
func (r *results) compare(path string) (slower []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	seconds := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(f) == 2 {
			if seconds[f[1]], err = strconv.ParseFloat(f[0], 64); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	for _, p := range r.packages {
		if p.action != "pass" {
			continue
		}
		if before, ok := seconds[p.name]; ok && p.seconds > before*4/3 && p.seconds > before+noise {
			slower = append(slower,
				fmt.Sprintf("slower: %s took %.1fs, in the run before %.1fs", p.name, p.seconds, before))
		}
		seconds[p.name] = p.seconds
	}
	var out strings.Builder
	for _, name := range slices.SortedFunc(maps.Keys(seconds), func(a, b string) int {
		return cmp.Or(cmp.Compare(seconds[b], seconds[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(&out, "%.1f\t%s\n", seconds[name], name)
	}
	for _, t := range r.slowest() {
		fmt.Fprintf(&out, "%.1f\t%s\t%s\n", t.seconds, t.pkg, t.name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return slower, os.WriteFile(path, []byte(out.String()), 0o644)
}

// slowest are the tests that took longest, subtests and what they are part of alike.
func (r *results) slowest() []*test {
	ended := r.tests()
	slices.SortStableFunc(ended, func(a, b *test) int { return cmp.Compare(b.seconds, a.seconds) })
	return ended[:min(listed, len(ended))]
}
