package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// entry is a line of .ci/flaky: the test's name, the day on which it was seen and the cause.
type entry struct {
	date  string // as 2006-01-02
	cause string // empty: not known yet
}

// readKnown reads a list of flaky tests. Its lines are "DATE TEST CAUSE"; the cause may be missing. Lines with a # in
// front are comments. Without a path, there are none.
func readKnown(path string) (map[string]entry, error) {
	known := map[string]entry{}
	if path == "" {
		return known, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		if _, err := time.Parse(time.DateOnly, f[0]); err != nil || len(f) < 2 {
			return nil, fmt.Errorf("%s:%d: not DATE TEST CAUSE: %q", path, i+1, line)
		}
		known[f[1]] = entry{date: f[0], cause: strings.Join(f[2:], " ")}
	}
	return known, nil
}
