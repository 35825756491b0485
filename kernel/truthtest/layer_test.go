//go:build linux && amd64

package truthtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// recording is what a run left.
type recording struct {
	events  []schema.KernelEvent
	health  schema.ObservationHealth
	surface schema.CapabilitySurface
	began   []schema.Inherited // what the command, or who was attached to, had open
	out     string             // what the command printed
}

// environment is what every workload sees, under strace and without it.
func environment(dir string) []string {
	return []string{
		"PATH=/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C", "TZ=UTC0", "PYTHONDONTWRITEBYTECODE=1",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@b",
		// No maintenance: git 2.47 does it in the background, whenever that is.
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=gc.auto", "GIT_CONFIG_VALUE_0=0",
		"GIT_CONFIG_KEY_1=maintenance.auto", "GIT_CONFIG_VALUE_1=false",
		"GIT_AUTHOR_DATE=@1700000000 +0000", "GIT_COMMITTER_DATE=@1700000000 +0000",
		// The runner's own name for a run would differ between two of them.
		"ASSAY_RUNNER_RUN_ID=truth",
	}
}

// prepare makes a run of the built program in dir, whose bundle will be at the
// path that it returns.
func prepare(t *testing.T, dir string, env []string, command ...string) (*exec.Cmd, string) {
	t.Helper()
	return prepareWith(t, dir, nil, env, command...)
}

// prepareWith is prepare with options of the program.
func prepareWith(t *testing.T, dir string, options, env []string, command ...string) (*exec.Cmd, string) {
	t.Helper()
	state := t.TempDir()
	bundle := filepath.Join(state, "bundle.tar.gz")
	args := slices.Concat([]string{"--quiet", "--kernel", "require", "--timeout", "20m", "-o", bundle,
		"--spool-dir", filepath.Join(state, "spool"), "--workdir", dir}, options, []string{"--"}, command)
	c := exec.CommandContext(t.Context(), program, args...)
	c.Env = append(environment(dir), env...)
	c.WaitDelay = time.Second
	return c, bundle
}

// record runs a command to its end, which must be a success, or 125 from the
// runner, whose layer was then not complete: what it claims is the test's to judge.
func record(t *testing.T, dir string, env []string, command ...string) recording {
	t.Helper()
	return recordWith(t, dir, nil, env, command...)
}

