// Command summary reads the output of go test -json. It prints the slowest tests, the
// reasons of skips and the output of failures. Then it runs each failed test again, alone, twice:
//
//	go test -json ./... | summary [-times FILE] [-known FILE] [-keep DIR] COMMAND [ARG...]
//
// COMMAND gets a package and the value of -test.run as two more arguments, and prints what go test -json prints
// of that. A test that passes twice is flaky: it is named, the output of its first failure is kept in DIR, and
// the run goes on. Anything else fails the run. The times of packages and of the slowest tests are kept in the
// file of -times, and a package that took a third longer than in the run before is named. The last line says how
// many tests passed, failed and were skipped, where a flaky test has passed. It exits with 1 if a test failed.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

// listed is how many tests are listed with their time.
const listed = 40

func main() { os.Exit(summary(os.Args[1:], os.Stdin, os.Stdout)) }

func summary(args []string, in io.Reader, out io.Writer) int {
	flags := flag.NewFlagSet("summary", flag.ContinueOnError)
	known := flags.String("known", "", "read the `file` of tests that are known to be flaky")
	keep := flags.String("keep", "", "keep the flaky tests' output and a list of the failed ones in this `directory`")
	times := flags.String("times", "", "compare with the times of the run before in this `file`, and write it anew")
	if flags.Parse(args) != nil {
		return 2
	}
	entries, err := readKnown(*known)
	if err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
		return 2
	}
	r := newResults(out)
	broken := false
	if err := r.read(in); err != nil {
		fmt.Fprintln(out, "summary: read go test's output:", err)
		broken = true
	}
	r.list(out)
	if *times != "" {
		slower, err := r.compare(*times)
		for _, line := range slower {
			fmt.Fprintln(out, line)
		}
		if err != nil { // which says nothing about the tests
			fmt.Fprintln(out, "summary: compare times:", err)
		}
	}

	again := judge{command: flags.Args(), keep: *keep, known: entries, out: out}
	failures, flaky := again.all(r)
	for _, f := range failures {
		fmt.Fprintln(out, f)
	}
	if *keep != "" {
		if err := again.list(failures); err != nil {
			fmt.Fprintln(out, "summary: keep the list of failures:", err)
			broken = true
		}
	}
	for _, line := range flaky {
		fmt.Fprintln(out, line)
	}
	if len(flaky) > 0 {
		fmt.Fprintf(out, "%d flaky, which are among the passed\n", len(flaky))
	}
	passed, failed, skipped := r.count()
	if passed == 0 {
		fmt.Fprintln(out, "summary: no test passed")
		broken = true
	}
	if broken || len(failures) > 0 {
		failed = max(failed, 1) // a package that did not build or whose TestMain failed
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 {
		return 1
	}
	return 0
}

// list prints the slowest tests, the skipped ones and the failed ones.
func (r *results) list(out io.Writer) {
	for _, t := range r.slowest() {
		fmt.Fprintf(out, "slow: %.1fs %s %s\n", t.seconds, t.pkg, t.name)
	}
	ended := r.tests()
	slices.SortFunc(ended, func(a, b *test) int {
		return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name))
	})
	for _, t := range ended {
		if t.action == "skip" {
			fmt.Fprintf(out, "skipped: %s %s\n%s", t.pkg, t.name, t.output.String())
		}
	}
	for _, p := range r.packages {
		for _, t := range p.tests {
			if t.action == "fail" || t.action == "" { // which was running when its package ended
				fmt.Fprintf(out, "failed: %s %s\n%s", t.pkg, t.name, t.output.String())
			}
		}
		if p.action == "fail" {
			fmt.Fprintf(out, "failed: %s\n%s", p.name, p.output.String())
		}
	}
}
