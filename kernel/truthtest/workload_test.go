//go:build linux && amd64

package truthtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// agreed is what a call must be to count: every fact of these kinds that strace
// saw is in the layer and the reverse, by process, path, flags and result.
var agreed = []string{
	"open", "openat", "openat2", "creat", "execve", "execveat", "rename", "renameat", "renameat2", "unlink", "unlinkat",
	"rmdir",
	"mkdir", "mkdirat", "link", "linkat", "symlink", "symlinkat", "chmod", "fchmod", "fchmodat", "fchmodat2",
	"truncate", "ftruncate",
	"mknod", "mknodat", "chown", "fchown", "lchown", "fchownat", "setxattr", "lsetxattr", "fsetxattr", "removexattr",
	"lremovexattr",
	"fremovexattr", "utimensat", "fallocate", "connect", "bind", "chdir", "fchdir", "fork", "vfork", "clone", "clone3",
}

// outside is what the comparison leaves out of the agreed set, and why.
var outside = []struct{ what, why string }{
	{"addresses of other families than unix, IPv4 and IPv6 (netlink, packet, AF_UNSPEC)",
		"the layer names their family but has no form for the address"},
	{"calls that a process was killed in", "strace cannot tell their result"},
	{"a name in memory that cannot be read (EFAULT)", "neither side has a name to compare"},
	{"threads", "the layer's coalescing counts per process; which thread it was is kept of the first occurrence only"},
	{"reads, stats, directory listings and other calls that change nothing",
		"the layer does not record them (coverage: reads_and_queries)"},
}

// workload is something real that is run twice: traced within a run, and alone in
// one. What the trace tells is compared with the layers of both.
type workload struct {
	name   string
	script string // of sh, in an empty directory
	// programs it needs beyond those of every Debian system.
	programs []string
	// long: it runs with TRUTH=all alone, which is what make truth says, and only
	// the traced run is compared.
	long bool
	// sets compares the run alone with the trace as sets instead of as multisets;
	// the reason why the numbers differ from run to run.
	sets string
	// varies names what differs in content from run to run, beyond always.
	varies []replacement
	// open are the names of the calls that open claims.
	open []string
}

type replacement struct {
	pattern, by string // regexp
	why         string
}

// always holds for every pair of runs.
var always = []replacement{
	{`/proc/\d+/`, "/proc/PID/", "pids differ"},
	{`^(fork) .*$`, "$1", "a parent is told by its pid"},
}

func (w *workload) traced(t *testing.T, dir string) (facts, recording) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "trace")
	r := record(t, dir, w.env(t), strace, "-f", "-q", "-v", "-s", "65536", "-yy", "-X", "raw", "--seccomp-bpf",
		"--pidns-translation",
		"-o", out, "-e", "trace=?"+strings.Join(agreed, ",?"), "--", "/bin/sh", "-c", w.script)
	calls, ends, err := readTrace(out)
	if err != nil {
		t.Fatal(err)
	}
	want, err := traceFacts(calls, ends, dir)
	if err != nil {
		t.Fatal(err)
	}
	if p := os.Getenv("TRUTH_KEEP"); p != "" {
		data, _ := os.ReadFile(out)
		os.WriteFile(filepath.Join(p, w.name+".trace"), data, 0o600)
	}
	return want, r
}

func (w *workload) env(t *testing.T) []string {
	return []string{"SERVER=" + server.URL, "SRC=" + source(t), "NASTY=" + helper, "HOSTPATH=" + os.Getenv("PATH"),
		"HOSTHOME=" + os.Getenv("HOME")}
}

// alike makes the facts of one run comparable with those of another.
func (w *workload) alike(f facts) facts {
	out := facts{}
	var rules []replacement
	rules = append(append(rules, always...), w.varies...)
	res := make([]*regexp.Regexp, len(rules))
	for i, r := range rules {
		res[i] = regexp.MustCompile(r.pattern)
	}
	for k, n := range f {
		k.pid = 0
		for i, r := range rules {
			k.text = res[i].ReplaceAllString(k.text, r.by)
		}
		if k.text == "" { // a run may have it or not
			continue
		}
		out[k] += n
	}
	if w.sets != "" {
		for k := range out {
			out[k] = 1
		}
	}
	return out
}

// compare counts what both have and lists what one lacks.
func compare(want, got facts) (both, wanted, had uint64, diff []string) {
	for k, n := range want {
		wanted += n
		both += min(n, got[k])
		if got[k] < n {
			diff = append(diff, fmt.Sprintf("missing %d of %d: %v %s", n-got[k], n, k.who, k.text))
		}
	}
	for k, n := range got {
		had += n
		if want[k] < n {
			diff = append(diff, fmt.Sprintf("invented %d of %d: %v %s", n-want[k], n, k.who, k.text))
		}
	}
	sort.Strings(diff)
	return both, wanted, had, diff
}