// recordWith is record with options of the program.
func recordWith(t *testing.T, dir string, options, env []string, command ...string) recording {
	t.Helper()
	c, bundle := prepareWith(t, dir, options, env, command...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil && c.ProcessState.ExitCode() != 125 {
		t.Fatalf("%q: %v\n%s", command, err, out.Bytes())
	}
	r := readBundle(t, bundle)
	r.out = out.String()
	return r
}

// claims asserts what the run's health says of the kernel layer: complete, or
// the codes of the reasons why not.
func (r *recording) claims(t *testing.T, reasons ...string) {
	t.Helper()
	var got []string
	for _, x := range r.health.Reasons {
		if x.Subject == "kernel" {
			got = append(got, x.Code)
		}
	}
	slices.Sort(got)
	if d := cmp.Diff(reasons, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("reasons (-want +got):\n%s\n%+v", d, r.health.Reasons)
	}
	if complete := r.health.KernelLayer == schema.Complete; complete != (len(reasons) == 0) ||
		r.health.RingbufDrops != 0 {
		t.Errorf("the kernel layer is %s, with %d drops", r.health.KernelState, r.health.RingbufDrops)
	}
}

// readBundle reads the kernel layer and what is claimed of it.
func readBundle(t *testing.T, bundle string) recording {
	t.Helper()
	b, err := archive.Open(bundle)
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	for line, err := range b.Lines(t.Context(), schema.KernelPath) {
		if err != nil {
			t.Fatal(err)
		}
		var e schema.KernelEvent
		if err := schema.DecodeKernelEvent(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if e.TID == 0 {
			e.TID = e.PID
		}
		r.events = append(r.events, e)
	}
	for line, err := range b.Lines(t.Context(), schema.EventsPath) {
		var e schema.Event
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == schema.ProcessStarted || e.Type == schema.Attached {
			r.began = e.Inherited
		}
	}
	docs, err := b.Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.health, r.surface = docs.Health, docs.Surface
	for _, c := range r.health.Coverage {
		for _, s := range c.KnownBlindSpots {
			used := s.Exercised != nil && *s.Exercised && len(s.Hides) > 0
			if used && r.health.KernelLayer == schema.Complete {
				t.Errorf("the layer is complete, and the run used what can hide %q: %s", s.Hides, s.Name)
			}
		}
	}
	return r
}

const strace = "/usr/bin/strace"

// facts says what the layer holds of the agreed kinds. It leaves out what
// happened before the command was executed (the runner's own child, and strace
// with its helpers where the command is traced), since strace cannot know it.
func (r *recording) facts() facts {
	f := facts{}
	exe := map[uint32]string{}
	execs := map[uint64]int{} // of an instance
	for i := range r.events {
		e := &r.events[i]
		before := exe[e.PID]
		switch e.Kind {
		case schema.KindFork:
			exe[e.PID] = exe[e.PPID]
			before = exe[e.PPID]
		case schema.KindExec:
			// strace and the runner's child are not counted among them.
			execs[e.ExecID] = execs[e.ParentExecID] + 1
			if e.Value == strace {
				execs[e.ExecID] = 0
			}
			exe[e.PID] = e.Value
			before = e.Value
		}
		if before == "" || before == strace {
			continue
		}
		if words, ok := words(e); ok {
			f.addTimes(e.Times(), who{int(e.PID), execs[e.ExecID]}, kindOf(e), words...)
		}
	}
	return f
}

func kindOf(e *schema.KernelEvent) string {
	if e.Kind == schema.KindOpen {
		return "open"
	}
	return e.Kind.String()
}

// words says an event as facts_test.go says a call; ok is false outside of the
// agreed set.
func words(e *schema.KernelEvent) (w []string, ok bool) {
	w = []string{e.Value}
	mode := fmt.Sprintf("mode=%#o", e.Mode)
	switch e.Kind {
	case schema.KindFork:
		return []string{fmt.Sprint("of ", e.PPID)}, true
	case schema.KindExit:
		if s := e.WaitStatus & 0x7f; s != 0 {
			return []string{"killed by " + unix.SignalName(unix.Signal(s))}, true
		}
		return []string{fmt.Sprint("exited with ", e.WaitStatus>>8)}, true
	case schema.KindExec:
		return []string{e.Value, fmt.Sprintf("%q", e.Argv)}, true
	case schema.KindOpen:
		w = append(w, fmt.Sprintf("flags=%#x %s", e.Flags, mode))
	case schema.KindMkdir:
		w = append(w, mode)
	case schema.KindChown:
		a := append(slices.Clone(e.Args), 0, 0)
		w = append(w, owner(a[0], a[1]))
	case schema.KindChmod, schema.KindMknod:
		w = append(w, mode)
	case schema.KindTruncate:
		a := append(slices.Clone(e.Args), 0, 0, 0)
		if e.Call == "fallocate" {
			w = append(w, fmt.Sprintf("fallocate=%d", a[:3]))
		} else {
			w = append(w, fmt.Sprintf("length=%d", a[0]))
		}
	case schema.KindUtime:
		w = append(w, "")
	case schema.KindSymlink, schema.KindRename, schema.KindLink, schema.KindSetxattr, schema.KindRemovexattr:
		w = append(w, e.Target)
	case schema.KindConnect, schema.KindBind:
		if e.Protocol == "netlink" || e.Value == "" {
			return nil, false // see outside
		}
	case schema.KindExecFailed, schema.KindUnlink, schema.KindRmdir, schema.KindChdir:
	default:
		return nil, false
	}
	// What /proc shows, and strace with it: anonymous memory has no name either.
	if e.Marks&(schema.MarkDeleted|schema.MarkMemfd) != 0 && e.Result >= 0 {
		w = append(w, "deleted")
	}
	return append(w, result(e.Errno())), true
}

// image is the program that executing the file at path runs, and its arguments:
// those of the interpreter for a script (Linux's binfmt_script).
func image(path, name string, argv []string) (string, []string) {
	args := make([]string, len(argv))
	for i, a := range argv {
		args[i], _ = str(a)
	}
	exe := resolve(path)
	b, err := os.ReadFile(exe)
	if err != nil || !bytes.HasPrefix(b, []byte("#!")) {
		return exe, args
	}
	line, _, _ := strings.Cut(string(b[2:]), "\n")
	interp, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
	head := []string{interp}
	if arg = strings.TrimSpace(arg); arg != "" {
		head = append(head, arg)
	}
	args = append(append(head, name), args[min(1, len(args)):]...)
	for i, a := range args { // for the interpreter that is a script itself
		args[i] = strconv.Quote(a)
	}
	return image(interp, interp, args)
}

// resolve follows symbolic links as the kernel did when the file was there.
func resolve(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return path
}
