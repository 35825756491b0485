//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	// nice prints its nice value.
	children["nice"] = func([]string) {
		own, err := unix.SchedGetAttr(0, 0)
		check("sched_getattr", err)
		fmt.Print(own.Nice)
	}
}

// threadsOf counts this process's threads by their nice values.
func threadsOf(t *testing.T) map[int32]int {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	count := map[int32]int{}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		if is, err := unix.SchedGetAttr(tid, 0); err == nil { // else it has ended
			count[is.Nice]++
		}
	}
	return count
}

// While there is much to read, the recorder's threads are more urgent than others: the one that reads most of all.
// What they start is not, and in the end they are as before.
func TestReadingIsUrgent(t *testing.T) {
	own, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if own.Nice != 0 { // as under nice(1)
		renice(own.Nice, 0)
		t.Cleanup(func() { renice(0, own.Nice) })
	}
	dir := t.TempDir()
	const files = 2 * muchRead
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := observe(t, Config{})
	for deadline := time.Now().Add(2 * time.Minute); ; {
		s.run(s.child("distinct", dir, strconv.Itoa(files)))
		if n := threadsOf(t); n[readerNice] > 0 && n[othersNice] > 0 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("threads by nice value: %v", n)
		}
	}
	for range 20 { // from any thread
		out, err := s.child("nice").Output()
		if nice, nerr := strconv.Atoi(string(out)); err != nil || nerr != nil || nice < 0 {
			t.Fatalf("a process that was started meanwhile has the nice value %s (%v)", out, err)
		}
	}
	s.end()
	if n := threadsOf(t); n[readerNice]+n[othersNice] != 0 {
		t.Errorf("threads by nice value at the end: %v", n)
	}
}
