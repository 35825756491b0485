package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
)

// endGrace is --grace in TestRunEndsWhenTold, and endLimit is what a run may take after it was told to end.
const (
	endGrace = time.Second
	endLimit = endGrace + 2*time.Second
)

// holdCase holds a run in one state of its life.
type holdCase struct {
	flags   []string
	command []string
	stdout  bool // a pipe that nobody reads
	stderr  bool // a full pipe that nobody reads
	freeze  bool // the session's cgroup, from the beginning
	// held reports that the run is in the state.
	held func(t *testing.T, r *heldRun) bool
	// untimed says why the run's timeout does not bound the state.
	untimed string
	// want are the exit codes after SIGTERM, two SIGINT and the timeout, and says is part of what is said
	// then.
	want [3]int
	says string
}

// heldRun is a run that is held in one state.
type heldRun struct {
	dir, id string
	cmd     *exec.Cmd
	stderr  bytes.Buffer
	session string // the session's cgroup2 directory, which is frozen
}

func (r *heldRun) exists(name string) bool {
	_, err := os.Stat(filepath.Join(r.dir, name))
	return err == nil
}

// recorded reports whether the lifecycle layer has an event of the type.
func (r *heldRun) recorded(event string) bool {
	events, _ := os.ReadFile(filepath.Join(r.spool(), schema.EventsPath))
	return bytes.Contains(events, []byte(`"`+event+`"`))
}

// started reports whether the run's command has started.
func (r *heldRun) started() bool { return r.recorded(schema.ProcessStarted) }

func (r *heldRun) spool() string { return filepath.Join(r.dir, ".state", "assay-run", "spool", r.id) }

// sealed stands for the exit code 0 if the bundle was sealed within the grace, and else 125.
const sealed = -1

const (
	hangingCheck = `description: ""
checks: [{name: hangs, expect_exit_zero: true, command: 'trap "" TERM INT; touch ready; while :; do sleep 0.05; done'}]`
	deaf = `trap "" TERM INT; touch ready; while :; do sleep 0.05; done`
)

func ready(_ *testing.T, r *heldRun) bool { return r.exists("ready") }

// frozen reports whether the frozen session is there, and the run waits: no thread of it has run for a while. One that
// starts a process in the frozen session waits in the kernel (D) until that process is killed.
func frozen(_ *testing.T, r *heldRun) bool {
	const looks = 50
	stuck := map[string]int{}
	for range looks {
		time.Sleep(5 * time.Millisecond)
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", r.cmd.Process.Pid))
		for _, task := range tasks {
			stat, _ := os.ReadFile(task)
			switch {
			case bytes.Contains(stat, []byte(") R ")):
				return false
			case bytes.Contains(stat, []byte(") D ")):
				stuck[task]++
			}
		}
	}
	for _, n := range stuck {
		if n < looks {
			return false
		}
	}
	_, err := os.Stat(r.session)
	return err == nil
}

// holds has a case for each state.
var holds = map[runner.State]holdCase{
	runner.StatePreparing: {
		flags: []string{"--contract", "c.yaml", "--contract-baseline"}, command: []string{"true"},
		held: ready, untimed: "checks have timeouts of their own", want: [3]int{143, 130},
		says: "while the contract's baseline was evaluated: interrupted by SIG",
	},
	runner.StateSelfTest: {
		flags: []string{"--kernel", "auto"}, command: []string{"true"}, freeze: true,
		held: frozen, want: [3]int{143, 130, 124}, says: " before the command started (self-test)",
	},
	runner.StateStarting: {
		flags: []string{"--kernel", "off"}, command: []string{"true"}, freeze: true,
		held: frozen, want: [3]int{143, 130, 124}, says: " before the command started (starting)",
	},
	runner.StateRunning: {
		command: []string{"sh", "-c", deaf}, held: ready, want: [3]int{137, 137, 124},
	},
	runner.StateDraining: {
		command: []string{"head", "-c", "100000", "/dev/zero"}, stdout: true,
		held: func(_ *testing.T, r *heldRun) bool { return r.recorded(schema.ProcessExited) },
		want: [3]int{0, 0, 0}, // the command had ended
	},
	runner.StateChecking: {
		flags: []string{"--contract", "c.yaml"}, command: []string{"true"},
		held: ready, untimed: "checks have timeouts of their own", want: [3]int{123, 123},
	},
	runner.StateSealing: {
		flags: []string{"--capture-bytes", "1G"}, command: []string{"head", "-c", "200000000", "/dev/urandom"},
		// The last event: then the bundle is written.
		held:    func(_ *testing.T, r *heldRun) bool { return r.recorded(schema.RunFinished) },
		untimed: "the timeout bounds the command, and sealing ends", want: [3]int{sealed, 125},
	},
	runner.StateReleasing: {
		command: []string{"true"}, stderr: true,
		held: func(_ *testing.T, r *heldRun) bool {
			_, err := os.Stat(r.spool())
			return r.exists("run.tar.gz") && errors.Is(err, fs.ErrNotExist)
		},
		want: [3]int{0, 0, 0},
	},
}

