//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Whoever is root can pin a set that is whole in itself. The list of observers says so.
func TestForgedSetIsFound(t *testing.T) {
	withoutKeptObserver(t)
	p := myPinDir(t)
	for _, c := range []struct {
		name, says string
		forge      func(spec *ebpf.CollectionSpec)
		after      func(s *set)
	}{
		{"nothing", "", nil, nil},
		{"an instruction more", "its program settled is not this build's", func(spec *ebpf.CollectionSpec) {
			first := &spec.Programs["settled"].Instructions[0]
			more := asm.Mov.Imm(asm.R0, 0)
			more.Metadata, first.Metadata = first.Metadata, asm.Metadata{}
			spec.Programs["settled"].Instructions = slices.Insert(spec.Programs["settled"].Instructions, 0, more)
		}, nil},
		{"another table of io_uring's operations", "its constant uring_ops is not this build's",
			func(spec *ebpf.CollectionSpec) {
				spec.Variables["uring_ops"].Value[2*28]++
			}, nil},
		{"a map that the programs do not use", "uses other maps", nil, func(s *set) {
			m := s.maps["members"]
			s.maps["members"] = must(ebpf.NewMap(&ebpf.MapSpec{Type: m.Type(), KeySize: m.KeySize(),
				ValueSize: m.ValueSize(), MaxEntries: m.MaxEntries(), Flags: m.Flags()}))
			m.Close()
		}},
	} {
		if testing.Short() && c.name != "nothing" && c.forge == nil {
			continue // what is compared does not depend on the kernel
		}
		t.Run(c.name, func(t *testing.T) {
			home, err := lockMade(p.lock(), unix.LOCK_SH)
			if err != nil {
				t.Fatal(err)
			}
			defer home.Close()
			forged := must(newSet(maxSlots))
			cache := btf.NewCache()
			spec := must(forged.embedded(typesOf(cache)))
			if c.forge != nil {
				c.forge(spec)
			}
			if err := errors.Join(forged.makeMaps(spec), forged.loadPrograms(spec, cache)); err != nil {
				t.Fatal(err)
			}
			_ = forged.locateNames(1 << 16)
			if c.after != nil {
				c.after(forged)
			}
			forged.attach()
			if err := forged.pin(p.dir()); err != nil {
				t.Fatal(err)
			}
			forged.close()
			home.Close()
			s := observe(t, Config{})
			s.run(s.command("/bin/true"))
			s.end()
			// A run takes what root pinned, and says that it did.
			if r := s.report; !r.Shared || !r.Found || len(r.Reasons) != 0 {
				t.Errorf("shared %v (%s), found %v, %+v", r.Shared, r.Alone, r.Found, r.Reasons)
			}
			list := must(HostObservers())
			i := slices.IndexFunc(list, func(o HostObserver) bool { return o.Own })
			if i < 0 {
				t.Fatal("it is not listed")
			}
			if got := list[i].Problem; c.says == "" && got != "" || !strings.Contains(got, c.says) {
				t.Errorf("the problem is %q, want %q", got, c.says)
			}
			s.o.Close()
			Sweep()
		})
	}
}

// A set whose manifest names another build, or none, is made anew.
func TestSetOfAnotherBuildIsMadeAnew(t *testing.T) {
	withoutKeptObserver(t)
	p := myPinDir(t)
	home, err := lockMade(p.lock(), unix.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	other := must(newSet(maxSlots))
	if err := other.load(ringSize(0)); err != nil {
		t.Fatal(err)
	}
	if err := other.pin(p.dir()); err != nil {
		t.Fatal(err)
	}
	said, _, err := readManifest(p.dir())
	if err != nil {
		t.Fatal(err)
	}
	said.Build = "another"
	about := must(writeManifest(said))
	pin := filepath.Join(p.dir(), "manifest")
	if err := errors.Join(os.Remove(pin), about.Pin(pin), about.Close(), other.close(), home.Close()); err != nil {
		t.Fatal(err)
	}
	s := observe(t, Config{})
	s.run(s.command("/bin/true"))
	s.end()
	if r := s.report; !r.Shared || r.Found || len(r.Reasons) != 0 {
		t.Errorf("shared %v (%s), found %v, %+v", r.Shared, r.Alone, r.Found, r.Reasons)
	}
}

// The programs for kernels before Linux 6.2 load here too.
func TestProgramsLoadWithoutTheCast(t *testing.T) {
	newCgroup(t) // skips where nothing can be loaded
	cache := btf.NewCache()
	types := typesOf(cache)
	types.castless = true
	s := must(newSet(1))
	defer s.close()
	object := must(s.embedded(types))
	if err := errors.Join(s.makeMaps(object), s.loadPrograms(object, cache)); err != nil {
		t.Fatal(err)
	}
	for name, err := range s.failed {
		if err != errNoTracepoint { // it came with Linux 6.4
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One that the kernel refuses is left out, and it says why.
func TestRefusedProgramIsLeftOut(t *testing.T) {
	newCgroup(t)
	s := must(newSet(1))
	defer s.close()
	cache := btf.NewCache()
	spec := must(s.embedded(typesOf(cache)))
	if err := s.makeMaps(spec); err != nil {
		t.Fatal(err)
	}
	spec.Programs["settled"].Instructions[0] = asm.Mov.Reg(asm.R0,
		asm.R9).WithMetadata(spec.Programs["settled"].Instructions[0].Metadata)
	all := len(spec.Programs)
	if err := s.loadPrograms(spec, cache); err != nil {
		t.Fatal(err)
	}
	if err := s.failed["settled"]; err == nil || !strings.Contains(err.Error(), "R9 !read_ok") {
		t.Errorf("settled: %v", err)
	}
	if len(s.progs) != all-1 {
		t.Errorf("%d programs of %d", len(s.progs), all)
	}
}

// What the programs' constants depend on.
func TestKernelTypes(t *testing.T) {
	types := typesOf(btf.NewCache())
	if types.spec == nil {
		t.Skip("no kernel BTF")
	}
	if n := types.tracepointArgs("sched_process_fork"); n != 2 {
		t.Errorf("sched_process_fork has %d arguments, want 2", n)
	}
	if n := types.tracepointArgs("no_such_tracepoint"); n != 0 {
		t.Errorf("a tracepoint that does not exist has %d arguments", n)
	}
}
