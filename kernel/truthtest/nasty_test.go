//go:build linux && amd64

package truthtest

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/schema"
)

// say is an event in one line, W standing for dir: kind, value, second name,
// error, marks, what was cut. Strings are quoted where they need it.
func say(e *schema.KernelEvent, dir string) string {
	home := func(s string) string {
		path, socket := strings.CutPrefix(s, "unix:")
		if rest, ok := strings.CutPrefix(path, dir); ok && socket {
			return "unix:W" + rest
		} else if ok {
			return "W" + rest
		}
		return s
	}
	b := e.Kind.String() + " " + home(e.Value)
	if e.Target != "" {
		b += " -> " + home(e.Target)
	}
	if e.Failed() {
		b += " " + e.Errno()
	}
	for i, name := range []string{"deleted", "memfd", "relative", "unreachable", "unreadable", "unresolved"} {
		if e.Marks&(1<<i) != 0 {
			b += " (" + name + ")"
		}
	}
	for i, name := range []string{"value", "target", "exe", "cwd", "argv", "env_keys"} {
		if e.Truncated&(1<<i) != 0 {
			b += " (cut " + name + ")"
		}
	}
	return b
}

// story is what a run did from its second exec on (the first is the runner's of
// the command), line by line in the order of first occurrence, each with how
// often it happened if that is not once. What every program does to start, and
// the kinds that the case is not about, are left out.
func (r *recording) story(dir string, without ...schema.KernelKind) []string {
	var lines []string
	times := map[string]uint64{}
	began := false
events:
	for i := range r.events {
		e := &r.events[i]
		if !began {
			began = e.Kind == schema.KindExec
			continue
		}
		if e.Class == schema.ClassLoader || e.Class == schema.ClassLocale {
			continue
		}
		for _, k := range without {
			if e.Kind == k {
				continue events
			}
		}
		s := say(e, dir)
		if times[s] == 0 {
			lines = append(lines, s)
		}
		times[s] += e.Times()
	}
	for i, s := range lines {
		if n := times[s]; n != 1 {
			lines[i] = fmt.Sprintf("%s ×%d", s, n)
		}
	}
	return lines
}

// dull are the kinds that stories leave out unless they are about them.
var dull = []schema.KernelKind{schema.KindFork, schema.KindThread, schema.KindExit, schema.KindWrite,
	schema.KindMmapShared, schema.KindFlow}

