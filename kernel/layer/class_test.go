package layer

import (
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

func TestClassOfAnOpen(t *testing.T) {
	const (
		libc = "/usr/lib/x86_64-linux-gnu/libc.so.6"
		rdwr = 0o2
	)
	type open struct {
		path  string
		flags uint64
		errno int32
	}
	cases := []struct {
		name  string
		exe   string
		opens []open
		want  schema.Class // of the last one
	}{
		{"the loader's cache", "/usr/bin/cat", []open{{"/etc/ld.so.cache", cloexec, 0}}, schema.ClassLoader},
		{"a library", "/usr/bin/cat", []open{{libc, cloexec, 0}}, schema.ClassLoader},
		{"a library with a version", "/usr/bin/cat", []open{{"/usr/lib/libz.so.1.3", cloexec, 0}}, schema.ClassLoader},
		{"a library that is not there", "/usr/bin/cat", []open{{"/lib/glibc-hwcaps/libx.so", cloexec, 2}}, schema.ClassLoader},
		{"cat of the cache, without O_CLOEXEC", "/usr/bin/cat", []open{{"/etc/ld.so.cache", 0, 0}}, schema.ClassAgent},
		{"cat of a library", "/usr/bin/cat", []open{{libc, 0, 0}}, schema.ClassAgent},
		{"a library beside the agent's files", "/usr/bin/cat", []open{{"/srv/libevil.so", cloexec, 0}}, schema.ClassAgent},
		{"a library opened for writing", "/usr/bin/cat", []open{{libc, cloexec | rdwr, 0}}, schema.ClassAgent},
		{"a library truncated", "/usr/bin/cat", []open{{libc, cloexec | 0o1000, 0}}, schema.ClassAgent},
		{"the cache denied", "/usr/bin/cat", []open{{"/etc/ld.so.cache", cloexec, 13}}, schema.ClassAgent},
		{"a library denied", "/usr/bin/cat", []open{{libc, cloexec, 1}}, schema.ClassAgent},
		{"no library at all", "/usr/bin/cat", []open{{"/usr/lib/secret.key", cloexec, 0}}, schema.ClassAgent},
		{"a library where an administrator may put one", "/usr/bin/cat", []open{{"/usr/local/lib/libx.so", cloexec, 0}}, schema.ClassAgent},
		{"python looking for its prefix", "/usr/bin/python3.13", []open{{"/usr/bin/python3._pth", cloexec, 2}}, schema.ClassRuntime},
		{"something else beside python", "/usr/bin/python3.13", []open{{"/usr/bin/ls", cloexec, 0}}, schema.ClassAgent},
		{"the gconv cache by an old libc", "/usr/bin/ls", []open{{"/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache", 0, 0}}, schema.ClassLocale},
		{"the locale archive", "/usr/bin/ls", []open{{"/usr/lib/locale/locale-archive", cloexec, 0}}, schema.ClassLocale},
		{"the locale archive created", "/usr/bin/localedef", []open{{"/usr/lib/locale/locale-archive", cloexec | 0o102, 0}}, schema.ClassAgent},
		{"the gconv cache", "/usr/bin/ls", []open{{"/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache", cloexec, 0}}, schema.ClassLocale},
		{"a message catalogue", "/usr/bin/ls", []open{{"/usr/share/locale/de/LC_MESSAGES/coreutils.mo", 0, 0}}, schema.ClassLocale},
		{"something else below share/locale", "/usr/bin/ls", []open{{"/usr/share/locale/payload.sh", 0, 0}}, schema.ClassAgent},
		{"python's standard library", "/usr/bin/python3.13", []open{{"/usr/lib/python3.13/__pycache__/os.cpython-313.pyc", cloexec, 0}}, schema.ClassRuntime},
		{"python's cache written", "/usr/bin/python3.13", []open{{"/usr/lib/python3.13/__pycache__/os.pyc", cloexec | 0o301, 0}}, schema.ClassAgent},
		{"python's library read by cat", "/usr/bin/cat", []open{{"/usr/lib/python3.13/os.py", cloexec, 0}}, schema.ClassAgent},
		{"an agent's own python", "/srv/python3", []open{{"/usr/lib/python3.13/os.py", cloexec, 0}}, schema.ClassAgent},
		{"a program whose name begins so", "/usr/bin/python3-evil", []open{{"/usr/lib/python3.13/os.py", cloexec, 0}}, schema.ClassAgent},
		{"a project's module", "/usr/bin/python3.13", []open{{"/srv/app.py", cloexec, 0}}, schema.ClassAgent},
		{"its own maps", "/usr/bin/x", []open{{"/proc/10/maps", 0, 0}}, schema.ClassIntrospection},
		{"another's maps", "/usr/bin/x", []open{{"/proc/11/maps", 0, 0}}, schema.ClassAgent},
		{"its own environment", "/usr/bin/x", []open{{"/proc/10/environ", 0, 0}}, schema.ClassAgent},
		{"its own memory", "/usr/bin/x", []open{{"/proc/10/mem", 0, 0}}, schema.ClassAgent},
		{"its own oom score, written", "/usr/bin/x", []open{{"/proc/10/oom_score_adj", 1, 0}}, schema.ClassAgent},
		{"the number of CPUs", "/usr/bin/x", []open{{"/sys/devices/system/cpu/online", 0, 0}}, schema.ClassIntrospection},
		{"a CPU switched off", "/usr/bin/x", []open{{"/sys/devices/system/cpu/cpu1/online", 1, 0}}, schema.ClassAgent},
		{"a cgroup's limit", "/usr/bin/x", []open{{"/sys/fs/cgroup/a/cpu.max", 0, 0}}, schema.ClassIntrospection},
		{"a cgroup's members", "/usr/bin/x", []open{{"/sys/fs/cgroup/a/cgroup.procs", 0, 0}}, schema.ClassAgent},
		{"randomness", "/usr/bin/x", []open{{"/dev/urandom", cloexec, 0}}, schema.ClassRuntime},
		{"the password file", "/usr/bin/x", []open{{"/etc/passwd", cloexec, 0}}, schema.ClassAgent},
		{"a temporary unnamed file in a library directory", "/usr/bin/x", []open{{"/usr/lib/x.so", cloexec | 0o20200000, 0}}, schema.ClassAgent},
	}
	for _, c := range cases {
		b, lines := collect(t, Options{})
		push(t, b, forkEvent(0, 1, 10), execEvent(1, 10, c.exe))
		for i, o := range c.opens {
			push(t, b, openEvent(uint64(2+i), 10, o.path, o.flags, o.errno))
		}
		b.Close()
		if got := (*lines)[len(*lines)-1].Class; got != c.want {
			t.Errorf("%s is %v, want %v", c.name, got, c.want)
		}
	}
}

func TestOnlyOpensAreNoise(t *testing.T) {
	for k := kernel.KindExec; k <= kernel.KindCompat; k++ {
		if k == kernel.KindOpen {
			continue
		}
		for _, path := range []string{"/etc/ld.so.cache", "/proc/10/maps", "/usr/lib/locale/x", "/dev/urandom"} {
			b, lines := collect(t, Options{})
			ev := openEvent(2, 10, path, cloexec, 0)
			ev.Kind = k
			push(t, b, forkEvent(0, 1, 10), ev)
			b.Close()
			if e := (*lines)[len(*lines)-1]; e.Class != schema.ClassAgent {
				t.Errorf("a %v of %s is %v", e.Kind, path, e.Class)
			}
		}
	}
}

func TestDoubtfulPathsAreNeverNoise(t *testing.T) {
	for name, change := range map[string]func(*kernel.Event){
		"read from user memory": func(e *kernel.Event) { e.PathSource = kernel.PathUserMemory },
		"truncated":             func(e *kernel.Event) { e.Truncated = true },
		"deleted":               func(e *kernel.Event) { e.Deleted = true },
		"relative":              func(e *kernel.Event) { e.RelativePath = true },
		"unreachable":           func(e *kernel.Event) { e.Unreachable = true },
		"without a result":      func(e *kernel.Event) { e.NoResult = true },
	} {
		b, lines := collect(t, Options{})
		ev := openEvent(2, 10, "/etc/ld.so.cache", cloexec, 0)
		change(&ev)
		push(t, b, forkEvent(0, 1, 10), ev)
		b.Close()
		if e := (*lines)[1]; e.Class != schema.ClassAgent {
			t.Errorf("a path that is %s is %v", name, e.Class)
		}
	}
}
