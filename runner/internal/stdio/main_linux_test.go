package stdio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"encoding/json"
	"golang.org/x/sys/unix"
	"runtime/pprof"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cgroup"
	_ "github.com/assay-run/assay-run/cgroup/reexec"
	"github.com/assay-run/assay-run/schema"
)

// The test binary plays the runner: SPOOL=dir [CAP=bytes] [GRACE=duration]
// stdio.test CMD ARG... runs CMD with its streams captured into SPOOL, leaves
// what Finish returned in SPOOL/result.json, and exits as CMD did.
const spoolEnv = "STDIO_TEST_SPOOL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(spoolEnv); dir != "" {
		os.Exit(playRunner(dir, os.Args[1:]))
	}
	os.Exit(leaktest.Of(m).Run())
}

type report struct {
	Stdio     schema.Stdio
	Truncated map[string]int64
	Errors    []string
	Left      int // processes of a job that outlived Finish
}

func playRunner(dir string, argv []string) int {
	var rep report
	rep.Truncated = map[string]int64{}
	cfg := Config{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Capture: os.Getenv("STDIO_TEST_NO_CAPTURE") == "", CaptureBytes: 64 << 20,
		Create: func(member string) (io.WriteCloser, error) {
			path := filepath.Join(dir, member)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, err
			}
			return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		},
		OnTruncate: func(stream string, at int64) { rep.Truncated[stream] = at },
		OnError:    func(_ string, err error) { rep.Errors = append(rep.Errors, err.Error()) },
	}
	if c := os.Getenv("STDIO_TEST_CAP"); c != "" {
		cfg.CaptureBytes, _ = strconv.ParseInt(c, 10, 64)
	}
	grace, _ := time.ParseDuration(os.Getenv("STDIO_TEST_GRACE"))
	fail := func(err error) int { fmt.Fprintln(os.Stderr, "runner:", err); return 125 }

	s, err := Open(cfg)
	if err != nil {
		return fail(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = childEnv()
	s.Attach(cmd)
	next, end, err := startChild(s, cmd)
	if err != nil {
		s.Finish(grace)
		return fail(err)
	}
	sigs := make(chan os.Signal, 16)
	signal.Notify(sigs, syscall.SIGWINCH, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGCONT)
	go func() {
		for sig := range sigs {
			switch sig {
			case syscall.SIGWINCH:
				s.Resize()
			case syscall.SIGCONT:
				s.Resume()
				// The child is stopped too, whoever stopped it.
				syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT)
			default:
				cmd.Process.Signal(sig)
			}
		}
	}()
	if err := s.Started(); err != nil {
		return fail(err)
	}
	code := 0
	for {
		ws, err := next()
		if errors.Is(err, syscall.EINTR) {
			continue
		} else if err != nil {
			return fail(err)
		}
		if ws.Stopped() {
			s.Suspend()
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			continue
		}
		if ws.Continued() {
			continue
		}
		if code = ws.ExitStatus(); ws.Signaled() {
			code = 128 + int(ws.Signal())
		}
		break
	}
	s.SetExit(code)
	rep.Stdio = s.Finish(grace)
	rep.Left = end()
	if again := s.Finish(grace); again != rep.Stdio {
		return fail(fmt.Errorf("second Finish returned %+v", again))
	}
	data, _ := json.Marshal(rep)
	if err := os.WriteFile(filepath.Join(dir, "result.json"), data, 0o600); err != nil {
		return fail(err)
	}
	signal.Stop(sigs)
	close(sigs)
	if !ended(3) { // main, os/signal's, the closing loop above
		return fail(errors.New("goroutines are left"))
	}
	return code
}

// ended reports whether at most n goroutines are left, once the runtime had time to finish those that are exiting.
func ended(n int) bool {
	for range 10_000 {
		if runtime.NumGoroutine() <= n {
			return true
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
	pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	return false
}

// startChild starts cmd as the runner does. next waits for a change of its state.
func startChild(s *Streams, cmd *exec.Cmd) (next func() (unix.WaitStatus, error), end func() (left int), err error) {
	if !s.OwnSession() {
		next = func() (ws unix.WaitStatus, err error) {
			_, err = unix.Wait4(cmd.Process.Pid, &ws, unix.WUNTRACED, nil)
			return ws, err
		}
		return next, func() int { return 0 }, cmd.Start()
	}
	session, err := cgroup.Probe().NewSession(fmt.Sprintf("stdio-test-%d", os.Getpid()), cgroup.Limits{})
	if err != nil {
		return nil, nil, err
	}
	job, err := session.Agent().StartJob(cmd)
	if err != nil {
		return nil, nil, errors.Join(err, session.Remove())
	}
	end = func() int {
		left, _ := session.Agent().Procs()
		job.Close()
		session.Remove()
		return len(left)
	}
	return job.Wait, end, nil
}

// childEnv is the environment without what makes the test binary a runner.
func childEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "STDIO_TEST_") {
			env = append(env, kv)
		}
	}
	return env
}

// runner returns the command that runs argv under the test binary, and its spool.
func runner(t testing.TB, env []string, argv ...string) (*exec.Cmd, string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe", argv...)
	cmd.Env = append(append(os.Environ(), spoolEnv+"="+dir), env...)
	return cmd, dir
}

func readReport(t testing.TB, dir string) report {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func member(t testing.TB, dir, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, path))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// within fails the test unless f returns in time, of this process as leaktest counts it.
func within(t testing.TB, d time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	if !leaktest.Within(d, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}) {
		t.Fatalf("%s: not done after %v", what, d)
	}
}
