//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

func init() {
	children["write to"] = func(args []string) {
		f, err := os.OpenFile(args[0], os.O_WRONLY, 0)
		check("open", err)
		_, err = f.Write(make([]byte, 512))
		check("write", err)
	}
}

// loopDevice returns a block device whose bytes are in a file.
func loopDevice(t *testing.T) string {
	t.Helper()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no loop devices: %v", err)
	}
	defer ctl.Close()
	n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprint("/dev/loop", n)
	dev, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_FD, int(file.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
			t.Error(err)
		}
		dev.Close()
	})
	return name
}

// A block device keeps what is written to it as a file does; a terminal or a
// pipe passes it on.
func TestWritesToBlockDevices(t *testing.T) {
	dev := loopDevice(t)
	for name, want := range map[string]int{dev: 1, "/dev/null": 0} {
		s, _, err := observed(t, "write to", func(_ *session, c *exec.Cmd) { c.Args = append(c.Args, name) })
		if err != nil {
			t.Fatal(err)
		}
		got := s.find(schema.KindWrite, path(name))
		if len(got) != want || want == 1 && got[0].BytesOut != 512 {
			t.Errorf("%d writes to %s, want %d", len(got), name, want)
		}
	}
}
