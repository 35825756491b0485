//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func init() {
	// opens PATH N: opens and closes one path N times and prints nanoseconds each.
	children["opens"] = func(args []string) {
		n, _ := strconv.Atoi(args[1])
		start := time.Now()
		for range n {
			fd, err := syscall.Open(args[0], syscall.O_RDONLY, 0)
			check(args[0], err)
			syscall.Close(fd)
		}
		fmt.Print(time.Since(start).Nanoseconds() / int64(n))
	}
	// distinct DIR N: opens and closes N different files.
	children["distinct"] = func(args []string) {
		n, _ := strconv.Atoi(args[1])
		check(args[0], os.Chdir(args[0]))
		names := make([]string, n)
		for i := range names {
			names[i] = strconv.Itoa(i)
		}
		start := time.Now()
		for _, name := range names {
			fd, err := syscall.Open(name, syscall.O_RDONLY, 0)
			check(name, err)
			syscall.Close(fd)
		}
		fmt.Print(time.Since(start).Nanoseconds() / int64(n))
	}
	// missing PREFIX N: fails to open N files, of different names of about 250 bytes.
	children["missing"] = func(args []string) {
		n, _ := strconv.Atoi(args[1])
		for i := range n {
			name := args[0] + strconv.Itoa(i) + strings.Repeat("/0123456789", 22)
			if _, err := syscall.Open(name, syscall.O_RDONLY, 0); err != syscall.ENOENT {
				check(name, err)
			}
		}
	}
	children["failing"] = func(args []string) {
		n, _ := strconv.Atoi(args[1])
		start := time.Now()
		for range n {
			syscall.Open(args[0], syscall.O_RDONLY, 0)
		}
		fmt.Print(time.Since(start).Nanoseconds() / int64(n))
	}
	children["writes"] = func(args []string) {
		n, _ := strconv.Atoi(args[1])
		fd, err := syscall.Open(args[0], syscall.O_RDWR|syscall.O_CREAT, 0o600)
		check(args[0], err)
		b := []byte("x")
		start := time.Now()
		for range n {
			syscall.Pwrite(fd, b, 0)
		}
		fmt.Print(time.Since(start).Nanoseconds() / int64(n))
	}
	children["getpid"] = func(args []string) {
		n, _ := strconv.Atoi(args[0])
		start := time.Now()
		for range n {
			syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
		}
		fmt.Print(time.Since(start).Nanoseconds() / int64(n))
	}
	children["spawn"] = func(args []string) {
		n, _ := strconv.Atoi(args[0])
		start := time.Now()
		for range n {
			check("true", exec.Command("/bin/true").Run())
		}
		fmt.Print(time.Since(start).Nanoseconds() / int64(n))
	}
}

// bench runs a child bare or in a session and returns what it printed.
func timeChild(tb testing.TB, s *session, name string, args ...string) float64 {
	tb.Helper()
	c := exec.Command("/proc/self/exe", args...)
	if s != nil {
		c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(s.dir.Fd())}
	}
	c.Env = append(os.Environ(), "KERNEL_TEST_CHILD="+name, "GOGC=off")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	v, err := strconv.ParseFloat(string(out), 64)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func median(v []float64) float64 {
	sort.Float64s(v)
	return v[len(v)/2]
}

// paired reports the median of pairs of runs, bare and observed.
func paired(b *testing.B, inside bool, name string, args ...string) {
	var bare, seen, ratio []float64
	for b.Loop() {
		x := timeChild(b, nil, name, args...)
		s := observeCounting(b)
		var y float64
		if inside {
			y = timeChild(b, s, name, args...)
		} else {
			y = timeChild(b, nil, name, args...)
		}
		s.end()
		for _, h := range s.report.Hooks {
			if h.Dropped > 0 {
				b.Errorf("%s dropped %d of %d", h.Name, h.Dropped, h.Fired)
			}
		}
		bare, seen, ratio = append(bare, x), append(seen, y), append(ratio, y/x)
	}
	b.ReportMetric(median(bare), "bare-ns")
	b.ReportMetric(median(seen), "observed-ns")
	b.ReportMetric(median(ratio), "ratio")
	b.ReportMetric(0, "ns/op")
}

func observeCounting(tb testing.TB) *session {
	return start(&session{t: tb, counting: true}, Config{})
}

func BenchmarkOpensSame(b *testing.B) {
	p := filepath.Join(b.TempDir(), "file")
	os.WriteFile(p, nil, 0o600)
	paired(b, true, "opens", p, "300000")
}

func BenchmarkOpensFailing(b *testing.B) {
	paired(b, true, "failing", filepath.Join(b.TempDir(), "nope"), "300000")
}

func BenchmarkWrites(b *testing.B) {
	paired(b, true, "writes", filepath.Join(b.TempDir(), "file"), "300000")
}

func BenchmarkOpensDistinct(b *testing.B) {
	dir := b.TempDir()
	const n = 100000
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	paired(b, true, "distinct", dir, strconv.Itoa(n))
}

func BenchmarkUnrelatedGetpid(b *testing.B) { paired(b, false, "getpid", "3000000") }

func BenchmarkSpawn(b *testing.B) { paired(b, true, "spawn", "300") }

// BenchmarkJoin is Open with the self-test where the set is in place.
func BenchmarkJoin(b *testing.B) {
	keep := observeCounting(b)
	defer keep.end()
	var open, test []float64
	for b.Loop() {
		path := newCgroup(b)
		begin := time.Now()
		o, err := Open(b.Context(), Config{CgroupPath: path, SelfTest: true})
		if err != nil {
			b.Fatal(err)
		}
		took := float64(time.Since(begin).Microseconds()) / 1000
		done := make(chan error, 1)
		go func() { done <- o.Read(func(*Event) error { return nil }, func(uint64) {}) }()
		o.Stop()
		<-done
		r := o.Report()
		o.Close()
		if !r.Shared {
			b.Fatal(r.Alone)
		}
		self := float64(r.SelfTestNS) / 1e6
		open, test = append(open, took-self), append(test, self)
	}
	b.ReportMetric(median(open), "join-ms")
	b.ReportMetric(median(test), "self-test-ms")
}

func BenchmarkOpenClose(b *testing.B) {
	var open, stop []float64
	for b.Loop() {
		path := newCgroup(b)
		start := time.Now()
		o, err := Open(b.Context(), Config{CgroupPath: path})
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- o.Read(func(*Event) error { return nil }, func(uint64) {}) }()
		opened := time.Now()
		o.Stop()
		<-done
		o.Report()
		o.Close()
		open = append(open, float64(opened.Sub(start).Microseconds())/1000)
		stop = append(stop, float64(time.Since(opened).Microseconds())/1000)
	}
	b.ReportMetric(median(open), "open-ms")
	b.ReportMetric(median(stop), "stop-close-ms")
}
