package enginetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shortDir is a directory with a name short enough for sockets in it. When the test ends,
// the engine's mounts in it are removed.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mounts, _ := os.ReadFile("/proc/self/mounts")
		lines := strings.Split(strings.TrimSpace(string(mounts)), "\n")
		for i := len(lines) - 1; i >= 0; i-- {
			if f := strings.Fields(lines[i]); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
				exec.Command("umount", "--lazy", f[1]).Run()
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove what the engine left: %v", err)
		}
	})
	return dir
}

// removeGroups removes the directories that the engine left on every hierarchy. It waits
// for the processes that supervised the containers.
func removeGroups(name string) {
	for range 100 {
		left := 0
		for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
			dirs, _ := filepath.Glob(pattern)
			for _, dir := range dirs {
				os.Remove(filepath.Join(dir, "conmon"))
				if os.Remove(dir) != nil {
					left++
				}
			}
		}
		if left == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