var server *httptest.Server

func TestGroundTruth(t *testing.T) {
	layertest.Host(t)
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintln(w, "hello from", r.URL.Path)
	}))
	defer server.Close()
	for _, o := range outside {
		t.Logf("outside of the agreed set: %s: %s", o.what, o.why)
	}
	var table []row
	for _, w := range append(slices.Clone(workloads), longWorkloads...) {
		t.Run(w.name, func(t *testing.T) {
			if w.long && os.Getenv("TRUTH") != "all" {
				t.Skip("a long one: make truth runs it")
			}
			table = append(table, w.check(t))
		})
	}
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "workload\tfacts\trecall\tprecision\tkernel layer\tsurface lines\tthat differ in two runs")
	for _, r := range table {
		fmt.Fprintf(tw, "%s\t%d\t%.4f\t%.4f\t%s\t%d\t%d\n", r.name, r.facts, r.recall, r.precision, r.state, r.lines,
			r.differ)
	}
	tw.Flush()
	t.Logf("\n%s", b.String())
}

// row is what the table says of a workload.
type row struct {
	name              string
	facts             uint64
	recall, precision float64 // of the traced run
	state             string  // of its kernel layer
	lines, differ     int     // of the surface of a run alone, and against a second one
}

// surfaceLines are all the lines of a surface.
func surfaceLines(s schema.CapabilitySurface) map[string]bool {
	lines := map[string]bool{}
	for _, list := range [][]string{s.FilesystemPaths, s.NetworkEndpoints, s.ProcessExecs} {
		for _, l := range list {
			lines[l] = true
		}
	}
	return lines
}

// differing lists the lines that only one of two surfaces has.
func differing(a, b map[string]bool) (diff []string) {
	for l := range a {
		if !b[l] {
			diff = append(diff, "- "+l)
		}
	}
	for l := range b {
		if !a[l] {
			diff = append(diff, "+ "+l)
		}
	}
	sort.Strings(diff)
	return diff
}

func (w *workload) check(t *testing.T) (out row) {
	need(t, append(w.programs, "strace")...)
	base := t.TempDir()
	dir := filepath.Join(base, "w")
	score := func(what string, want, got facts) {
		t.Helper()
		both, wanted, had, diff := compare(want, got)
		if wanted == 0 || had == 0 {
			t.Fatalf("%s: nothing to compare: %d facts of strace, %d of the layer", what, wanted, had)
		}
		if what == "observed" {
			out = row{name: w.name, facts: wanted, recall: float64(both) / float64(wanted),
				precision: float64(both) / float64(had)}
		}
		t.Logf("%-9s %6d facts, recall %.3f %%, precision %.3f %%", what, wanted, 100*float64(both)/float64(wanted),
			100*float64(both)/float64(had))
		const most = 40
		for i, d := range diff {
			if i == most {
				t.Errorf("… and %d more", len(diff)-most)
				break
			}
			t.Errorf("%s: %s", what, d)
		}
	}
	// The same processes, as both saw them: nothing to make comparable.
	fresh(t, dir)
	trace, r := w.traced(t, dir)
	score("observed", trace, r.facts())
	r.claims(t)
	out.state = r.health.KernelState
	if c := r.health.CgroupCorrelation; c != schema.Clean {
		t.Errorf("correlation is %s: %+v", c, r.health.Reasons)
	}
	// Without strace, which so is seen to have changed nothing.
	fresh(t, dir)
	alone := record(t, dir, w.env(t), "/bin/sh", "-c", w.script)
	alone.claims(t)
	var open []string
	for _, o := range alone.health.Open {
		open = append(open, o.Name())
	}
	if d := cmp.Diff(w.open, open); d != "" {
		t.Errorf("open (-want +got):\n%s", d)
	}
	if !w.long { // what differs between two runs of those is no small table
		score("alone", w.alike(trace), w.alike(alone.facts()))
	}
	fresh(t, dir)
	again := record(t, dir, w.env(t), "/bin/sh", "-c", w.script)
	first := surfaceLines(alone.surface)
	diff := differing(first, surfaceLines(again.surface))
	out.lines, out.differ = len(first), len(diff)
	for _, d := range diff {
		t.Logf("surface: %s", d)
	}
	return out
}

// fresh makes dir an empty directory.
func fresh(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}
