//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/bpf"
)

// wakeFraction of a ring must be full before the reader is woken ahead of its poll.
const wakeFraction = 8

type (
	repeatSlot = bpf.AssaySlot
	counter    = bpf.AssayCounter
	owner      = bpf.AssayOwner
	request    = bpf.AssayRequest
	address    = bpf.AssayAddress
	endpoint   = bpf.AssayEndpoint
	traffic    = bpf.AssayTraffic
)

// loaded is what a session has in the kernel: a slot in a set, and links of the
// cgroup programs to its cgroup.
type loaded struct {
	*set
	slot   *slot
	cgroup *os.File             // the session's cgroup
	own    map[string]link.Link // to the session's cgroup, by program
	refuse map[string]error     // programs that did not attach to it, and why
	before map[string]uint64    // misses when the session began
	rd     *reader

	present    []Present // that were in the cgroup already
	usedBefore bool      // by processes of the time before, in a foreign cgroup

	lease *lease // of a set that runs share; nil for a set of this run's own
	alone error  // why it is its own
}

// cgroupPrograms are attached to each session's cgroup.
var cgroupPrograms = map[string]ebpf.AttachType{
	"connect4": ebpf.AttachCGroupInet4Connect,
	"connect6": ebpf.AttachCGroupInet6Connect,
	"sendmsg4": ebpf.AttachCGroupUDP4Sendmsg,
	"sendmsg6": ebpf.AttachCGroupUDP6Sendmsg,
	"bind4":    ebpf.AttachCGroupInet4Bind,
	"bind6":    ebpf.AttachCGroupInet6Bind,
	"skb_in":   ebpf.AttachCGroupInetIngress,
	"skb_out":  ebpf.AttachCGroupInetEgress,
}

// load gets a slot and registers the session of cfg.
func load(cfg Config) (_ *loaded, err error) {
	if cfg.Foreign && !HostPIDs() {
		return nil, &Unavailable{Reasons: []Reason{{
			Code: CodeProcessIDs, Message: "this process is in a PID namespace, so the process ids that it sees are not those that the kernel reports",
			Remedy: "start assay-run with the host's process ids: --pid host for docker and podman, hostPID for Kubernetes",
		}}}
	}
	dir, id, err := openCgroup(cfg.CgroupPath)
	if err != nil {
		return nil, err
	}
	l, err := prepared(ringSize(cfg.RingBytes))
	if err != nil {
		dir.Close()
		return nil, err
	}
	l.cgroup = dir
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.lease != nil {
		l.lease.keep = cfg.Keep
	}
	if l.links["sys_exit"] == nil {
		return nil, classify(l.failed["sys_exit"])
	}
	if err := l.slot.arrived(); err != nil {
		return nil, err
	}
	if l.rd, err = newReader(l.slot.rings); err != nil {
		return nil, err
	}
	l.before = l.misses()
	l.attachCgroup(dir)
	// The programs attached to the cgroup learn by it which session they run for.
	if err := l.maps["homes"].Put(id, uint64(l.slot.number)+1); err != nil && len(l.own) > 0 {
		return nil, fmt.Errorf("tell the programs of cgroup %s: %w", cfg.CgroupPath, err)
	}
	if err := l.slot.register(id); err != nil {
		return nil, err
	}
	if l.present, err = l.enroll(cfg.CgroupPath); err != nil {
		return nil, err
	}
	l.usedBefore = cfg.Foreign && usedBefore(cfg.CgroupPath)
	return l, nil
}

// attachCgroup attaches the programs that run for the session's sockets only.
func (l *loaded) attachCgroup(dir *os.File) {
	l.own, l.refuse = map[string]link.Link{}, map[string]error{}
	for name, as := range cgroupPrograms {
		p := l.progs[name]
		if p == nil {
			continue
		}
		ln, err := link.AttachRawLink(link.RawLinkOptions{Target: int(dir.Fd()), Program: p, Attach: as})
		if err != nil {
			l.refuse[name] = err
			continue
		}
		l.own[name] = ln
	}
}

// openCgroup opens the session's directory and returns its cgroup id, which
// is its inode number (kernfs ids on 64-bit hosts).
func openCgroup(path string) (*os.File, uint64, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("open cgroup %q: %w", path, err)
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	err = errors.Join(unix.Fstatfs(int(dir.Fd()), &fs), unix.Fstat(int(dir.Fd()), &st))
	if err != nil {
		dir.Close()
		return nil, 0, fmt.Errorf("stat cgroup %q: %w", path, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		dir.Close()
		return nil, 0, &Unavailable{Reasons: []Reason{{
			Code:    CodeNoCgroup2,
			Message: fmt.Sprintf("%s is not in a cgroup2 file system", path),
			Remedy:  "mount cgroup2, or boot without systemd.unified_cgroup_hierarchy=0",
		}}}
	}
	return dir, st.Ino, nil
}

// attached are all links that the session depends on.
func (l *loaded) attached() map[string]link.Link {
	all := maps.Clone(l.links)
	maps.Copy(all, l.own)
	return all
}

// detach ends what the session gets to see. The programs of its cgroup stay attached
// until close, without a session, because to detach one takes the kernel 0.1 ms.
func (l *loaded) detach() error {
	if l.slot == nil || l.slot.cgroup == 0 {
		return nil
	}
	homeless := l.maps["homes"].Put(l.slot.cgroup, uint64(0))
	err := l.slot.leave()
	if homeless != nil {
		err = errors.Join(err, l.unlink())
	}
	return err
}

// unlink detaches the programs of the session's cgroup.
func (l *loaded) unlink() error {
	var errs []error
	for name, ln := range l.own {
		if ln != nil {
			errs = append(errs, ln.Close())
			l.own[name] = nil
		}
	}
	return errors.Join(errs...)
}

func (l *loaded) close() error {
	errs := []error{l.detach(), l.unlink()}
	if l.rd != nil {
		errs = append(errs, l.rd.close())
	}
	if l.slot != nil {
		errs = append(errs, l.slot.close())
	}
	errs = append(errs, l.set.close())
	if l.cgroup != nil {
		errs = append(errs, l.cgroup.Close())
	}
	if l.lease != nil {
		l.lease.release()
	}
	return errors.Join(errs...)
}
