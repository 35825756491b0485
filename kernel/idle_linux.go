//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// With the first program that is attached to a cgroup, for each way of attaching, the
// kernel rewrites the code of its sockets on all CPUs, and again with the last that goes
// (cgroup_bpf_enabled_key in include/linux/bpf-cgroup.h). That is most of what a session's
// programs cost at its start and end. So an observer that is to stay keeps some attached to
// a cgroup without processes. Nothing depends on it: where that cgroup cannot be made, or is
// removed, the sessions pay.

// idlePrograms are those. Sockets outside every session pay for it: 10 ns for a packet, and
// some 50 ns for a bind, before which the kernel prepares what a program would see. The same
// for each connect and sendmsg would be too much.
var idlePrograms = []string{"skb_in", "skb_out", "bind4", "bind6"}

// idleCgroup is that cgroup, at the root of what this process sees of cgroup2; empty
// without cgroup2.
func (p site) idleCgroup() string {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if unix.Statfs(root, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			return filepath.Join(root, "assay-run-observer-"+p.name)
		}
	}
	return ""
}

// keepAttached attaches the set's programs to the idle cgroup, and pins the links in dir.
func (s *set) keepAttached(cgroup, dir string) error {
	if err := os.Mkdir(cgroup, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	target, err := os.Open(cgroup)
	if err != nil {
		return err
	}
	defer target.Close()
	for _, name := range idlePrograms {
		p := s.progs[name]
		if p == nil {
			continue
		}
		ln, err := link.AttachRawLink(link.RawLinkOptions{Target: int(target.Fd()), Program: p, Attach: cgroupPrograms[name]})
		if err != nil {
			return fmt.Errorf("attach program %s: %w", name, err)
		}
		err = ln.Pin(filepath.Join(dir, pinName("idle", name)))
		if ln.Close(); err != nil {
			return err
		}
	}
	return nil
}

// removeIdle removes the cgroup, from which the kernel then detaches the programs.
func (p site) removeIdle() {
	if cgroup := p.idleCgroup(); cgroup != "" {
		_ = os.Remove(cgroup)
	}
}
