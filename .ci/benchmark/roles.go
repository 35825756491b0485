package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// roles are what this binary does when it starts itself: measure, or run a loop that makes
// one kind of system call and does little else.
var roles = map[string]func(args []string){
	"measure":       measure,
	"resident":      resident,
	"open-one":      openOne,
	"open-distinct": openDistinct,
	"getpid":        getpid,
	"open-time":     openTime,
	"flood":         flood,
	"flood-missing": floodMissing,
	"busy":          busy,
	"repeat":        repeat,
	"exit-time":     exitTime,
	"dispatch":      dispatch,
	"calls":         calls,
	"exchange":      exchange,
	"turns":         turns,
	"mcp-server":    mcpServer,
	"mcp-calls":     mcpCalls,
	"model-client":  modelClient,
	"model-proxy":   modelProxy,
	"model-turns":   modelTurns,
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	check(err)
	return n
}

func open(path []byte) {
	fd, err := syscall.Open(string(path), syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	check(err)
	check(syscall.Close(fd))
}

// openOne FILE N opens one file N times.
func openOne(args []string) {
	path := []byte(args[0])
	for range number(args[1]) {
		open(path)
	}
}

// openDistinct DIR N opens the N files of manyFiles once each.
func openDistinct(args []string) {
	buf := []byte(args[0] + "/")
	for i := range number(args[1]) {
		open(strconv.AppendInt(buf, int64(i), 10))
	}
}

// manyFiles makes n empty files in dir, named by their number.
func manyFiles(dir string, n int) {
	check(os.MkdirAll(dir, 0o755))
	for i := range n {
		check(os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o644))
	}
}

// spent is the CPU time of this process. It shows the cost of a call whatever else runs on
// the host.
func spent() time.Duration {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// getpid N calls getpid N times, and prints the nanoseconds of one call.
func getpid(args []string) {
	n := number(args[0])
	start := spent()
	for range n {
		syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
	}
	fmt.Println(float64(spent()-start) / float64(n))
}

// openTime FILE N opens one file N times, and prints the nanoseconds of one open.
func openTime(args []string) {
	path, n := []byte(args[0]), number(args[1])
	start := spent()
	for range n {
		open(path)
	}
	fmt.Println(float64(spent()-start) / float64(n))
}

// flood DIR RATE SECONDS opens the files of manyFiles(DIR, 100,000) in turn, RATE of them per
// second.
func flood(args []string) {
	rate, seconds := number(args[1]), number(args[2])
	buf := []byte(args[0] + "/")
	start := time.Now()
	for done := 0; done < rate*seconds; {
		due := int(time.Since(start).Seconds() * float64(rate))
		for ; done < min(due, rate*seconds); done++ {
			open(strconv.AppendInt(buf, int64(done%floodFiles), 10))
		}
	}
	fmt.Fprintf(os.Stderr, "flood: %d opens in %v\n", rate*seconds, time.Since(start))
}

const floodFiles = 100_000

// floodMissing DIR RATE SECONDS THREADS opens files that do not exist, RATE of them per second, from so many threads.
// No two names, of 250 bytes each, are the same. It prints how many it opened per second.
func floodMissing(args []string) {
	rate, seconds, threads := number(args[1]), number(args[2]), number(args[3])
	start := time.Now()
	var group sync.WaitGroup
	for thread := range threads {
		group.Go(func() {
			name := fmt.Appendf(nil, "%s/%s%03d%010d\x00", args[0], strings.Repeat("n", 237), thread, 0)
			digits := name[len(name)-11:]
			rate := rate / threads
			for done := 0; done < rate*seconds; {
				due := min(int(time.Since(start).Seconds()*float64(rate)), rate*seconds)
				for ; done < due; done++ {
					for i, n := 9, done; i >= 0; i, n = i-1, n/10 {
						digits[i] = '0' + byte(n%10)
					}
					_, _, _ = syscall.RawSyscall(syscall.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(&name[0])), 0)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	group.Wait()
	fmt.Println(float64(rate*seconds) / time.Since(start).Seconds())
}

// busy uses a CPU for a minute, or until it is killed.
func busy([]string) {
	for start := time.Now(); time.Since(start) < time.Minute; {
	}
}

// exitTime FILE DIR N opens the first N files of manyFiles(DIR), writes the time to FILE, and
// ends.
func exitTime(args []string) {
	openDistinct(args[1:])
	check(os.WriteFile(args[0], strconv.AppendInt(nil, time.Now().UnixNano(), 10), 0o644))
}
