package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	// times is how often a failed test has to pass, alone, to be called flaky.
	times = 2
	// chance is how many failures of a run can be chance. If more tests failed, none is run again.
	chance = 20
)

// judge decides which failures are chance, by running the tests again.
type judge struct {
	command []string // prints what go test -json prints, given a package and a -test.run; empty to run nothing again
	keep    string   // the directory for flaky tests' output and the list of the other failures; empty: none
	known   map[string]entry
	out     io.Writer
}

// failure is a test that failed, and not by chance. Without a name, it is a package.
type failure struct{ pkg, name, why string }

func (f failure) String() string { return strings.TrimSpace("failed: "+f.pkg+" "+f.name) + f.why }

// all returns each failure that stays one, and a line for each flaky test, which it marks.
func (j judge) all(r *results) (failures []failure, flaky []string) {
	total := 0
	for _, p := range r.packages {
		total += len(p.failures())
	}
	for _, p := range r.packages {
		if p.action == "pass" || p.action == "skip" {
			continue
		}
		if len(j.command) == 0 || total > chance {
			failures = append(failures, failure{p.name, "", ", not run again"})
			continue
		}
		f, fl := j.pkg(p)
		failures, flaky = append(failures, f...), append(flaky, fl...)
	}
	return failures, flaky
}

// pkg judges a package that did not pass.
func (j judge) pkg(p *pkg) (failures []failure, flaky []string) {
	again := p.failures()
	switch {
	case !p.finished:
		return []failure{{p.name, "", " did not build, or ended before its tests did"}}, nil
	case len(again) > 0:
		// What was left behind is excused with the tests, as a test that fails does not clean up. The
		// same test, alone, has to leave nothing.
		for _, t := range again {
			if why := j.again(p.name, t.name); why != "" {
				failures = append(failures, failure{p.name, t.name, ", " + why})
				continue
			}
			p.excuse(t)
			flaky = append(flaky, j.flaky(p.name, t.name, t.output.String()+p.output.String()))
		}
		return failures, flaky
	case p.leaked:
		// Which test left it is not known, so all of them are run again.
		if why := j.again(p.name, ""); why != "" {
			return []failure{{p.name, "", " left something behind, " + why}}, nil
		}
		return nil, []string{j.flaky(p.name, "", p.output.String())}
	}
	return []failure{{p.name, "", ", although none of its tests did"}}, nil
}

// again runs a test alone until it failed once or passed often enough, and says how it failed. Without a name, it
// runs all of the package.
func (j judge) again(pkg, name string) (why string) {
	for i := range times {
		fmt.Fprintf(j.out, "again: %s %s\n", pkg, name)
		var got bytes.Buffer
		cmd := exec.Command(j.command[0], append(j.command[1:len(j.command):len(j.command)], pkg, pattern(name))...)
		cmd.Stdout, cmd.Stderr = &got, j.out
		err := cmd.Run()
		r := newResults(j.out)
		if readErr := r.read(&got); err == nil {
			err = readErr
		}
		p := r.byName[pkg]
		if p == nil {
			return fmt.Sprintf("and could not be run again: %v", err)
		}
		if err != nil || !p.passed(name) {
			r.list(j.out)
			return fmt.Sprintf("and did not pass alone (run %d of %d)", i+1, times)
		}
	}
	return ""
}

// pattern is the -test.run that selects a test or subtest alone.
func pattern(name string) string {
	if name == "" {
		return "."
	}
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// flaky keeps the output of a flaky test's failure and returns the line that names the test.
func (j judge) flaky(pkg, name, output string) string {
	line := strings.TrimSpace(fmt.Sprintf("flaky: %s %s", pkg, name)) + ": failed, then passed twice alone"
	if e, ok := j.known[name]; ok {
		line += "; .ci/flaky has it since " + e.date
		if e.cause == "" {
			line += " without a cause: mend it next"
		}
	} else {
		line += "; add it to .ci/flaky"
	}
	if j.keep == "" {
		return line
	}
	name = regexp.MustCompile(`[^\w.-]+`).ReplaceAllString("flaky "+pkg+" "+name, "_") + ".txt"
	if err := j.write(name, output); err != nil {
		return line + "; its output is lost: " + err.Error()
	}
	return line + "; its output is in " + filepath.Join(j.keep, name)
}

// list writes the failures to a file, for those who run them again elsewhere: a package and a -test.run a line.
func (j judge) list(failures []failure) error {
	var lines strings.Builder
	for _, f := range failures {
		fmt.Fprintf(&lines, "%s\t%s\n", f.pkg, pattern(f.name))
	}
	return j.write("failed", lines.String())
}

func (j judge) write(name, text string) error {
	if err := os.MkdirAll(j.keep, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(j.keep, name), []byte(text), 0o644)
}
