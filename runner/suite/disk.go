//go:build linux

package suite

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// defaultDisk is how much an attempt may add to its directory by default, in bytes.
	defaultDisk = 10 << 30
	// lowDisk is how much the disk must keep free for the recorders, in bytes. With less, the attempts that filled it
	// are ended.
	lowDisk = 256 << 20
	// diskTick is the time between two looks at the free space. A walk through an attempt's files, which is only made
	// when the disk has lost as much as the attempt may use, comes at most every diskWalk.
	diskTick, diskWalk = 100 * time.Millisecond, time.Second
)

// diskUse is what the tries of one worker use of its disk. Its zero value is ready. It is safe for concurrent use.
type diskUse struct {
	mu    sync.Mutex
	tries map[*diskWatch]bool
}

// diskWatch ends a run that uses more of the disk than it may, or that filled it.
type diskWatch struct {
	dir      string // of the try
	run      string // id of its run, which is in the names of the run's cgroups
	recorder int    // pid of the run's assay-run
	limit    int64  // bytes that it may add
	before   int64  // bytes that its files had
	free     uint64 // bytes that the disk had
	alone    bool   // no other try of this worker ran beside it
	hidden   bool   // it could not look into a process that may have deleted files open, when that mattered
	walked   time.Time
	found    chan string
}

// watch looks at the disk until stop is called, which returns what the try did to the disk, and whether it may have
// used more than was seen. It calls end once when the try must end. run is the id of the try's run, and recorder the
// pid of its assay-run.
func (d *diskUse) watch(dir, run string, recorder int, limit int64,
	end func()) (stop func() (why string, hidden bool)) {
	w := &diskWatch{dir: dir, run: run, recorder: recorder, limit: limit, before: usedBytes(dir),
		free: freeBytes(dir), alone: true, found: make(chan string, 1)}
	d.mu.Lock()
	if d.tries == nil {
		d.tries = map[*diskWatch]bool{}
	}
	for other := range d.tries {
		w.alone, other.alone = false, false
	}
	d.tries[w] = true
	d.mu.Unlock()
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(diskTick)
		defer tick.Stop()
		for {
			select {
			case <-over:
				w.found <- d.look(w, true)
				return
			case <-tick.C:
			}
			if why := d.look(w, false); why != "" {
				end()
				<-over
				w.found <- why
				return
			}
		}
	}()
	return func() (string, bool) {
		close(over)
		why := <-w.found
		d.mu.Lock()
		delete(d.tries, w)
		d.mu.Unlock()
		return why, w.hidden
	}
}

// look says what the try did to the disk; empty for nothing. It walks through the files at once if last is true.
func (d *diskUse) look(w *diskWatch, last bool) string {
	free := freeBytes(w.dir)
	lost := int64(w.free) - int64(free)
	low := free < lowDisk && lost > lowDisk
	if lost <= w.limit && !low || !last && !low && time.Since(w.walked) < diskWalk {
		return ""
	}
	deleted, hidden := deletedBytes(w.dir, w.run, w.recorder)
	used := usedBytes(w.dir) + deleted - w.before
	w.walked, w.hidden = time.Now(), w.hidden || hidden
	if used > w.limit {
		return fmt.Sprintf("the attempt used %s of disk, more than its limit of %s", size(used), size(w.limit))
	}
	if !low {
		return ""
	}
	d.mu.Lock()
	alone := w.alone
	d.mu.Unlock()
	switch {
	case used > lost/2:
		return fmt.Sprintf("the attempt filled the disk: it used %s, and %s are left", size(used), size(int64(free)))
	case alone:
		return fmt.Sprintf("the disk lost %s while only this attempt ran, and has %s left", size(lost),
			size(int64(free)))
	}
	return ""
}

func size(n int64) string {
	if n > -1<<30 && n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// deletedBytes is what deleted files take on the disk of a directory that processes of a run hold open: those in the
// run's cgroups, and those that descend from its recorder. hidden means that it could not look into one of them.
func deletedBytes(dir, run string, recorder int) (n int64, hidden bool) {
	var at syscall.Stat_t
	if syscall.Stat(dir, &at) != nil {
		return 0, true
	}
	seen := map[uint64]bool{}
	for _, process := range processesOf(run, recorder) {
		files, err := os.ReadDir(filepath.Join(process, "fd"))
		hidden = hidden || errors.Is(err, fs.ErrPermission)
		for _, f := range files {
			var st syscall.Stat_t
			if syscall.Stat(filepath.Join(process, "fd", f.Name()), &st) == nil && st.Nlink == 0 && st.Dev == at.Dev &&
				!seen[st.Ino] {
				seen[st.Ino] = true
				n += st.Blocks * 512
			}
		}
	}
	return n, hidden
}

// processesOf returns the directories below /proc of a run's processes, without the recorder's.
func processesOf(run string, recorder int) (of []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	parents := map[string]string{}
	for _, dir := range all {
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		if fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(fields) > 1 { // proc(5): state, parent
			parents[filepath.Base(dir)] = string(fields[1])
		}
	}
	first := strconv.Itoa(recorder)
	for _, dir := range all {
		pid := filepath.Base(dir)
		at := parents[pid]
		for n := 0; at != "" && at != first && n < len(parents); n++ {
			at = parents[at]
		}
		group, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		if pid != first && (at == first || bytes.Contains(group, []byte(run))) {
			of = append(of, dir)
		}
	}
	return of
}

// usedBytes is what the files below a directory take on the disk. It leaves out what it cannot read.
func usedBytes(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				n += st.Blocks * 512
			}
		}
		return nil
	})
	return n
}
