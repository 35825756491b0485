package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/v1"
)

// event is a line of go test -json: see go doc test2json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// results are what the tests of a run did.
type results struct {
	packages []*pkg // in the order in which they began
	byName   map[string]*pkg
	out      io.Writer // gets a line for each package and each failed test, and what is no event
}

// pkg is what the tests of a package did.
type pkg struct {
	name    string
	action  string  // pass, fail or skip; empty if it has not ended
	seconds float64 // by the clock
	tests   []*test // in the order in which they began
	byName  map[string]*test
	output  strings.Builder // without its tests'
	// Whether the testing package came to its end. After a panic, a timeout or os.Exit in a test it did not, and
	// nobody knows what the tests would have said that had not begun.
	finished bool
	leaked   bool // leaktest found something
}

// test is what a test or subtest did.
type test struct {
	pkg, name string
	action    string  // pass, fail or skip; empty if it has not ended
	seconds   float64 // by the clock
	output    strings.Builder
	flaky     bool // it failed, and its failure is known to be chance
}

func newResults(out io.Writer) *results { return &results{byName: map[string]*pkg{}, out: out} }

// read takes in the output of go test -json. Lines that are no events are copied to r.out.
func (r *results) read(from io.Reader) error {
	in := bufio.NewScanner(from)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Fprintln(r.out, in.Text()) // not from go test, but from a build
			continue
		}
		r.add(e)
	}
	return in.Err()
}

func (r *results) add(e event) {
	if e.Package == "" { // build-output and build-fail, which have an ImportPath
		fmt.Fprint(r.out, e.Output)
		return
	}
	p := r.byName[e.Package]
	if p == nil {
		p = &pkg{name: e.Package, byName: map[string]*test{}}
		r.byName[e.Package], r.packages = p, append(r.packages, p)
	}
	if e.Test == "" {
		p.add(e)
		if p.action != "" && e.Action != "output" {
			fmt.Fprintf(r.out, "%-5s %s %.1fs\n", e.Action, e.Package, e.Elapsed)
		}
		return
	}
	t := p.byName[e.Test]
	if t == nil {
		t = &test{pkg: e.Package, name: e.Test}
		p.byName[e.Test], p.tests = t, append(p.tests, t)
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		t.action, t.seconds = e.Action, e.Elapsed
		switch e.Action {
		case "pass":
			t.output.Reset()
		case "fail": // said at once, as a run can be stopped before its end
			fmt.Fprintf(r.out, "fail  %s %s %.1fs\n", e.Package, e.Test, e.Elapsed)
		}
	}
}

// add takes in an event that belongs to no test.
func (p *pkg) add(e event) {
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
		// What testing.M.Run prints last, and leaktest after it.
		p.finished = p.finished || e.Output == "FAIL\n" || e.Output == "PASS\n"
		p.leaked = p.leaked || e.Output == "FAIL: the tests left behind:\n"
	case "pass", "fail", "skip":
		p.action, p.seconds = e.Action, e.Elapsed
	}
}

// tests are those that ended.
func (r *results) tests() (ended []*test) {
	for _, p := range r.packages {
		for _, t := range p.tests {
			if t.action != "" {
				ended = append(ended, t)
			}
		}
	}
	return ended
}

// count says how many tests and subtests passed, failed and were skipped. A flaky test has passed, and so has a
// test of which only flaky subtests failed. A test that never ended has failed.
func (r *results) count() (passed, failed, skipped int) {
	for _, p := range r.packages {
		for _, t := range p.tests {
			switch {
			case t.action == "pass" || t.flaky:
				passed++
			case t.action == "skip":
				skipped++
			default:
				failed++
			}
		}
	}
	return passed, failed, skipped
}

// reported matches what a test's Error, Fatal and Log print.
var reported = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: `)

// failures are the tests to be run again: each failed test of which no subtest failed, and each that has something of
// its own to report besides that a subtest failed. A subtest of the latter is run with it.
func (p *pkg) failures() (again []*test) {
	for _, t := range p.tests {
		if t.action != "fail" || p.within(t, again) {
			continue
		}
		if !p.failedBelow(t) || reported.MatchString(t.output.String()) {
			again = append(again, t)
		}
	}
	return again
}

// within reports whether t is a subtest of one of these.
func (p *pkg) within(t *test, of []*test) bool {
	for _, outer := range of {
		if strings.HasPrefix(t.name, outer.name+"/") {
			return true
		}
	}
	return false
}

func (p *pkg) failedBelow(t *test) bool {
	for _, below := range p.tests {
		if below.action == "fail" && strings.HasPrefix(below.name, t.name+"/") {
			return true
		}
	}
	return false
}

// passed reports whether the package passed, and this test in it. Without a name, the package is enough.
func (p *pkg) passed(name string) bool {
	return p.action == "pass" && (name == "" || p.byName[name] != nil && p.byName[name].action == "pass")
}

// excuse marks a flaky test with its failed subtests, and what it is part of where nothing else failed there.
func (p *pkg) excuse(t *test) {
	for _, below := range p.tests {
		if below.action == "fail" && (below == t || strings.HasPrefix(below.name, t.name+"/")) {
			below.flaky = true
		}
	}
	for name := t.name; ; {
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return
		}
		name = name[:i]
		outer := p.byName[name]
		if outer == nil || outer.action != "fail" { // a subtest's name can have a slash of its own
			continue
		}
		for _, below := range p.tests {
			if below.action == "fail" && !below.flaky && strings.HasPrefix(below.name, name+"/") {
				return
			}
		}
		outer.flaky = true
	}
}
