//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Whoever is root can pin a set that is whole in itself and says so.
func TestForgedSetIsFound(t *testing.T) {
	p := myPlace(t)
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
		{"another table of io_uring's operations", "its constant uring_ops is not this build's", func(spec *ebpf.CollectionSpec) {
			spec.Variables["uring_ops"].Value[2*28]++
		}, nil},
		{"a map that the programs do not use", "uses other maps", nil, func(s *set) {
			m := s.maps["members"]
			s.maps["members"] = must(ebpf.NewMap(&ebpf.MapSpec{Type: m.Type(), KeySize: m.KeySize(), ValueSize: m.ValueSize(), MaxEntries: m.MaxEntries(), Flags: m.Flags()}))
			m.Close()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			home, err := lockMade(p.lock(), unix.LOCK_SH)
			if err != nil {
				t.Fatal(err)
			}
			defer home.Close()
			forged := must(newSet(maxSeats))
			types, err := readKernelTypes()
			if err != nil {
				t.Fatal(err)
			}
			defer types.close()
			spec := must(forged.embedded(types))
			if c.forge != nil {
				c.forge(spec)
			}
			if err := errors.Join(forged.makeMaps(spec), forged.createFrom(spec)); err != nil {
				t.Fatal(err)
			}
			_ = forged.locateNames(0)
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
			if !s.report.Shared {
				t.Fatal(s.report.Alone)
			}
			if got := s.o.loaded.suspect.plain(); got != (c.says == "") {
				t.Errorf("plain says %v", got)
			}
			i := slices.IndexFunc(s.report.Reasons, func(r Reason) bool { return r.Code == CodeTampered })
			if c.says == "" && len(s.report.Reasons) == 0 {
				return
			}
			if i < 0 || c.says == "" || !strings.Contains(s.report.Reasons[i].Message, c.says) {
				t.Errorf("%+v", s.report.Reasons)
			}
			s.o.Close()
			Sweep()
		})
	}
}
