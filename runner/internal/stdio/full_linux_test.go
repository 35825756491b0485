package stdio

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// smallDisk mounts a tmpfs of 64 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("cannot mount a tmpfs (needs CAP_SYS_ADMIN): ", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, 0) })
	return dir
}

// A full spool costs the copy, never a byte of the stream.
func TestSpoolIsFull(t *testing.T) {
	disk := smallDisk(t)
	var out bytes.Buffer
	cmd, dir := runner(t, nil, "sh", "-c", "head -c 1000000 /dev/zero; exit 3")
	if err := os.Symlink(disk, filepath.Join(dir, "stdio")); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = &out
	if code := exitCode(cmd.Run()); code != 3 || out.Len() != 1000000 {
		t.Errorf("exit code %d, %d bytes", code, out.Len())
	}
	r := readReport(t, dir)
	kept := int64(len(member(t, dir, schema.StdoutPath)))
	if s := r.Stdio.Stdout; s.Bytes != 1000000 || s.Captured != kept || kept == 0 || kept > 64<<10 || !s.Truncated {
		t.Errorf("%d bytes kept, %+v", kept, s)
	}
	if len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "capture failed: stdio/stdout") ||
		!strings.Contains(r.Errors[0], "no space left") || len(r.Truncated) != 0 {
		t.Errorf("%q %v", r.Errors, r.Truncated)
	}
}

func TestSpoolIsFullUnderATerminal(t *testing.T) {
	disk := smallDisk(t)
	cmd, dir := runner(t, nil, "sh", "-c", "seq 50000; exit 3")
	if err := os.Symlink(disk, filepath.Join(dir, "stdio")); err != nil {
		t.Fatal(err)
	}
	o := start(t, cmd, dir)
	if code := o.wait(); code != 3 || !strings.HasSuffix(o.output(), "49999\r\n50000\r\n") {
		t.Errorf("exit code %d", code)
	}
	r := readReport(t, dir)
	if s := r.Stdio.Terminal; !s.Truncated || s.Captured == 0 || s.Captured >= s.Bytes || len(r.Errors) != 1 {
		t.Errorf("%+v %q", s, r.Errors)
	}
}

// The child sees a closed pipe in place of ENOSPC, and the run gets the real error.
func TestOutputIsFull(t *testing.T) {
	for _, what := range []string{"file", "device"} {
		path := "/dev/full"
		if what == "file" {
			path = filepath.Join(smallDisk(t), "out")
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		cmd, dir := runner(t, nil, "yes")
		cmd.Stdout = f
		if code := exitCode(cmd.Run()); code != 141 {
			t.Errorf("%s: exit code %d", what, code)
		}
		f.Close()
		if r := readReport(t, dir); len(r.Errors) != 1 ||
			!strings.Contains(r.Errors[0], "output failed: write stdout: no space left") {
			t.Errorf("%s: %q", what, r.Errors)
		}
	}
}

// BenchmarkThroughput pairs 1 GB through us with 1 GB through one bare pipe.
func BenchmarkThroughput(b *testing.B) {
	const size = 1 << 30
	for _, c := range []struct{ name, script string }{
		{"bare", `head -c 1073741824 /dev/zero | cat >/dev/null`},
		{"captured", `"$R" head -c 1073741824 /dev/zero | cat >/dev/null`},
		{"uncaptured", `STDIO_TEST_CAP=0 "$R" head -c 1073741824 /dev/zero | cat >/dev/null`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				dir := b.TempDir()
				cmd := exec.Command("bash", "-c", c.script)
				cmd.Env = append(os.Environ(), "R="+wrapper(b, dir))
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v %s", err, out)
				}
			}
		})
	}
}
