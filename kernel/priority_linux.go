//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Nice values of this process's threads while there is much to read: of the one that empties the rings, and of the
// others. The first needs the others: after each wait it needs a processor of Go's scheduler, which another thread may
// hold, and a garbage collection stops it until all threads have stopped. On a busy machine a thread with the nice
// value 0 gets its turn so late that a ring is full by then.
const (
	readerNice = -20
	othersNice = -10
)

// priority gives the calling thread a better nice value, and the other threads too if there is much to read and
// theirs is 0. Processes that they start meanwhile have the nice value 0. Without CAP_SYS_NICE all threads keep
// theirs: a busy machine then loses events sooner, and the report counts them.
type priority struct {
	better bool
	was    int // the calling thread's nice value
	read   int // records since looked
	looked time.Time
}

func newPriority() *priority {
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	p := &priority{was: 20 - nice} // as the system call has it
	p.better = err == nil && unix.Setpriority(unix.PRIO_PROCESS, 0, readerNice) == nil
	return p
}

// Much to read are muchRead records. New threads are looked for each lookInterval at most.
const (
	muchRead     = 100
	lookInterval = 100 * time.Millisecond
)

// came takes note of n records.
func (p *priority) came(n int) {
	if p.read += n; p.better && p.read > muchRead && time.Since(p.looked) > lookInterval {
		renice(0, othersNice)
		p.read, p.looked = 0, time.Now()
	}
}

// close gives all threads their nice value back.
func (p *priority) close() {
	if p.better {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, p.was)
		renice(othersNice, 0)
	}
}

// renice changes the nice value of all threads that have the old one. What they start never has a negative one:
// SCHED_FLAG_RESET_ON_FORK, sched(7).
func renice(old, nice int32) {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		is, err := unix.SchedGetAttr(tid, 0)
		if err == nil && is.Policy == unix.SCHED_NORMAL && is.Nice == old {
			_ = unix.SchedSetAttr(tid, &unix.SchedAttr{Flags: unix.SCHED_FLAG_RESET_ON_FORK, Nice: nice}, 0)
		}
	}
}