// TestNasty runs one program for each case. Its whole story must be the expected
// one: nothing is missing and nothing is there that did not happen.
func TestNasty(t *testing.T) {
	layertest.Host(t)
	for _, c := range []struct {
		name string
		what string
		want []string
	}{
		{"deleted-cwd", "names in a directory that is gone", []string{
			"mkdir W/gone", "chdir W/gone", "rmdir W/gone",
			"openat W/gone/file ENOENT (unreachable)", "openat W/gone (deleted)",
			"mkdir W/gone/dir ENOENT (unreachable)",
			"unlink W/over ENOENT",
		}},
		{"chroot", ".. ends at the process's own root, absolute and relative", []string{
			"openat W", "mkdir W/jail", "mkdir W/jail/in", "chroot W/jail", "chdir W/jail/in", "openat W/jail/made",
			"openat W/jail/absent ENOENT", "rename W/jail/made -> W/jail/moved",
			"openat W/jail/climbing ENOENT", "unlink W/jail/climbed ENOENT", "openat W/outside", "unlink W/outside",
		}},
		{"thread-exec", "exec from another thread than the leader", []string{"exec /usr/bin/true -> /bin/true"}},
		{"memfd-exec", "a program in anonymous memory", []string{
			"memfd_create secret", "openat /usr/bin/true", "exec /memfd:secret -> /dev/fd/3 (memfd) (unreachable)",
		}},
		{"deleted-exec", "a program without a name", []string{
			"openat W/prog ×2", "openat /usr/bin/true", "unlink W/prog", "exec W/prog -> /dev/fd/4 (deleted)",
		}},
		{"compat", "32-bit calls of a 64-bit program", []string{"openat W/thirty-two", "unlink W/thirty-two"}},
		{"shared", "a process that shares directory and descriptors with its parent", []string{
			"mkdir W/shared", "chdir W/shared", "openat W/shared/by-child", "mkdir W/shared/by-parent",
		}},
		{"renamed", "the same file by other names", []string{
			"mkdir W/a", "mkdir W/other", "openat W/a/f ×4", "rename W/a -> W/b", "openat W/b/f ×3",
			"rename W/b -> W/other",
			"openat W/other/f ×9", "rename W/other/f -> W/other/g", "link W/other/g -> W/other/f",
			"openat W/other/g ×3",
			"unlink W/other/f ×3",
		}},
		{"rooted", "a directory as the root of one call, and a file by its handle", []string{
			"openat W", "mkdir W/root", "openat W/root/file ×3", "openat W/root", "openat W/root/none ENOENT",
			"openat W/root/up ENOENT",
		}},
		{"below-fd", "names below a descriptor in /proc/self/fd", []string{
			"mkdir W/below", "openat W/below", "openat W/below/draft", "rename W/below/draft -> W/below/final",
			"rename W/below/final -> /proc/self/fd/99999999999/x ENOENT (unresolved)",
			"rename /proc/self/fd/777/x -> W/below/final ENOENT (unresolved)",
			"link W/below/final -> W/outside", "unlink W/outside", "unlink /proc/self/fd/3/final (unresolved)",
			"unlink /proc/self/fd/3 EPERM (unresolved)",
			"openat W/below/none ENOENT",
		}},
		{"detached", "below a mount that is nowhere any more", []string{
			"namespace ", "mount / -> none", "mkdir W/top", "mount W/top -> none", "chdir W/top", "mkdir W/top/low",
			"mount /top (unreachable) (unresolved)",
			"openat /low/file (unreachable)", "rename /low/file -> /file (unreachable)", "chdir /low (unreachable)",
			"openat /nothing ENOENT (unreachable)", "unlink /file (unreachable)",
		}},
		{"uring", "requests through io_uring", []string{
			"io_uring_setup ", "openat W/uring-file", "mkdir W/uring-dir", "openat W/uring-dir",
			"rename W/uring-file -> W/uring-dir/new",
			"unlink W/uring-dir/new",
			"connect_result 127.0.0.1:1 ECONNREFUSED ×2", "connect 127.0.0.1:1 ECONNREFUSED ×2", "bind 127.0.0.1:1",
		}},
		{"uring-renamed", "a directory's new name, given through io_uring", []string{
			"io_uring_setup ", "mkdir W/a", "openat W/a/f ×4", "rename W/a -> W/b", "openat W/b/f ×3",
		}},
		{"sqpoll", "requests that a kernel thread picks up", []string{
			"io_uring_setup ", "openat W/polled-file", "mkdir W/polled-dir", "link W/polled-file -> W/polled-dir/link",
			"rename W/polled-file -> W/polled-dir/new", "unlink W/polled-dir/link", "connect 127.0.0.1:9",
			"sendto 127.0.0.1:9",
		}},
		{"uring-linked", "requests that wait for each other, and one by a worker", []string{
			"io_uring_setup ", "mkdir W/linked", "openat W/absent ENOENT", "mkdir W/never ECANCELED",
			"symlink W/by-worker -> linked",
			"link W/none -> W/linked/new ENOENT",
		}},
		{"uring-registered", "files that the ring knows by numbers of its own", []string{
			"openat W/registered", "io_uring_setup ", "openat W/direct", "truncate W/direct",
		}},
		{"uring-quiet", "success that nothing tells of", []string{
			"openat W/quiet", "io_uring_setup ", "openat W/absent ENOENT", "mkdir W/silent",
		}},
		{"uring-accept", "one request that accepts three times", []string{
			"io_uring_setup ", "bind PORT", "listen PORT", "connect_result PORT ×3", "connect PORT", "accept PORT",
		}},
		{"uring-socket", "sockets whose peers no hook sees",
			[]string{"io_uring_setup ", "socket  ×2", "socket  EPROTONOSUPPORT"}},
		{"uring-harmless", "operations that touch nothing", []string{"io_uring_setup "}},
		{"uring-datagram", "peers of requests", []string{
			"io_uring_setup ", "sendto 127.0.0.1:9", "connect unix:W/no-such-socket ENOENT", "connect 127.0.0.1:9",
			"connect_result 127.0.0.1:9 ECONNREFUSED",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			need(t)
			dir := t.TempDir()
			r := record(t, dir, nil, helper, c.name)
			got := r.story(dir, dull...)
			if c.name == "uring-accept" {
				got = anyPorts(got)
			}
			if c.name == "uring-quiet" { // what nothing tells of comes when nothing more can
				slices.Sort(got)
				slices.Sort(c.want)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.what, d)
			}
			if c.name == "uring-socket" {
				r.claims(t, schema.CodeBlindSpot)
			} else {
				r.claims(t)
			}
		})
	}
}

// anyPorts says PORT for the ports of loopback that the kernel chose, and each
// line that is then the same once.
func anyPorts(lines []string) []string {
	var out []string
	for _, l := range lines {
		l = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(l, "PORT")
		l = strings.Replace(strings.Replace(l, " EINTR", "", 1), "connect PORT ×3", "connect PORT", 1)
		// At the end of the process the last accept is cancelled, if there is time to.
		if !slices.Contains(out, l) && l != "accept  ECANCELED" {
			out = append(out, l)
		}
	}
	return out
}

