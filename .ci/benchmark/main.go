// Command benchmark measures commands under assay-run and bare, in turns. It prints medians,
// ratios and the bounds that the project promises, and exits with 1 if a bound is missed.
// Run it on an otherwise idle machine: make bench.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

func main() {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		roles[os.Args[1]](os.Args[2:])
		return
	}
	os.Exit(supervise(os.Args[1:]))
}

// measure DIR FILES [FLAG...] measures, with two empty directories to work in:
// one on a disk and one in memory.
func measure(args []string) {
	dir, files := args[0], args[1]
	only := flag.String("only", "", "measure the cases whose name matches this `regexp`")
	quick := flag.Bool("quick", false, "run one round of each case after a warm-up, to see that it works")
	baseline := flag.String("baseline", "", "compare calls in and beside a run with those of another build, `binary`")
	assayRun := flag.String("assay-run", "bin/assay-run", "the `binary` to measure")
	check(flag.CommandLine.Parse(args[2:]))
	match := regexp.MustCompile(*only)

	bin, err := filepath.Abs(*assayRun)
	check(err)
	manyFiles(files, opens)
	b := &bench{dir: dir, bin: bin, baseline: *baseline, files: files, quick: *quick,
		repository: sync.OnceValue(repository)}
	check(os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state")))
	check(os.Setenv("TMPDIR", dir))

	table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "case\tbare\tassay-run\tover\tratio\tCPU\tbound\t")
	for _, c := range cases(b) {
		if !match.MatchString(c.name) {
			continue
		}
		r := b.measure(c)
		fmt.Fprintf(table, "%s\t%v\t%v\t%v\t%.3f\t%.3f\t%s\t%s\n", c.name, r.bare, r.ours, r.ours-r.bare, r.ratio,
			r.cpu, c.bound(), b.verdict(r.ok(c)))
		if r.missing.runs > 0 {
			fmt.Fprintf(table, "  not complete in %d runs, %d events dropped\n", r.missing.runs, r.missing.events)
		}
		for name, other := range r.others {
			fmt.Fprintf(table, "  %s\t\t\t\t%.3f\t%.3f\t\t\n", name, other.wall, other.cpu)
		}
		check(table.Flush())
	}
	for _, s := range singles(b) {
		if match.MatchString(s.name) {
			v := s.measure()
			if s.bound == noBound {
				fmt.Printf("%s: %.1f %s\n", s.name, v, s.unit)
				continue
			}
			fmt.Printf("%s: %.2f %s, bound %g: %s\n", s.name, v, s.unit, s.bound, b.verdict(v <= s.bound))
		}
	}
	if b.missed > 0 && !b.quick {
		fmt.Printf("%d bounds missed\n", b.missed)
		os.Exit(1)
	}
}

func (b *bench) verdict(ok bool) string {
	if ok {
		return "ok"
	}
	b.missed++
	return "MISSED"
}

// benchCase is one paired measurement. At most one of maxTotal and maxRatio is set. If
// neither is, the case has no bound.
type benchCase struct {
	name     string
	rounds   int
	bare     func() *exec.Cmd
	ours     func() *exec.Cmd
	maxTotal time.Duration // of the whole run
	maxRatio float64
	whole    bool // the kernel layer has to be complete: a run that drops events costs less
	// others are other tools on the same command, shown for comparison.
	others map[string]func() *exec.Cmd
	// below names the one of others that has to be slower than assay-run. If set, the others
	// run in each round, instead of once at the end.
	below string
}

func (c benchCase) bound() string {
	switch {
	case c.maxTotal > 0:
		return fmt.Sprintf("%v", c.maxTotal)
	case c.maxRatio > 0:
		return fmt.Sprintf("x%.2f", c.maxRatio)
	}
	return "-"
}

type figures struct {
	bare, ours time.Duration // medians
	ratio, cpu float64       // medians of the rounds' ratios
	others     map[string]ratios
	missing    missing // if the layer has to be complete
}

func (f figures) ok(c benchCase) bool {
	if f.missing.runs > 0 {
		return false
	}
	if c.below != "" && f.ratio >= f.others[c.below].wall {
		return false
	}
	switch {
	case c.maxTotal > 0:
		return f.ours <= c.maxTotal
	case c.maxRatio > 0:
		return f.ratio <= c.maxRatio
	}
	return true
}

type bench struct {
	dir, bin string
	baseline string // another build of assay-run; empty for none
	files    string // many empty files, in memory
	quick    bool
	missed   int

	repository func() string // to clone
}

// rounds is n, or 1 with -quick.
func (b *bench) rounds(n int) int {
	if b.quick {
		return 1
	}
	return n
}

// measure runs the two commands in turns. The first one changes from round to round.
func (b *bench) measure(c benchCase) figures {
	rounds := b.rounds(c.rounds)
	var bare, ours []time.Duration
	var pairs []ratios
	others := map[string][]ratios{}
	var lacks missing
	run := func() cost {
		if !c.whole {
			return b.cost(c.ours())
		}
		took, m := b.costOfWhole(c.ours())
		lacks.runs += m.runs
		lacks.events += m.events
		return took
	}
	for i := range rounds + 1 {
		var tb, to cost
		if i%2 == 0 {
			tb, to = b.cost(c.bare()), run()
		} else {
			to, tb = run(), b.cost(c.bare())
		}
		if i == 0 {
			continue // warms the caches
		}
		bare, ours = append(bare, tb.wall), append(ours, to.wall)
		pairs = append(pairs, to.over(tb))
		if c.below == "" && i < rounds {
			continue
		}
		for name, other := range c.others {
			others[name] = append(others[name], b.cost(other()).over(tb))
		}
	}
	m := medians(pairs)
	f := figures{bare: median(bare), ours: median(ours), ratio: m.wall, cpu: m.cpu, others: map[string]ratios{},
		missing: lacks}
	for name, pairs := range others {
		f.others[name] = medians(pairs)
	}
	return f
}

// clean removes the bundles of earlier rounds.
func (b *bench) clean() {
	for _, f := range glob(filepath.Join(b.dir, "*.tar.*")) {
		check(os.Remove(f))
	}
}

// run is the command under assay-run with extra flags.
func (b *bench) run(flags []string, args ...string) func() *exec.Cmd {
	all := append(append([]string{"-q"}, flags...), "--")
	return func() *exec.Cmd { return exec.Command(b.bin, append(all, args...)...) }
}

func bare(args ...string) func() *exec.Cmd {
	return func() *exec.Cmd { return exec.Command(args[0], args[1:]...) }
}

func median[T float64 | time.Duration](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

func glob(pattern string) []string {
	files, err := filepath.Glob(pattern)
	check(err)
	return files
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmark:", err)
		os.Exit(1)
	}
}