// TestRunEndsWhenTold brings a run into each state of its life and tells it to end there: by SIGTERM, by two
// SIGINT and by its timeout. It ends within the grace and two seconds, and leaves a bundle or what
// assay-run recover makes one of.
func TestRunEndsWhenTold(t *testing.T) {
	layertest.Host(t)
	for _, state := range []runner.State{
		runner.StatePreparing, runner.StateSelfTest, runner.StateStarting, runner.StateRunning, runner.StateDraining,
		runner.StateChecking, runner.StateSealing, runner.StateReleasing,
	} {
		hold, ok := holds[state]
		if !ok {
			t.Errorf("no case holds a run in the state %s", state)
			continue
		}
		for i, how := range []string{"SIGTERM", "SIGINT twice", "timeout"} {
			t.Run(string(state)+" "+how, func(t *testing.T) {
				if hold.freeze && (os.Geteuid() != 0 || cgroup2() == "" || !observes()) {
					t.Skip("needs root, cgroup2 and a kernel layer")
				}
				if how == "timeout" && hold.untimed != "" {
					return // and nothing to assert: see untimed
				}
				hold.end(t, how, hold.want[i])
			})
		}
	}
}

// TestASealingEndsAsTheRunWasTold has a run told to end before its sealing, which then does not end by itself.
func TestASealingEndsAsTheRunWasTold(t *testing.T) {
	end := &ending{grace: time.Millisecond, told: time.Now()}
	ended := make(chan error, 1)
	go func() {
		_, err := end.attend(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, errEnded) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

// TestImpatienceDoesNotPutTheEndOff tells a run whose end hangs to end, again and again.
func TestImpatienceDoesNotPutTheEndOff(t *testing.T) {
	signals := make(chan os.Signal)
	end := &ending{signals: signals}
	end.released(false)
	ended := make(chan error, 1)
	go func() {
		_, err := end.attend(t.Context(), func(context.Context) error {
			<-t.Context().Done()
			return nil
		})
		ended <- err
	}()
	again := time.NewTicker(endTime / 4)
	defer again.Stop()
	for n := 0; n < 40; n++ { // ten seconds
		select {
		case signals <- syscall.SIGINT:
		case err := <-ended:
			if exit := (console.ExitError{}); !errors.As(err, &exit) || exit.Code != schema.ExitRunner {
				t.Errorf("it ended with %v", err)
			}
			return
		}
		<-again.C
	}
	t.Error("it goes on")
}

// hold starts a run and waits until it is in the state. ended is closed when it has ended.
func (h holdCase) hold(t *testing.T, how string) (r *heldRun, ended chan struct{}) {
	t.Helper()
	r = &heldRun{dir: t.TempDir(), id: "end-" + uniqueID()}
	if err := os.WriteFile(filepath.Join(r.dir, "c.yaml"), []byte(hangingCheck), 0o644); err != nil {
		t.Fatal(err)
	}
	flags := append([]string{"--run-id", r.id, "--grace", endGrace.String(), "-o", "run.tar.gz"}, h.flags...)
	if how == "timeout" {
		flags = append(flags, "--timeout", "1s")
	}
	r.cmd = self(t, r.dir, append(append(flags, "--"), h.command...)...)
	r.cmd.Stderr = &r.stderr
	if h.stdout {
		r.cmd.Stdout = unread(t, 0)
	}
	if h.stderr {
		r.cmd.Stderr = unread(t, 1<<20)
	}
	if h.freeze {
		r.freeze(t)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() {
		_ = r.cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-ended
	})
	for !h.held(t, r) {
		select {
		case <-ended:
			if how == "timeout" { // which may come before we see that the run is held
				return r, ended
			}
			t.Fatalf("it ended before it was told to: %v\n%s", r.cmd.ProcessState, r.stderr.String())
		case <-time.After(time.Millisecond):
		}
	}
	return r, ended
}

// insist sends another SIGINT after each second: of two that came before a starved process read the first, the
// kernel or Go's runtime makes one.
func insist(p *os.Process, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(time.Second):
			_ = p.Signal(unix.SIGINT)
		}
	}
}

