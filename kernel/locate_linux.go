//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"

	"github.com/assay-run/assay-run/bpf"
)

// place is what the program locate tells of a descriptor's entry in the kernel's
// cache of names.
type place = bpf.AssayPlaceOf

// nameCache is where that cache is, see bpf/resolve.h. The zero value is none:
// names with ".." or links then stay as they were given, and say so.
type nameCache struct {
	at      uint64
	shift   uint32
	mounted uint32 // DCACHE_MOUNTED
}

// fresh are files whose entries are made anew for every thread, and so hang on
// the cache itself; more of them than a few that others come before.
var fresh = []string{"stat", "status", "statm", "comm", "cmdline", "environ", "auxv", "maps", "smaps", "mounts", "mountinfo", "limits", "io",
	"sched", "schedstat", "wchan", "syscall", "personality", "oom_score", "oom_adj", "cgroup", "cpuset", "numa_maps"}

// locateNames finds the cache and tells the programs. mounted is DCACHE_MOUNTED as
// the kernel's types have it, 0 when they do not.
func (s *set) locateNames(mounted uint32) error {
	prog := s.progs["locate"]
	if prog == nil {
		return errors.New("program locate is not loaded")
	}
	ask := func(path string) (p place, err error) {
		f, err := os.Open(path)
		if err != nil {
			return p, err
		}
		defer f.Close()
		p.Fd = uint32(f.Fd())
		ret, err := prog.Run(&ebpf.RunOptions{Context: &p, ContextOut: &p})
		if err == nil && ret != 0 {
			err = fmt.Errorf("%s has no entry", path)
		}
		return p, err
	}
	var seen []place
	for _, name := range fresh {
		if p, err := ask("/proc/thread-self/" + name); err == nil {
			seen = append(seen, p)
		}
	}
	c := nameCache{mounted: mounted}
	if c.mounted == 0 {
		c.mounted = 1 << 16 // where it was no member of an enum
	}
	c.at, c.shift = whereAt(seen)
	if c.shift == 0 {
		return fmt.Errorf("cannot locate the kernel's cache of names from %d entries", len(seen))
	}
	for name, v := range map[string]any{"cache_at": c.at, "cache_shift": c.shift, "mounted_bit": c.mounted} {
		if err := s.vars[name].Set(v); err != nil {
			return fmt.Errorf("set %s in the programs: %w", name, err)
		}
	}
	return nil
}

// whereAt tells where a hash table of the kernel's is by entries that hang on it: an
// entry with hash h hangs at + 8 * (h >> shift). Most of them must agree, on one
// shift alone.
func whereAt(entries []place) (at uint64, shift uint32) {
	most := len(entries) / 2
	for s := uint32(6); s < 32; s++ {
		votes := map[uint64]int{}
		for _, e := range entries {
			if e.HangsOn != 0 {
				votes[e.HangsOn-8*uint64(e.Hash>>s)]++
			}
		}
		for a, n := range votes {
			if n > most && n >= 4 {
				at, shift, most = a, s, n
			}
		}
	}
	return at, shift
}
