// Command summary reads the output of go test -json. It prints the slowest tests, the
// reasons of skips, the output of failures, and last how many tests passed, failed and were
// skipped. It exits with 1 if a test failed.
package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/go-json-experiment/json/v1"
)

// slowest is how many tests are listed with their time, subtests and what they are part of
// alike.
const slowest = 40

type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

func main() {
	counts := map[string]int{}
	output := map[string]*strings.Builder{}
	var failed, skipped []string
	var ended []event
	broken := false

	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Println(in.Text()) // not from go test, but from a build
			continue
		}
		key := e.Package + "\t" + e.Test
		switch e.Action {
		case "output", "build-output":
			if e.Action == "build-output" {
				fmt.Print(e.Output)
			}
			if output[key] == nil {
				output[key] = &strings.Builder{}
			}
			output[key].WriteString(e.Output)
		case "pass", "fail", "skip":
			if e.Test == "" {
				fmt.Printf("%-5s %s %.1fs\n", e.Action, e.Package, e.Elapsed)
				broken = broken || e.Action == "fail"
				if e.Action == "fail" {
					failed = append(failed, key)
				}
				continue
			}
			counts[e.Action]++
			ended = append(ended, e)
			if e.Action == "fail" {
				failed = append(failed, key)
			}
			if e.Action == "skip" {
				skipped = append(skipped, key)
			}
			if e.Action == "pass" {
				delete(output, key)
			}
		}
	}
	slices.SortFunc(ended, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for _, e := range ended[:min(slowest, len(ended))] {
		fmt.Printf("slow: %.1fs %s %s\n", e.Elapsed, e.Package, e.Test)
	}
	sort.Strings(skipped)
	for _, key := range skipped {
		fmt.Printf("skipped: %s\n%s", strings.ReplaceAll(key, "\t", " "), output[key])
	}
	for _, key := range failed {
		fmt.Printf("failed: %s\n%s", strings.ReplaceAll(key, "\t", " "), output[key])
	}
	if err := in.Err(); err != nil {
		fmt.Println("summary: read go test's output:", err)
		broken = true
	}
	if broken && counts["fail"] == 0 {
		counts["fail"] = 1 // a package that did not build or whose TestMain failed
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", counts["pass"], counts["fail"], counts["skip"])
	if broken || counts["fail"] > 0 {
		os.Exit(1)
	}
}
