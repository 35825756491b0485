//go:build linux && amd64

package truthtest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// attempt is a call with a path, as one side tells it. The first has no base where
// strace does not tell what the name is relative to.
type attempt struct {
	kind, name string
	end        bool // name is the end of the path
}

func (a attempt) String() string { return a.kind + " " + a.name }

// is reports whether the layer's attempt is what strace saw.
func (a attempt) is(layer attempt) bool {
	return a.kind == layer.kind &&
		(a.name == layer.name || a.end && (a.name == "" || strings.HasSuffix(layer.name, "/"+a.name)))
}

// named are the calls that are compared, by name: their kind, and which arguments are
// the directory, or -1, and the name.
var named = map[string]struct {
	kind    string
	dir, at int
}{
	"open": {"openat", -1, 0}, "openat": {"openat", 0, 1}, "openat2": {"openat", 0, 1}, "creat": {"openat", -1, 0},
	"rename": {"rename", -1, 0}, "renameat": {"rename", 0, 1}, "renameat2": {"rename", 0, 1},
	"unlink": {"unlink", -1, 0}, "unlinkat": {"unlink", 0, 1}, "rmdir": {"rmdir", -1, 0},
	"mkdir": {"mkdir", -1, 0}, "mkdirat": {"mkdir", 0, 1}, "link": {"link", -1, 0}, "linkat": {"link", 0, 1},
	"symlink": {"symlink", -1, 1}, "symlinkat": {"symlink", 1, 2}, "truncate": {"truncate", -1, 0},
	"chmod": {"chmod", -1, 0}, "fchmodat": {"chmod", 0, 1}, "fchmodat2": {"chmod", 0, 1},
	"chown": {"chown", -1, 0}, "lchown": {"chown", -1, 0},
	"fchownat": {"chown", 0, 1},
	"mknod":    {"mknod", -1, 0}, "mknodat": {"mknod", 0, 1}, "chdir": {"chdir", -1, 0},
}

// attempts are a trace's, by thread, in their order. A signal can interrupt a call that
// still waits for the observer. The kernel then makes the call again, and strace sees both.
func attempts(calls []*call) map[int][]attempt {
	slices.SortStableFunc(calls, func(a, b *call) int { return a.line - b.line })
	out := map[int][]attempt{}
	for _, c := range calls {
		if strings.HasPrefix(c.ret, "? ERESTART") {
			continue
		}
		if c.name == "execve" {
			name, ok := str(c.args[0])
			switch {
			case !ok:
			case c.errno() == "" || c.errno() == "?":
				out[c.tid] = append(out[c.tid], attempt{"exec", name, false})
			default:
				out[c.tid] = append(out[c.tid], absolute("exec_failed", "", name))
			}
			continue
		}
		n, ok := named[c.name]
		if !ok || n.at >= len(c.args) {
			continue
		}
		name, ok := str(c.args[n.at])
		if !ok {
			continue
		}
		kind, base := n.kind, ""
		if n.dir >= 0 {
			_, base, _ = descriptor(c.args[n.dir])
		}
		if c.name == "unlinkat" && number(c.args[2])&0x200 != 0 {
			kind = "rmdir"
		}
		out[c.tid] = append(out[c.tid], absolute(kind, base, name))
	}
	return out
}

// absolute is a name in a directory as the tier documents it: without links followed,
// and with a ".." that follows a name kept.
func absolute(kind, base, name string) attempt {
	a := attempt{kind: kind, end: !strings.HasPrefix(name, "/") && base == ""}
	if strings.HasPrefix(name, "/") {
		base = ""
	}
	var parts []string
	if base = strings.Trim(base, "/"); base != "" {
		parts = strings.Split(base, "/")
	}
	fixed := false
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." && !fixed:
			parts = parts[:max(0, len(parts)-1)]
			continue
		}
		fixed = true
		parts = append(parts, part)
	}
	a.name = strings.Join(parts, "/")
	if !a.end {
		a.name = "/" + a.name
	}
	return a
}

// layerAttempts are the same of a layer.
func layerAttempts(events []schema.KernelEvent) map[int][]attempt {
	kinds := map[string]bool{"exec_failed": true}
	for _, n := range named {
		kinds[n.kind] = true
	}
	out := map[int][]attempt{}
	for i := range events {
		e := &events[i]
		tid := int(e.TID)
		switch kind := e.Kind.String(); {
		case kind == "exec":
			name := e.Value
			if e.Target != "" {
				name = e.Target
			}
			out[tid] = append(out[tid], attempt{"exec", name, false})
		case kinds[kind] && e.UserMemory: // else it was by a descriptor
			for range e.Times() {
				out[tid] = append(out[tid], attempt{kind, e.Value, false})
			}
		}
	}
	return out
}

