package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/kernel/notify"
	"github.com/assay-run/assay-run/schema"
)

// A file system of the run that does not answer holds up only those who asked it: not
// the listener, for which all processes of the run wait, and its server with them.
func TestNotifyFileSystemThatHangs(t *testing.T) {
	if err := notify.Probe(); err != nil {
		t.Skip(err)
	}
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skip(err)
	} else {
		f.Close()
	}
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("mounting a FUSE file system needs CAP_SYS_ADMIN: %s", out)
	}
	need(t, "/usr/bin/python3")
	script, err := filepath.Abs("testdata/fuse.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		seen func(e *schema.KernelEvent, mount string) bool
	}{
		{"program", func(e *schema.KernelEvent, mount string) bool {
			return e.Kind == schema.KindExec && e.Value == mount+"/f"
		}},
		{"argument", func(e *schema.KernelEvent, _ string) bool {
			return e.Kind == schema.KindOpen && e.Marks&schema.MarkUnreadable != 0
		}},
		{"root", func(e *schema.KernelEvent, mount string) bool { // opened after the call that changed the root
			return e.Kind == schema.KindOpen && e.Value == mount+"/jail/f"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			mount := filepath.Join(dir, "mount")
			if err := os.Mkdir(mount, 0o755); err != nil {
				t.Fatal(err)
			}
			out, err := self(t, dir, "-q", "--timeout", "2m", "-o", "run.tar.gz", "--run-id", uniqueID(), "--kernel",
				"notify", "--",
				"/usr/bin/python3", script, mount, c.name).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "went on") {
				t.Fatalf("%v\n%s", err, out)
			}
			b, err := archive.Open(filepath.Join(dir, "run.tar.gz"))
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			kernelEvents(t, b, func(e *schema.KernelEvent) {
				if c.seen(e, mount) {
					n++
				}
			})
			if want := map[string]int{"program": 1, "argument": 2, "root": 1}[c.name]; n != want {
				t.Errorf("%d events, want %d", n, want)
			}
		})
	}
}
