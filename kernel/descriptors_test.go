//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

func init() {
	// A child's table of descriptors is as small as what is open allows.
	children["descriptors"] = func([]string) {
		check("close", unix.CloseRange(64, 1<<20, 0))
		c := exec.Command("/proc/self/exe")
		c.Env = append(os.Environ(), "KERNEL_TEST_CHILD=descriptors-used")
		c.Stderr = os.Stderr
		check("start", c.Run())
	}
	children["descriptors-used"] = func([]string) {
		opens("low")
		for range 40 {
			open("/dev/null")
		}
		opens("high")
		_, err := unix.FcntlInt(0, unix.F_DUPFD, 200)
		check("dup", err)
		check("close", unix.CloseRange(3, 1<<20, 0))
		opens("large-table")
	}
}

// opens makes a file, opens it three times more, and once when it has no name.
func opens(name string) {
	flags := unix.O_RDWR | unix.O_CREAT | unix.O_CLOEXEC
	for range 4 {
		fd, err := unix.Open(name, flags, 0o600)
		check(name, err)
		check("close", unix.Close(fd))
	}
	fd, err := unix.Open(name, flags, 0o600)
	check(name, err)
	check("unlink", unix.Unlink(name))
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY, 0)
	check("reopen", err)
	check("close", unix.Close(again))
	check("close", unix.Close(fd))
}

// What is told of a file depends on nothing but the file, wherever the process keeps its descriptors.
func TestOpensAreToldAlikeWhateverTheirDescriptors(t *testing.T) {
	s, dir, err := observed(t, "descriptors", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[string]uint64{}
	for _, e := range s.find(schema.KindOpen, nil) {
		name, ok := strings.CutPrefix(e.Value, dir+"/")
		if !ok {
			continue
		}
		if got[name] == nil {
			got[name] = map[string]uint64{}
		}
		got[name][fmt.Sprintf("mode %o created %v deleted %v", e.FileMode, e.Created,
			e.Marks&schema.MarkDeleted != 0)] += e.Count
		if e.Inode == 0 || e.Device == 0 {
			t.Errorf("%s: inode %d of device %d", name, e.Inode, e.Device)
		}
	}
	each := map[string]uint64{
		"mode 100600 created true deleted false": 1, "mode 100600 created false deleted false": 4,
		"mode 100600 created false deleted true": 1,
	}
	if d := cmp.Diff(map[string]map[string]uint64{"low": each, "high": each, "large-table": each}, got); d != "" {
		t.Error(d)
	}
}