// TestNotifyAgainstStrace compares the attempts that the notify tier recorded with
// what strace saw of the same processes: all of them, by path, in the order of each
// thread.
func TestNotifyAgainstStrace(t *testing.T) {
	layertest.Host(t)
	need(t, "strace")
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello from", r.URL.Path)
	}))
	defer server.Close()
	for _, w := range append(slices.Clone(workloads), longWorkloads...) {
		if os.Getenv("TRUTH") != "all" &&
			!slices.Contains([]string{"shell pipelines", "files", "odd names", "git", "make"}, w.name) {
			continue // make truth runs it
		}
		t.Run(w.name, func(t *testing.T) {
			need(t, w.programs...)
			dir, trace := t.TempDir(), filepath.Join(t.TempDir(), "trace")
			r := recordNotified(t, dir, w.env(t), strace, "-f", "-q", "-v", "-s", "65536", "-yy", "-X", "raw",
				"-o", trace, "-e", "trace=?"+strings.Join(agreed, ",?"), "--", "/bin/sh", "-c", w.script)
			calls, _, err := readTrace(trace)
			if err != nil {
				t.Fatal(err)
			}
			want, got := attempts(calls), layerAttempts(r.events)
			var n, same, had int
			for tid, list := range want {
				layer := got[tid]
				if i := slices.IndexFunc(layer, func(a attempt) bool { return list[0].is(a) }); i > 0 {
					layer = layer[i:] // strace's own, before it executed the command
				}
				n, had = n+len(list), had+len(layer)
				for i := range min(len(list), len(layer)) {
					if !list[i].is(layer[i]) {
						t.Errorf("thread %d, attempt %d: strace saw %v, the layer has %v", tid, i, list[i], layer[i])
						break
					}
					same++
				}
				if len(list) != len(layer) {
					t.Errorf("thread %d: strace saw %d attempts, the layer has %d: %v\n%v", tid, len(list), len(layer),
						list[min(len(layer), len(list)):], layer[min(len(layer), len(list)):])
				}
			}
			t.Logf("%d attempts by %d threads, recall %.4f, precision %.4f", n, len(want), float64(same)/float64(n),
				float64(same)/float64(had))
			if n < 20 {
				t.Errorf("only %d attempts were compared", n)
			}
		})
	}
}

// TestNotifiedCalls makes every call that the tier is notified of, also as a 32-bit
// program does.
func TestNotifiedCalls(t *testing.T) {
	need(t)
	for name, want := range map[string][]string{
		"every-call": {
			"openat W/by-open", "openat W/by-openat", "openat W/by-openat2", "openat W/file", "openat W",
			"link W/file -> W/linked", "link W/file -> W/linkedat", "symlink W/soft -> file",
			"symlink W/softat -> file",
			"rename W/linked -> W/a", "rename W/a -> W/b", "rename W/b -> W/c", "unlink W/c", "unlink W/linkedat",
			"mkdir W/d", "mkdir W/e", "rmdir W/d", "rmdir W/e", "mknod W/pipe", "mknod W/pipeat", "truncate W/file",
			"chmod W/file ×2",
			"chown W/file", "chown W/soft", "chown W/softat",
			"connect 127.0.0.1:40100", "connect unix:W/none", "bind 127.0.0.1:0", "sendto 127.0.0.1:40101",
			"sendto 127.0.0.1:40102",
			"sendto 127.0.0.1:40103", "sendto 127.0.0.1:40104", "connect 127.0.0.1:40105",
			"openat /bin/true", "exec_failed W/none", "exec /usr/bin/true", "mount W/nowhere -> none", "ptrace ",
		},
		"compat": {"openat W/thirty-two", "unlink W/thirty-two"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := recordNotified(t, dir, nil, helper, name)
			if d := cmp.Diff(want, r.story(dir, dull...)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			for i := range r.events {
				e := &r.events[i]
				switch e.Kind {
				case schema.KindFork, schema.KindExec, schema.KindExit:
				default:
					if text := string(schema.AppendJSON(nil, e)); !strings.Contains(text, `"status":"attempted"`) ||
						e.UserMemory && !strings.Contains(text, `"arguments":"claimed"`) {
						t.Errorf("it is not told to be an attempt: %s", text)
					}
				}
			}
		})
	}
}

// TestNotifyPidReuse uses one pid again and again.
func TestNotifyPidReuse(t *testing.T) {
	need(t)
	dir := t.TempDir()
	r := recordNotified(t, dir, nil, helper, "pid-reuse")
	r.lives(t, dir)
}

// TestNotifyExecStorm executes programs in one process, and in many.
func TestNotifyExecStorm(t *testing.T) {
	need(t)
	const chain, spawned = 300, 400
	r := recordNotified(t, t.TempDir(), []string{"NASTY=" + helper}, "/bin/sh", "-c", fmt.Sprintf(`
"$NASTY" exec-chain %d
seq %d | xargs -P 4 -n 1 /bin/true`, chain, spawned))
	n := map[string]int{}
	for i := range r.events {
		if e := &r.events[i]; e.Kind == schema.KindExec {
			n[e.Value]++
		}
	}
	if n[helper] != chain+1 || n["/usr/bin/true"] != spawned {
		t.Errorf("%v executions, want %d in the chain and %d of true", n, chain+1, spawned)
	}
	if k := r.health.Kernel; k.Forks != k.Exits {
		t.Errorf("%d forks, %d exits", k.Forks, k.Exits)
	}
}

// recordNotified is record with the notify tier.
func recordNotified(t *testing.T, dir string, env []string, command ...string) recording {
	t.Helper()
	c, bundle := prepare(t, dir, env, command...)
	c.Args[slices.Index(c.Args, "require")] = "notify"
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		t.Fatalf("%q: %v\n%s", command, err, out.Bytes())
	}
	r := readBundle(t, bundle)
	r.out = out.String()
	return r
}
