package main

import (
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

func init() { roles["load-programs"] = loadPrograms }

// limits are the least that rows can come to. Of opens: an observer of system calls
// needs a program at their exits, and where each event is another, a record of it in a
// ring. recordSize is what an open takes there; a runner only frees it. Of the first run on
// a host: the kernel checks the programs, on as many CPUs as load them.
func limits(b *bench, self, one string) []single {
	over := func(records bool, args ...string) func() float64 {
		return func() float64 { return b.limit(records, args...) }
	}
	return []single{
		{"300,000 opens of one file, an empty program at each call's exit, over bare", "%", noFloor, over(false, self, "open-one", one, "300000")},
		{"300,000 opens of distinct files, an empty program at each call's exit, over bare", "%", noFloor, over(false, self, "open-distinct", b.files, "300000")},
		{"300,000 opens of distinct files, that and an empty record of each, over bare", "%", noFloor, over(true, self, "open-distinct", b.files, "300000")},
		{"what the kernel alone takes to load and free the observer, on two CPUs, over what bwrap adds", "times", noFloor, func() float64 { return b.loading(self) }},
	}
}

const recordSize = 240

// limit is the median of how much more of a CPU a command takes while the program is
// attached, in percent.
func (b *bench) limit(records bool, args ...string) float64 {
	program, ring := minimal(records)
	defer program.Close()
	defer ring.Close()
	cpu := func() float64 {
		cmd := exec.Command(args[0], args[1:]...)
		b.time(cmd)
		return float64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime())
	}
	var over []float64
	for range b.rounds(11) {
		without := cpu()
		end := attached(program, ring)
		over = append(over, 100*(cpu()/without-1))
		end()
	}
	return median(over)
}

// minimal is a program for the exits of system calls that does nothing, or puts a record
// of zeros into the ring for each openat.
func minimal(records bool) (*ebpf.Program, *ebpf.Map) {
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 4 << 20})
	check(err)
	code := asm.Instructions{}
	if records {
		zeros, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: recordSize, MaxEntries: 1})
		check(err)
		defer zeros.Close() // the program keeps it
		code = asm.Instructions{
			asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), // struct pt_regs
			asm.LoadMem(asm.R6, asm.R6, callNumber(), asm.Word),
			asm.JNE.Imm(asm.R6, unix.SYS_OPENAT, "end"),
			asm.LoadMapPtr(asm.R1, ring.FD()),
			asm.LoadMapValue(asm.R2, zeros.FD(), 0),
			asm.Mov.Imm(asm.R3, recordSize),
			asm.Mov.Imm(asm.R4, unix.BPF_RB_NO_WAKEUP),
			asm.FnRingbufOutput.Call(),
		}
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "minimal", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sys_exit", License: "Dual BSD/GPL",
		Instructions: append(code, asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return()),
	})
	check(err)
	return program, ring
}

// callNumber is where struct pt_regs has the number of the system call.
func callNumber() int16 {
	types, err := btf.LoadKernelSpec()
	check(err)
	var regs *btf.Struct
	check(types.TypeByName("pt_regs", &regs))
	i := slices.IndexFunc(regs.Members, func(m btf.Member) bool { return m.Name == "orig_ax" || m.Name == "syscallno" })
	return int16(regs.Members[i].Offset.Bytes())
}

// attached attaches the program, and frees what comes into its ring, until end.
func attached(program *ebpf.Program, ring *ebpf.Map) (end func()) {
	at, err := link.AttachTracing(link.TracingOptions{Program: program})
	check(err)
	page := unix.Getpagesize()
	own, err := unix.Mmap(ring.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(err)
	shared, err := unix.Mmap(ring.FD(), int64(page), page, unix.PROT_READ, unix.MAP_SHARED)
	check(err)
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				atomic.StoreUint64((*uint64)(unsafe.Pointer(&own[0])), atomic.LoadUint64((*uint64)(unsafe.Pointer(&shared[0]))))
			}
		}
	})
	return func() {
		check(at.Close())
		close(done)
		reader.Wait()
		check(unix.Munmap(own))
		check(unix.Munmap(shared))
	}
}

// loading is half the CPU time that the kernel takes for the observer, as a multiple of what
// bwrap adds to a command.
func (b *bench) loading(self string) float64 {
	var half, nothing, sandbox []time.Duration
	for range b.rounds(31) {
		nothing = append(nothing, b.time(bare("/bin/true")()))
		sandbox = append(sandbox, b.time(bare(bwrap...)()))
		out, err := exec.Command(self, "load-programs").Output()
		check(err)
		took, err := time.ParseDuration(string(out))
		check(err)
		half = append(half, took/2)
	}
	return float64(median(half)) / float64(median(sandbox)-median(nothing))
}

// loadPrograms loads the observer's programs and maps as a run does and frees them, and
// prints how much CPU time the kernel took.
func loadPrograms([]string) {
	used := func() time.Duration {
		var u unix.Rusage
		check(unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Stime.Nano())
	}
	before := used()
	kernel.Preload(0)
	kernel.DiscardPreload()
	fmt.Print(used() - before)
}
