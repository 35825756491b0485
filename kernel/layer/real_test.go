//go:build linux && (amd64 || arm64)

package layer

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

func bootTime(t testing.TB) uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		t.Fatal(err)
	}
	return uint64(ts.Nano())
}

// real is what one observed run left.
type real struct {
	lines   []schema.KernelEvent
	surface string
	health  schema.ObservationHealth
	stats   Stats
	report  kernel.Report
}

// observe runs a shell script in a cgroup of its own, in dir, and returns what
// the whole way from the kernel to the lines made of it.
func observe(t testing.TB, dir, script string) real {
	t.Helper()
	root := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
		root = "/sys/fs/cgroup"
	}
	cg, err := os.MkdirTemp(root, "assay-layer-")
	if err != nil {
		t.Skipf("cannot make a cgroup2 directory: %v", err)
	}
	defer func() {
		if err := os.Remove(cg); err != nil {
			t.Errorf("session cgroup: %v", err)
		}
	}()
	o, err := kernel.Open(t.Context(), kernel.Config{CgroupPath: cg, SelfTest: true})
	if errors.Is(err, kernel.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	var r real
	s := surface.New("run_1", t.TempDir())
	defer s.Close()
	b := NewBuilder(Options{RunID: "run_1", Start: bootTime(t), Surface: s, Sink: func(e *schema.KernelEvent) error {
		e.Seq = uint64(len(r.lines))
		var got schema.KernelEvent
		line := schema.AppendJSON(nil, e)
		if err := schema.DecodeKernelEvent(line, &got); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if err := schema.Validate(schema.KernelEventV1, line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		r.lines = append(r.lines, got)
		return nil
	}})
	done := make(chan error, 1)
	go func() { done <- o.Read(b.Push, func(now uint64) { _ = b.Tick(now) }) }()
	fd, err := os.Open(cg)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	c := exec.Command("/bin/sh", "-c", script)
	c.Dir, c.Env = dir, []string{"PATH=/usr/bin:/bin", "HOME=/root", "LC_ALL=C.UTF-8"}
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := errors.Join(o.Stop(), <-done, b.Close()); err != nil {
		t.Fatal(err)
	}
	r.report, r.stats = o.Report(), b.Stats()
	if c := b.Counts(); c.Seen != c.Written+c.Coalesced+c.Filtered+c.Dropped || c.Written != uint64(len(r.lines)) {
		t.Errorf("%+v does not add up to %d lines", c, len(r.lines))
	}
	if b.Stats().Received != r.report.Delivered {
		t.Errorf("%d delivered, %d received", r.report.Delivered, b.Stats().Received)
	}
	var doc bytes.Buffer
	if _, err := s.WriteTo(&doc); err != nil {
		t.Fatal(err)
	}
	r.surface = doc.String()
	r.health = schema.ObservationHealth{CgroupCorrelation: schema.Clean}
	Health(&r.health, Account{Report: &r.report, Counts: b.Counts(), Stats: r.stats, LeftOut: s.LeftOut()})
	k := r.health.Kernel
	if k.Emitted != k.Received || k.Received != k.Decoded+k.Malformed ||
		k.Decoded+k.Drained+k.Added != k.Written+k.Filtered+k.Dropped+k.Parts+k.SelfTest {
		t.Errorf("the account does not add up: %+v", k)
	}
	return r
}

func (r *real) find(kind schema.KernelKind, value string) *schema.KernelEvent {
	for i := range r.lines {
		if e := &r.lines[i]; e.Kind == kind && e.Value == value {
			return e
		}
	}
	return nil
}

func TestRealShell(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "in"), []byte("x\n"), 0o644)
	r := observe(t, dir, `cat in > out; mv out moved; mkdir d; ln -s nowhere l; rm moved; cat /nonexistent 2>/dev/null; (exit 3); exec /bin/echo last`)
	if len(r.lines) == 0 {
		t.Fatal("no lines")
	}
	if r.health.KernelLayer != schema.Complete {
		t.Errorf("the layer is %s: %+v", r.health.KernelLayer, r.health.Reasons)
	}
	for i := 1; i < len(r.lines); i++ {
		if a, b := r.lines[i-1], r.lines[i]; b.TNS < a.TNS && !b.Late {
			t.Errorf("line %d is of %d ns, after %d", i, b.TNS, a.TNS)
		}
	}
	in := r.find(schema.KindOpen, dir+"/in")
	if in == nil || in.Class != schema.ClassAgent || in.Result < 0 || in.UserMemory {
		t.Errorf("the open of in is %+v", in)
	}
	out := r.find(schema.KindOpen, dir+"/out")
	if out == nil || !out.Creates() {
		t.Errorf("the open of out is %+v", out)
	}
	if e := r.find(schema.KindRename, dir+"/out"); e == nil || e.Target != dir+"/moved" {
		t.Errorf("the rename is %+v", e)
	}
	// Who did it: the open of in belongs to the instance that executed cat,
	// forked by the shell.
	byID := map[uint64]*schema.KernelEvent{}
	for i := range r.lines {
		if e := &r.lines[i]; e.Kind == schema.KindFork || e.Kind == schema.KindExec || e.Kind == schema.KindJoin {
			if byID[e.ExecID] != nil {
				t.Errorf("exec_id %d begins twice", e.ExecID)
			}
			byID[e.ExecID] = e
		}
	}
	if in != nil {
		cat := byID[in.ExecID]
		if cat == nil || cat.Kind != schema.KindExec || !slices.Equal(cat.Argv, []string{"cat", "in"}) {
			t.Fatalf("in was opened by %+v", cat)
		}
		fork := byID[cat.ParentExecID]
		if fork == nil || fork.Kind != schema.KindFork {
			t.Fatalf("cat's process began with %+v", fork)
		}
		if sh := byID[fork.ParentExecID]; sh == nil || sh.Kind != schema.KindExec || sh.Argv[0] != "/bin/sh" {
			t.Errorf("cat was forked by %+v", sh)
		}
	}
	for i := range r.lines {
		if e := &r.lines[i]; byID[e.ExecID] == nil {
			t.Errorf("line %d refers to the unknown instance %d", i, e.ExecID)
		}
	}
	if s := r.stats; s.Forks != s.Exits || s.Alive != 0 || s.Joins != 0 || s.MissedExits != 0 || s.Late != 0 {
		t.Errorf("stats are %+v", s)
	}
	if strings.Contains(r.surface, "ld.so.cache") || strings.Contains(r.surface, "libc.so") {
		t.Errorf("the loader is in the surface:\n%s", r.surface)
	}
	for _, want := range []string{"/in", "/moved", "/d", "/l", "/nonexistent"} {
		if !strings.Contains(r.surface, want+`"`) {
			t.Errorf("%s is not in the surface:\n%s", want, r.surface)
		}
	}
}

// Identical workloads give identical bytes, pids and temporary names and all.
func TestRealSurfacesAreIdentical(t *testing.T) {
	layertest.Host(t)
	script := `export TMPDIR=$PWD; cat /proc/self/status >/dev/null; f=$(mktemp); echo x >$f; sed -i s/x/y/ $f; sort $f; rm $f
command -v python3 >/dev/null && python3 -c 'import json,tempfile,socket,threading
s=socket.socket(); s.bind(("127.0.0.1",0)); s.listen()
c=socket.create_connection(s.getsockname())
ts=[threading.Thread(target=lambda: open(tempfile.mkstemp()[1]).close()) for _ in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
' || true
ls /proc/$$/fd >/dev/null; rm -f tmp????????`
	dir := t.TempDir()
	first := observe(t, dir, script)
	for range 3 {
		if again := observe(t, dir, script); again.surface != first.surface {
			t.Fatalf("two runs differ:\n%s\n%s", first.surface, again.surface)
		}
	}
	t.Logf("%s", first.surface)
}