func blindSpot(t *testing.T, r recording, name string) bool {
	t.Helper()
	for _, c := range r.health.Coverage {
		for _, b := range c.KnownBlindSpots {
			if b.Name == name {
				return b.Exercised != nil && *b.Exercised
			}
		}
	}
	if !slices.ContainsFunc(layer.Coverage(kernel.TierEBPF), func(c schema.Coverage) bool {
		return slices.ContainsFunc(c.KnownBlindSpots, func(b schema.BlindSpot) bool { return b.Name == name })
	}) {
		t.Errorf("no blind spot %s", name)
	}
	return false
}

// sum counts the occurrences of a line.
func (r *recording) sum(dir, line string) (n uint64) {
	for i := range r.events {
		if say(&r.events[i], dir) == line {
			n += r.events[i].Times()
		}
	}
	return n
}

func TestNameRewrittenDuringTheCall(t *testing.T) {
	need(t)
	dir := t.TempDir()
	r := record(t, dir, nil, helper, "toctou")
	r.claims(t)
	var a, b uint64
	if _, err := fmt.Sscan(r.out, &a, &b); err != nil {
		t.Fatalf("%q: %v", r.out, err)
	}
	if a == 0 || b == 0 {
		t.Fatalf("no race: %d and %d opens", a, b)
	}
	a, b = a+1, b+1 // to make them
	if gotA, gotB := r.sum(dir, "openat W/race-a"), r.sum(dir, "openat W/race-b"); gotA != a || gotB != b {
		t.Errorf("opened by inode: %d and %d; in the layer: %d and %d", a, b, gotA, gotB)
	}
}

func TestDeepAndLongPathsAreMarked(t *testing.T) {
	need(t)
	for _, c := range []struct {
		name, component string
		last            []string // "kind base" of the last events
	}{
		{"deep", "d", []string{"openat leaf", "rename leaf", "openat nothing", "unlink fruit"}},
		{"longest", strings.Repeat("n", 255), []string{"openat leaf", "unlink leaf"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r := record(t, dir, nil, helper, c.name)
			r.claims(t, schema.CodeBlindSpot)
			var last []string
			began := false
			depth := 0 // that the program is at
			for i := range r.events {
				e := &r.events[i]
				if !began || e.Class != schema.ClassAgent {
					began = began || e.Kind == schema.KindExec
					continue
				}
				whole := dir + strings.Repeat("/"+c.component, depth)
				switch e.Kind {
				case schema.KindExec:
					// The program's own path is whole, its directory is not.
					if e.Value != "/usr/bin/true" || e.Truncated != schema.FieldCwd {
						t.Errorf("exec: %s, cwd of %d bytes", say(e, dir), len(e.Cwd))
					}
					continue
				case schema.KindMkdir:
					depth++
					whole += "/" + c.component
				case schema.KindChdir:
				case schema.KindExit:
					continue
				default:
					last = append(last, e.Kind.String()+" "+filepath.Base(e.Value))
					whole += "/" + filepath.Base(e.Value)
				}
				// A path is either whole or marked; one that fits is never marked.
				cut := e.Truncated&schema.FieldValue != 0
				fits := strings.Count(whole, "/") <= 256 && len(whole) <= 4096-256
				if (e.Value != whole) != cut || cut && fits {
					t.Fatalf("at depth %d: %d bytes and %d components of %d are kept, cut: %v", depth, len(e.Value),
						strings.Count(e.Value, "/"), len(whole), cut)
				}
				if cut && (strings.HasPrefix(e.Value, "/") || !strings.HasSuffix(whole, e.Value)) {
					t.Fatalf("at depth %d: what is kept of a path is not its end", depth)
				}
			}
			if d := cmp.Diff(c.last, last); d != "" {
				t.Error(d)
			}
			if r.sum(dir, "chdir W") != 1 {
				t.Error("nothing fits any more")
			}
		})
	}
}

func TestInterruptedCalls(t *testing.T) {
	need(t)
	dir := t.TempDir()
	r := record(t, dir, nil, helper, "interrupted")
	r.claims(t)
	// Every interruption is EINTR, whether the call began anew or not: that is
	// decided after it was seen. How many signals came is a matter of time.
	if n := r.sum(dir, "openat W/ended EINTR"); n != 1 {
		t.Errorf("%d opens of ended were interrupted, want 1", n)
	}
	if n := r.sum(dir, "openat W/restarted EINTR"); n == 0 {
		t.Error("no open of restarted was interrupted")
	}
	if n := r.sum(dir, "openat W/restarted"); n != 2 {
		t.Errorf("%d opens of restarted, want one of either end", n)
	}
}