// end tells a run that is held in the state to end.
func (h holdCase) end(t *testing.T, how string, want int) {
	r, ended := h.hold(t, how)
	for h.freeze && r.started() { // it was frozen too late
		r, ended = h.hold(t, how)
	}
	limit := endLimit
	switch how {
	case "SIGTERM":
		_ = r.cmd.Process.Signal(unix.SIGTERM)
	case "SIGINT twice":
		_ = r.cmd.Process.Signal(unix.SIGINT)
		time.Sleep(100 * time.Millisecond) // or the kernel makes one of two
		_ = r.cmd.Process.Signal(unix.SIGINT)
		go insist(r.cmd.Process, ended)
	case "timeout":
		limit += time.Second // which is the timeout
	}
	if !leaktest.Within(limit, func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}) {
		t.Fatalf("it had not ended %v later", limit)
	}
	got := r.cmd.ProcessState.ExitCode()
	if want == sealed {
		want = 125
		if r.exists("run.tar.gz") {
			want = 0
		}
	}
	if got != want {
		t.Errorf("exit code %d, want %d\n%s", got, want, r.stderr.String())
	}
	if !strings.Contains(r.stderr.String(), h.says) {
		t.Errorf("it said:\n%s\nwant %q", r.stderr.String(), h.says)
	}
	if !r.exists("run.tar.gz") {
		if want != 125 || !strings.Contains(r.stderr.String(), "the evidence is kept") {
			t.Errorf("exit code %d, and there is no bundle; it said:\n%s", got, r.stderr.String())
		}
		if out, err := self(t, r.dir, "recover", r.id).CombinedOutput(); !r.exists("run.tar.gz") {
			t.Errorf("recover: %v\n%s", err, out)
		}
	}
	verifyBundle(t, filepath.Join(r.dir, "run.tar.gz"), 0)
}

// unread is the write end of a pipe that nobody reads, with up to fill bytes in it.
func unread(t *testing.T, fill int) *os.File {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 4096); fill > 0; fill -= len(chunk) {
		if _, err := unix.Write(ends[1], chunk); err != nil {
			break
		}
	}
	if err := syscall.SetNonblock(ends[1], false); err != nil {
		t.Fatal(err)
	}
	read, write := os.NewFile(uintptr(ends[0]), "unread"), os.NewFile(uintptr(ends[1]), "unread")
	t.Cleanup(func() {
		read.Close()
		write.Close()
	})
	return write
}

// freeze starts the run in a cgroup of its own, below which everything is frozen: the run's session will be there.
func (r *heldRun) freeze(t *testing.T) {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, path, _ := strings.Cut("\n"+string(own), "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	home := filepath.Join(cgroup2(), path, r.id+"-home")
	r.session = filepath.Join(home, "assay-run", r.id)
	parent := filepath.Dir(r.session)
	if err := errors.Join(os.Mkdir(home, 0o755), os.Mkdir(parent, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !leaktest.Within(10*time.Second, func() bool {
			_ = os.Remove(parent)
			err := os.Remove(home)
			return err == nil || errors.Is(err, fs.ErrNotExist)
		}) {
			t.Errorf("%s is still there", home)
		}
	})
	if err := os.WriteFile(filepath.Join(parent, "cgroup.freeze"), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	r.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
}
