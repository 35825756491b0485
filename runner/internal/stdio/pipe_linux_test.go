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
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
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
	layertest.Night(t)
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
			want := report{Truncated: map[string]int64{stdout: 1000000}, Stdio: schema.Stdio{
				Mode:   modePipe,
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
	if !bytes.Equal(member(t, dir, schema.StdoutPath), out.Bytes()) ||
		!bytes.Equal(member(t, dir, schema.StderrPath), errs.Bytes()) {
		t.Error("the copies differ")
	}
	want := schema.Stdio{
		Mode:   modePipe,
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
				if at, told := r.Truncated[stdout]; told != c.truncated || at != c.kept && told {
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
	within(t, time.Minute, "a run whose grandchild holds stdout", func() { err = cmd.Run() })
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
	within(t, time.Minute, "a run whose grandchild writes for ever", func() {
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
