package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// repeated are the calls whose cost in a run is compared with another build's: those of which each has to be looked up
// in the table of operations.
var repeated = map[string]func() error{
	"getppid": func() error { unix.Getppid(); return nil },
	"fcntl":   func() error { _, err := unix.FcntlInt(0, unix.F_GETFL, 0); return err },
	"ioctl of a terminal": func() error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(terminal), unix.TCGETS, 0)
		if errno != unix.EFAULT { // it has got as far as to the argument
			return errno
		}
		return nil
	},
	"setsockopt": func() error { return unix.SetsockoptInt(inet, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) },
	"prctl":      func() error { return unix.Prctl(unix.PR_GET_DUMPABLE, 0, 0, 0, 0) },
	"netlink": func() error {
		return unix.Sendto(netlink, question, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	},
	"a socket pair": func() error {
		if _, err := unix.Write(pair[0], question); err != nil {
			return err
		}
		_, err := unix.Read(pair[1], make([]byte, len(question)))
		return err
	},
}

// What they are about, from [repeat].
var (
	terminal, inet, netlink int
	pair                    [2]int
	// question asks for nothing: NLMSG_NOOP.
	question = []byte{16, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
)

// repeat NAME N makes a call N times and prints how many nanoseconds one took.
func repeat(args []string) {
	var err error
	terminal, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	check(err)
	inet, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	check(err)
	netlink, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	check(err)
	pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	check(err)
	call, n := repeated[args[0]], number(args[1])
	start := spent()
	for range n {
		check(call())
	}
	fmt.Println(float64(spent()-start) / float64(n))
}

// overBaseline are what is measured against another build's, if there is one: calls inside of a run, calls beside one,
// opens, spawns, and how much the kernel's verifier has to do.
func (b *bench) overBaseline(self string) (list []single) {
	if b.baseline == "" {
		return nil
	}
	const n = "1000000"
	add := func(name string, bound float64, one func(bin string) float64) {
		list = append(list, single{name + ", over the baseline", "x", bound, func() float64 {
			var ratios []float64
			for i := range b.rounds(11) {
				var was, is float64
				if i%2 == 0 {
					was, is = one(b.baseline), one(b.bin)
				} else {
					is, was = one(b.bin), one(b.baseline)
				}
				ratios = append(ratios, is/was)
			}
			return median(ratios)
		}})
	}
	inside := func(args ...string) func(string) float64 {
		return func(bin string) float64 { return b.printed(exec.Command(bin, append(b.quietly(), args...)...)) }
	}
	for _, name := range []string{"fcntl", "ioctl of a terminal", "setsockopt", "prctl"} {
		add("in a run, "+name, 1.1, inside(self, "repeat", name, n))
	}
	add("in a run, netlink", noBound, inside(self, "repeat", "netlink", "100000"))
	add("in a run, opens of one file", 1.05, inside(self, "open-time", filepath.Join(b.files, "0"), "300000"))
	add("in a run, 300 spawns", 1.05, func(bin string) float64 {
		return float64(b.time(exec.Command(bin, append(b.quietly(), "sh", "-c",
			"i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done")...)))
	})
	for name, bound := range map[string]float64{"getppid": 1.02, "a socket pair": 1.05} {
		add("beside a run, "+name, bound, func(bin string) float64 {
			defer b.beside(bin)()
			return b.printed(exec.Command(self, "repeat", name, n))
		})
	}
	add("first run, instructions verified", 1.1, func(bin string) float64 {
		last := programsAbove(0, nil)
		defer b.beside(bin)()
		var sum float64
		programsAbove(last, func(p *ebpf.Program) {
			info, err := p.Info()
			check(err)
			v, _ := info.VerifiedInstructions()
			sum += float64(v)
		})
		return sum
	})
	return list
}

// quietly are the arguments of a run before its command.
func (b *bench) quietly() []string {
	return []string{"-q", "-o", filepath.Join(b.dir, "run.tar.gz"), "--force", "--"}
}

// beside starts a run that does nothing, and returns what ends it.
func (b *bench) beside(bin string) (end func()) {
	begun := filepath.Join(b.dir, "begun")
	check(os.RemoveAll(begun))
	cmd := exec.Command(bin, append(b.quietly(), "sh", "-c", ">begun; exec sleep 1000")...)
	cmd.Dir = b.dir
	check(cmd.Start())
	for {
		if _, err := os.Stat(begun); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return func() {
		check(cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait()
	}
}

// programsAbove calls fn for each BPF program whose id is larger than that, and returns the largest id.
func programsAbove(last ebpf.ProgramID, fn func(*ebpf.Program)) ebpf.ProgramID {
	for {
		next, err := ebpf.ProgramGetNextID(last)
		if err != nil {
			return last
		}
		last = next
		if p, err := ebpf.NewProgramFromID(next); err == nil {
			if fn != nil {
				fn(p)
			}
			p.Close()
		}
	}
}
