package stdio

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/schema"
	"github.com/google/go-cmp/cmp"
)

func exitCode(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

func TestOneGigabyteIsExact(t *testing.T) {
	const script = `head -c 1073741824 /dev/zero | openssl enc -aes-128-ctr -K 00 -iv 00 2>/dev/null; exit 42`
	direct := sha256.New()
	bare := exec.Command("sh", "-c", script)
	bare.Stdout = direct
	if code := exitCode(bare.Run()); code != 42 {
		t.Fatalf("bare exit code %d", code)
	}
	for _, to := range []string{"pipe", "file", "socket"} {
		t.Run(to, func(t *testing.T) {
			h := sha256.New()
			cmd, dir := runner(t, []string{"STDIO_TEST_CAP=1000000"}, "sh", "-c", script)
			var err error
			switch to {
			case "pipe":
				cmd.Stdout = h // exec.Cmd makes a pipe
				err = cmd.Run()
			case "file":
				f, ferr := os.Create(filepath.Join(t.TempDir(), "out"))
				if ferr != nil {
					t.Fatal(ferr)
				}
				defer f.Close()
				cmd.Stdout = f
				err = cmd.Run()
				f.Seek(0, io.SeekStart)
				io.Copy(h, f)
			case "socket":
				fds, serr := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
				if serr != nil {
					t.Fatal(serr)
				}
				theirs, ours := os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
				cmd.Stdout = theirs
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				theirs.Close()
				io.Copy(h, ours)
				ours.Close()
				err = cmd.Wait()
			}
			if code := exitCode(err); code != 42 {
				t.Errorf("exit code %d: %v", code, err)
			}
			if got, want := hex.EncodeToString(h.Sum(nil)), hex.EncodeToString(direct.Sum(nil)); got != want {
				t.Errorf("sha256 %s, want %s", got, want)
			}
			want := report{Truncated: map[string]int64{Stdout: 1000000}, Stdio: schema.Stdio{
				Mode:   ModePipe,
				Stdout: &schema.Stream{Bytes: 1 << 30, Captured: 1000000, Truncated: true},
				Stderr: &schema.Stream{},
			}}
			if d := cmp.Diff(want, readReport(t, dir)); d != "" {
				t.Error(d)
			}
			if n := len(member(t, dir, schema.StdoutPath)); n != 1000000 {
				t.Errorf("member has %d bytes", n)
			}
		})
	}
}

func TestBinaryDataIsKeptWhole(t *testing.T) {
	cmd, dir := runner(t, nil, "sh", "-c", `head -c 3000000 /dev/urandom | tee /dev/stderr; printf '\000\377\n' >&2`)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if out.Len() != 3000000 || errs.String() != out.String()+"\x00\xff\n" {
		t.Errorf("%d and %d bytes came out", out.Len(), errs.Len())
	}
	if !bytes.Equal(member(t, dir, schema.StdoutPath), out.Bytes()) || !bytes.Equal(member(t, dir, schema.StderrPath), errs.Bytes()) {
		t.Error("the copies differ")
	}
	want := schema.Stdio{
		Mode:   ModePipe,
		Stdout: &schema.Stream{Bytes: 3000000, Captured: 3000000},
		Stderr: &schema.Stream{Bytes: 3000003, Captured: 3000003},
	}
	if d := cmp.Diff(want, readReport(t, dir).Stdio); d != "" {
		t.Error(d)
	}
}

func TestCaptureCap(t *testing.T) {
	for _, c := range []struct {
		name, cap, out string
		kept           int64
		truncated      bool
	}{
		{"one byte less than the cap", "6", "hello", 5, false},
		{"exactly the cap", "5", "hello", 5, false},
		{"one byte more than the cap", "4", "hello", 4, true},
		{"a cap of zero keeps nothing", "0", "hello", 0, true},
		{"a cap of zero and no output", "0", "", 0, false},
	} {
		for _, to := range []string{"pipe", "file"} {
			t.Run(c.name+" to a "+to, func(t *testing.T) {
				cmd, dir := runner(t, []string{"STDIO_TEST_CAP=" + c.cap}, "printf", c.out)
				var out bytes.Buffer
				if to == "pipe" {
					cmd.Stdout = &out
				} else {
					f, err := os.Create(filepath.Join(t.TempDir(), "out"))
					if err != nil {
						t.Fatal(err)
					}
					defer f.Close()
					cmd.Stdout = f
				}
				if err := cmd.Run(); err != nil {
					t.Fatal(err)
				}
				if f, ok := cmd.Stdout.(*os.File); ok {
					f.Seek(0, io.SeekStart)
					io.Copy(&out, f)
				}
				if out.String() != c.out {
					t.Errorf("out: %q", out.String())
				}
				r := readReport(t, dir)
				want := &schema.Stream{Bytes: int64(len(c.out)), Captured: c.kept, Truncated: c.truncated}
				if d := cmp.Diff(want, r.Stdio.Stdout); d != "" {
					t.Error(d)
				}
				if at, told := r.Truncated[Stdout]; told != c.truncated || at != c.kept && told {
					t.Errorf("OnTruncate: %v %v", at, told)
				}
				_, err := os.Stat(filepath.Join(dir, schema.StdoutPath))
				if (err == nil) != (c.kept > 0) {
					t.Errorf("member: %v", err)
				}
			})
		}
	}
}

// The child must learn of a reader that left as it would without us: yes by
// SIGPIPE, and a child that ignores it by EPIPE.
func TestReaderLeaves(t *testing.T) {
	dir := t.TempDir()
	out, err := runShell(t, dir, `"$R" yes | head -1; echo "${PIPESTATUS[@]}"`)
	if err != nil || out != "y\n141 0\n" {
		t.Errorf("%q %v", out, err)
	}
	out, err = runShell(t, t.TempDir(), `"$R" bash -c 'trap "" PIPE; sleep 0.2; for i in 1 2 3; do echo x 2>/dev/null || exit 9; done' | true; echo "${PIPESTATUS[@]}"`)
	if err != nil || out != "9 0\n" {
		t.Errorf("%q %v", out, err)
	}
}

// The very first write after the reader has left must fail already.
func TestReaderLeavesWhileTheChildIsQuiet(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd, _ := runner(t, nil, "bash", "-c", `read; trap "" PIPE; echo x || exit 9`)
	cmd.Stdout = w
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close()
	// No event tells from outside that the runner has noticed; its poll returns
	// within microseconds of the close.
	time.Sleep(200 * time.Millisecond)
	io.WriteString(stdin, "go\n")
	stdin.Close()
	if code := exitCode(cmd.Wait()); code != 9 {
		t.Errorf("exit code %d, want 9", code)
	}
}

func TestGrandchildHoldsThePipe(t *testing.T) {
	cmd, dir := runner(t, nil, "sh", "-c", `sleep 1000 & echo $! >&2; echo out`)
	var errs bytes.Buffer
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	ef, err := os.Create(filepath.Join(dir, "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer ef.Close()
	cmd.Stdout, cmd.Stderr = w, ef
	within(t, 10*time.Second, "a run whose grandchild holds stdout", func() { err = cmd.Run() })
	w.Close()
	if err != nil {
		t.Error(err)
	}
	ef.Seek(0, io.SeekStart)
	io.Copy(&errs, ef)
	var pid int
	fmt.Sscan(errs.String(), &pid)
	defer syscall.Kill(pid, syscall.SIGKILL)
	if got, _ := io.ReadAll(out); string(got) != "out\n" {
		t.Errorf("%q", got)
	}
	if syscall.Kill(pid, 0) != nil {
		t.Error("the grandchild was gone: the test tests nothing")
	}
}

// A grandchild that writes without end must not keep Finish busy for ever.
func TestGrandchildWritesForever(t *testing.T) {
	dir := t.TempDir()
	within(t, 10*time.Second, "a run whose grandchild writes for ever", func() {
		out, err := runShell(t, dir, `"$R" sh -c 'yes & sleep 0.2; echo $! >&2' 2>$D/pid | wc -c >$D/n; cat $D/pid`)
		if err != nil {
			t.Error(err)
		}
		var pid int
		fmt.Sscan(out, &pid)
		if pid > 0 {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
}

// A stopped reader stops the child, after at most the pipes in between, and
// loses nothing, even if the child is long gone when it comes back.
func TestSlowReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd, dir := runner(t, nil, "dd", "if=/dev/zero", "bs=4096", "count=100", "status=none")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	// Read nothing until the copy stands still: the child is blocked.
	var size, last int64 = 0, -1
	for size != last {
		last = size
		time.Sleep(200 * time.Millisecond)
		if st, err := os.Stat(filepath.Join(dir, schema.StdoutPath)); err == nil {
			size = st.Size()
		}
	}
	if size > 2*64<<10+chunk || size < 64<<10 {
		t.Errorf("the child ran %d bytes ahead", size)
	}
	n, err := io.Copy(io.Discard, r)
	if err != nil || n != 409600 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestChildIsGoneBeforeItsReaderReads(t *testing.T) {
	// 100 kB fit into the two pipes: the child exits at once.
	out, err := runShell(t, t.TempDir(), `"$R" head -c 100000 /dev/zero | (sleep 1; wc -c)`)
	if err != nil || strings.TrimSpace(out) != "100000" {
		t.Errorf("%q %v", out, err)
	}
}

// The grace ends the waiting for a reader that never reads.
func TestReaderNeverReads(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, to := range []string{"pipe", "socket"} {
		out := w
		if to == "socket" {
			fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			out = os.NewFile(uintptr(fds[0]), "a")
			defer syscall.Close(fds[1])
		}
		cmd, _ := runner(t, []string{"STDIO_TEST_GRACE=300ms"}, "timeout", "-s", "KILL", "0.5", "yes")
		cmd.Stdout = out
		within(t, 10*time.Second, "a run whose reader never reads", func() {
			if code := exitCode(cmd.Run()); code != 137 {
				t.Errorf("exit code %d", code)
			}
		})
		out.Close()
	}
}

func TestStdinIsNotConsumed(t *testing.T) {
	const lines = "one\ntwo\nthree\n"
	for _, from := range []string{`printf 'one\ntwo\nthree\n' |`, `cat $D/in |`, ``} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "in"), []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
		script := from + ` { "$R" bash -c 'read l; echo "child $l"'; while read l; do echo "next $l"; done; }`
		if from == "" {
			script += ` <$D/in`
		}
		out, err := runShell(t, dir, script)
		if want := "child one\nnext two\nnext three\n"; err != nil || out != want {
			t.Errorf("%s: %q %v", from, out, err)
		}
	}
}

func TestStdinEnds(t *testing.T) {
	out, err := runShell(t, t.TempDir(), `head -c 10000000 /dev/zero | "$R" wc -c; "$R" cat </dev/null; "$R" sh -c 'cat; echo closed' <&-`)
	if err != nil || strings.TrimSpace(out) != "10000000\nclosed" {
		t.Errorf("%q %v", out, err)
	}
}

func TestSameFileKeepsOrder(t *testing.T) {
	const script = `"$R" sh -c 'for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done'`
	var want strings.Builder
	for i := 1; i <= 9; i++ {
		fmt.Fprintf(&want, "out%d\nerr%d\n", i, i)
	}
	for _, to := range []string{` 2>&1 | cat`, ` >$D/out 2>&1; cat $D/out`, ` >>$D/out 2>&1; cat $D/out`} {
		dir := t.TempDir()
		out, err := runShell(t, dir, script+to)
		if err != nil || out != want.String() {
			t.Errorf("%s: %q %v", to, out, err)
		}
		if got := string(member(t, dir, schema.StdoutPath)); got != want.String() {
			t.Errorf("%s: copy %q", to, got)
		}
		n := int64(want.Len())
		wantIO := schema.Stdio{Mode: ModePipe, Stdout: &schema.Stream{Bytes: n, Captured: n}, StderrInStdout: true}
		if d := cmp.Diff(wantIO, readReport(t, dir).Stdio); d != "" {
			t.Error(d)
		}
	}
	// Two open file descriptions of one file have an offset each: no merging.
	dir := t.TempDir()
	if _, err := runShell(t, dir, script+` >$D/out 2>$D/out`); err != nil {
		t.Fatal(err)
	}
	if r := readReport(t, dir).Stdio; r.StderrInStdout || r.Stderr == nil || r.Stderr.Bytes != 45 {
		t.Errorf("%+v", r)
	}
}

func TestPassthroughLeavesTheDescriptorsAlone(t *testing.T) {
	dir := t.TempDir()
	out, err := runShell(t, dir, `export STDIO_TEST_NO_CAPTURE=1; readlink /proc/self/fd/2 >&2; "$R" readlink /proc/self/fd/1 >$D/out 2>&1 </dev/null; cat $D/out; ls $D`)
	if err != nil || !strings.Contains(out, filepath.Join(dir, "out")) {
		t.Errorf("%q %v", out, err)
	}
	if d := cmp.Diff(schema.Stdio{Mode: ModePassthrough}, readReport(t, dir).Stdio); d != "" {
		t.Error(d)
	}
}

func TestFlagsOfOurStreamsStay(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	flags := func() uintptr {
		fd, _ := rawFD(w)
		f, _, _ := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
		return f
	}
	before := flags() // os.Pipe made it non-blocking, as node makes its children's pipes
	s, err := Open(Config{Stdout: w, Capture: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Finish(0)
	if after := flags(); after != before || before&syscall.O_NONBLOCK == 0 {
		t.Errorf("flags were %#x, are %#x", before, after)
	}
}

// runShell runs a bash script with $R the runner, and $D its spool.
func runShell(t testing.TB, dir, script string) (string, error) {
	t.Helper()
	cmd := exec.Command("bash", "-c", script)
	cmd.Env = append(os.Environ(), "R="+wrapper(t, dir), "D="+dir)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if errs.Len() > 0 {
		t.Logf("stderr: %s", errs.String())
	}
	return string(out), err
}
