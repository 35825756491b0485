//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A signal ends a listing early (filldir64 in fs/readdir.c), and the runtime sends many
// on a busy machine: what was listed in parts is no other directory.
func TestListingInPartsIsTheSame(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(dir, strings.Repeat(string(rune('a'+i%26)), 1+i%40)), nil,
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := unix.Gettid()
	first, err := pinsIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG) // as the runtime preempts
			}
		}
	}()
	differ := 0
	listings := 2000
	if testing.Short() {
		listings = 100
	}
	for range listings {
		if again, err := pinsIn(dir); err != nil || !slices.Equal(first, again) {
			differ++
		}
	}
	close(end)
	<-ended
	if differ > 0 {
		t.Errorf("%d of %d listings differ", differ, listings)
	}
}
