package runner

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/notify"
)

// choose opens the observer that the run asks for. auto takes eBPF, or else seccomp
// notification, where that changes nothing for the command.
func (o *observation) choose(ctx context.Context) error {
	if o.how == KernelNotify {
		return o.openNotify()
	}
	c, ours := o.session.(*containment)
	if ours {
		if err := c.thawed(ctx); err != nil {
			return err
		}
	}
	observer, err := openObserver(ctx, kernel.Config{CgroupPath: o.session.Path(), RingBytes: o.ring, Keep: o.keep, Foreign: o.foreign})
	if ours {
		err = noRoom(c.host, err)
	}
	if err == nil {
		if observer.Shared() {
			o.session.shared()
		}
		o.observer = observer
		return nil
	}
	var u *kernel.Unavailable
	if o.how != KernelAuto || o.foreign || o.needed || !errors.As(err, &u) {
		return err
	}
	if !notifies() {
		if notify.Probe() == nil {
			return suggestNotify(u)
		}
		return err
	}
	o.instead = u.Reasons
	if err := o.openNotify(); err != nil {
		var also *kernel.Unavailable
		if errors.As(err, &also) {
			return o.without(also)
		}
		return err
	}
	return nil
}

// noRoom says of an error of kernel.Open why the session has no cgroup2 directory, if
// that is because the kernel makes no more.
func noRoom(host *cgroup.Host, err error) error {
	var u *kernel.Unavailable
	if !errors.As(err, &u) {
		return err
	}
	is := slices.IndexFunc(u.Reasons, func(r kernel.Reason) bool { return r.Code == kernel.CodeNoCgroup2 })
	why := slices.IndexFunc(host.Reasons(), func(r cgroup.Reason) bool { return r.Code == cgroup.CodeFull })
	if is < 0 || why < 0 {
		return err
	}
	fixed := &kernel.Unavailable{Reasons: slices.Clone(u.Reasons), Err: u.Err}
	fixed.Reasons[is] = kernel.Reason(host.Reasons()[why])
	return fixed
}

// notifies tells whether auto may use seccomp notification, if that is available.
func notifies() bool { return notify.Privileged() || os.Getuid() == 0 }

func (o *observation) openNotify() error {
	n, err := notify.New(notify.Config{DenyIOUring: o.deny})
	if err != nil {
		return err
	}
	o.observer, o.notify = n, n
	return nil
}

// without says why neither tier is there.
func (o *observation) without(u *kernel.Unavailable) *kernel.Unavailable {
	return &kernel.Unavailable{Reasons: slices.Concat(o.instead, u.Reasons), Err: u.Err}
}

// suggestNotify names the tier that would work and was not chosen, since with it
// programs with the set-user-ID bit would stop working.
func suggestNotify(u *kernel.Unavailable) *kernel.Unavailable {
	with := *u
	with.Reasons = slices.Clone(u.Reasons)
	if len(with.Reasons) > 0 {
		r := &with.Reasons[0]
		r.Remedy += "; or run with --kernel notify, under which sudo and other setuid programs do not work"
	}
	return &with
}

// start starts the run's command by start, through the observer where that has to
// be there first.
func (o *observation) start(cmd *exec.Cmd, start func(*exec.Cmd) error) error {
	if o.notify == nil {
		return start(cmd)
	}
	return o.notify.Start(cmd, start)
}
