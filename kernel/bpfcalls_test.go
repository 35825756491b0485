//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

func init() {
	// mapmemory PIN: maps the memory of a pinned BPF array, to write to it.
	children["mapmemory"] = func(args []string) {
		m, err := ebpf.LoadPinnedMap(args[0], nil)
		check("load", err)
		_, err = mapArray(m)
		check("map", err)
	}
	// progcall COMMAND CGROUP PIN: attaches (8) a pinned program of cgroup_skb to a
	// cgroup, or detaches (9) it; "own" is one that it loads itself, "none" names none.
	children["progcall"] = func(args []string) {
		dir, err := os.Open(args[1])
		check("open", err)
		var p *ebpf.Program
		var fd int
		switch args[2] {
		case "none":
		case "own":
			p = passing()
			fd = p.FD()
		default:
			p, err = ebpf.LoadPinnedProgram(args[2], nil)
			check("load", err)
			fd = p.FD()
		}
		for _, command := range strings.Split(args[0], ",") {
			n, _ := strconv.Atoi(command)
			attr := struct {
				target, prog, kind, flags uint32
			}{uint32(dir.Fd()), uint32(fd), uint32(ebpf.AttachCGroupInetEgress), 0}
			_, _, e := unix.Syscall(unix.SYS_BPF, uintptr(n), uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
			if e != 0 {
				check("bpf "+command, e)
			}
		}
		runtime.KeepAlive(p)
	}
}

// A run that lists BPF objects, and makes and changes its own, is complete. One that
// changes somebody else's is not, also through their memory.
func TestBPFCallsOfTheRun(t *testing.T) {
	withoutKeptObserver(t)
	tool, err := exec.LookPath("bpftool")
	if err != nil {
		t.Skipf("no bpftool: %v", err)
	}
	home := filepath.Join(myPinDir(t).home, "mine")
	foreign := filepath.Join(myPinDir(t).home, "foreign")
	create := []string{"map", "create", "type", "array", "key", "4", "value", "4", "entries", "1", "name", "x", "flags",
		"1024"}
	update := func(path string) []string {
		return []string{"map", "update", "pinned", path, "key", "0", "0", "0", "0", "value", "1", "0", "0", "0"}
	}
	if out, err := exec.Command(tool, slices.Insert(slices.Clone(create), 2, foreign)...).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	program, away, theirs := filepath.Join(myPinDir(t).home, "program"), newCgroup(t), newCgroup(t)
	p := passing()
	defer p.Close()
	if err := p.Pin(program); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(dir.Fd()), Program: p,
		Attach: ebpf.AttachCGroupInetEgress}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(foreign); os.Remove(home); os.Remove(program) })
	for _, c := range []struct {
		name  string
		calls func(s *session) [][]string
		whole bool
	}{
		{"lists", func(*session) [][]string { return [][]string{{"prog", "list"}, {"link", "list"}} }, true},
		{"its own map", func(*session) [][]string {
			return [][]string{slices.Insert(slices.Clone(create), 2, home), update(home)}
		}, true},
		{"somebody else's map", func(*session) [][]string { return [][]string{update(foreign)} }, false},
		{"somebody else's memory", func(*session) [][]string { return [][]string{{"memory", foreign}} }, false},
		{"somebody else's program, attached", func(*session) [][]string {
			return [][]string{{"progcall", "8", away, program}}
		}, false},
		{"its own program, attached and detached", func(*session) [][]string {
			return [][]string{{"progcall", "8,9", away, "own"}}
		}, true},
		{"a program that is not named, detached", func(*session) [][]string {
			return [][]string{{"progcall", "9", theirs, "none"}}
		}, false},
		{"the observer's map", func(s *session) [][]string {
			return [][]string{{"map", "update", "id", strconv.Itoa(int(s.o.loaded.made.Maps["numbers"])),
				"key", "255", "255", "255", "255", "255", "255", "255", "255", "value", "1", "0", "0", "0"}}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := observe(t, Config{})
			if r := s.o.Report(); !r.Shared {
				t.Fatal(r.Alone)
			}
			for _, args := range c.calls(s) {
				if args[0] == "progcall" {
					s.run(s.child("progcall", args[1:]...))
					continue
				}
				if args[0] == "memory" {
					s.run(s.child("mapmemory", args[1]))
					continue
				}
				s.run(s.command(tool, args...))
			}
			s.end()
			s.o.Close()
			changed := slices.ContainsFunc(s.report.Reasons, func(r Reason) bool { return r.Code == CodeBPF })
			if changed == c.whole || c.whole && len(s.report.Reasons) != 0 {
				t.Errorf("%+v", s.report.Reasons)
				for _, e := range s.find(schema.KindBPF, nil) {
					t.Logf("command %d, errno %d: %+v", e.Arg(0), e.Errno, e.BPF)
				}
			}
		})
	}
}

// passing is a program for a cgroup's packets that lets all pass.
func passing() *ebpf.Program {
	return must(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupSKB, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}}))
}
