package layer

import (
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Not every kernel has each of these files, so that an attack by all of them cannot be
// made on one.
func TestEveryHelperOfTheKernelIsKnown(t *testing.T) {
	for name, helper := range map[string]bool{
		"/proc/sys/kernel/core_pattern": true, "/proc/sys/kernel/modprobe": true, "/proc/sys/kernel/hotplug": true,
		"/proc/sys/kernel/poweroff_cmd": true, "/sys/kernel/uevent_helper": true,
		"/proc/sys/kernel/usermodehelper/bset": true,
		"/proc/sys/fs/binfmt_misc/register":    true, "/sys/fs/cgroup/pids/release_agent": true,
		"/proc/sys/kernel/modprobe.d": false, "/etc/modprobe.d/a.conf": false, "/srv/uevent_helper": false,
	} {
		const readOnly, writeOnly = 0, 1
		for _, flags := range []uint64{readOnly, writeOnly} {
			b, lines := collect(t, Options{})
			open := openEvent(3, 10, "/mounted/elsewhere", flags, 0)
			open.Place = name
			push(t, b, forkEvent(1, 9, 10), execEvent(2, 10, "/bin/sh", "sh"), open,
				event(4, 50, schema.KernelEvent{Kind: kernel.KindKernelExec, Value: "/tmp/handler"}))
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			var changed, started bool
			for _, l := range *lines {
				changed = changed || l.Kind == schema.KindPrivileged && l.Call == "kernel_helper" && l.Value == name
				started = started || l.Call == "kernel_helper_started" && l.Value == "/tmp/handler"
			}
			want := helper && flags == writeOnly
			if r := b.Stats().Reach; changed != want || started != want || (r.Helper == name) != want ||
				(r.StartedTimes == 1) != want {
				t.Errorf("%s, flags %d: a line %v, of what was started %v, %+v; want %v", name, flags, changed, started,
					r, want)
			}
		}
	}
}

// What the kernel starts is told where it is for the run, or may be, and is then a reason
// against the layer.
func TestProgramsThatTheKernelStartsForTheRun(t *testing.T) {
	for asked, want := range map[uint64]bool{kernel.AskedNot: false, kernel.Asked: true, kernel.AskedMaybe: true} {
		b, lines := collect(t, Options{})
		started := event(3, 10, schema.KernelEvent{
			Kind: kernel.KindKernelExec, Value: "/sbin/modprobe", Args: []uint64{asked},
		})
		push(t, b, forkEvent(1, 9, 10), execEvent(2, 10, "/bin/sh", "sh"), started)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		last := (*lines)[len(*lines)-1]
		if told := last.Call == "kernel_helper_started" && last.Value == "/sbin/modprobe"; told != want {
			t.Errorf("asked %d: the last line is %s %s %s", asked, last.Kind, last.Call, last.Value)
		}
		if by := last.ExecID != 0; want && by != (asked == kernel.Asked) {
			t.Errorf("asked %d: it has a program that asked: %v", asked, by)
		}
		if r := b.Stats().Reach; (r.StartedTimes == 1) != want {
			t.Errorf("asked %d: %+v", asked, r)
		}
	}
}
