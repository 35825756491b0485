//go:build linux && amd64

package truthtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// agreed is what a call must be to count: every fact of these kinds that strace
// saw is in the layer and the reverse, by process, path, flags and result.
var agreed = []string{
	"open", "openat", "openat2", "creat", "execve", "execveat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir",
	"mkdir", "mkdirat", "link", "linkat", "symlink", "symlinkat", "chmod", "fchmod", "fchmodat", "truncate", "ftruncate",
	"mknod", "mknodat", "chown", "fchown", "lchown", "fchownat", "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr",
	"fremovexattr", "utimensat", "fallocate", "connect", "bind", "chdir", "fchdir", "fork", "vfork", "clone", "clone3",
}

// outside is what the comparison leaves out of the agreed set, and why.
var outside = []struct{ what, why string }{
	{"addresses of other families than unix, IPv4 and IPv6 (netlink, packet, AF_UNSPEC)", "the layer names their family but has no form for the address"},
	{"calls that a process was killed in", "strace cannot tell their result"},
	{"a name in memory that cannot be read (EFAULT)", "neither side has a name to compare"},
	{"threads", "the layer's coalescing counts per process; which thread it was is kept of the first occurrence only"},
	{"reads, stats, directory listings and other calls that change nothing", "the layer does not record them (coverage: reads_and_queries)"},
}

// workload is something real that is run twice: traced within a run, and alone in
// one. What the trace tells is compared with the layers of both.
type workload struct {
	name   string
	script string // of sh, in an empty directory
	// programs it needs beyond those of every Debian system.
	programs []string
	// sets compares the run alone with the trace as sets instead of as multisets;
	// the reason why the numbers differ from run to run.
	sets string
	// varies names what differs in content from run to run, beyond always.
	varies []replacement
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
	r := record(t, dir, w.env(t), strace, "-f", "-q", "-v", "-s", "65536", "-yy", "-X", "raw", "--seccomp-bpf", "--pidns-translation",
		"-o", out, "-e", "trace="+strings.Join(agreed, ","), "--", "/bin/sh", "-c", w.script)
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
	return []string{"SERVER=" + server.URL, "SRC=" + source(t), "NASTY=" + helper}
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
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) { w.check(t) })
	}
}

func (w *workload) check(t *testing.T) {
	need(t, append(w.programs, "strace")...)
	base := t.TempDir()
	dir := filepath.Join(base, "w")
	score := func(what string, want, got facts) {
		t.Helper()
		both, wanted, had, diff := compare(want, got)
		if wanted == 0 || had == 0 {
			t.Fatalf("%s: nothing to compare: %d facts of strace, %d of the layer", what, wanted, had)
		}
		t.Logf("%-9s %6d facts, recall %.3f %%, precision %.3f %%", what, wanted, 100*float64(both)/float64(wanted), 100*float64(both)/float64(had))
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
	if c := r.health.CgroupCorrelation; c != schema.Clean {
		t.Errorf("correlation is %s: %+v", c, r.health.Reasons)
	}
	// Without strace, which so is seen to have changed nothing.
	fresh(t, dir)
	alone := record(t, dir, w.env(t), "/bin/sh", "-c", w.script)
	alone.claims(t)
	score("alone", w.alike(trace), w.alike(alone.facts()))
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
