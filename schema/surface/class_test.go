package surface

import (
	"testing"

	"github.com/assay-run/assay-run/schema"
)

const cloexec = 0o2000000

// opened is an open that succeeded, by the process 10.
// A program that reads its own file tells nothing more than that it was executed.
func TestAProgramReadsItself(t *testing.T) {
	own := schema.KernelEvent{Kind: schema.KindOpen, PID: 10, Value: "/usr/bin/node", HasResult: true, Result: 3}
	written := own
	written.Flags = 2
	for _, c := range []struct {
		e    schema.KernelEvent
		exe  string
		want schema.Class
	}{{own, "/usr/bin/node", schema.ClassRuntime}, {own, "/usr/bin/cat", schema.ClassAgent},
		{written, "/usr/bin/node", schema.ClassAgent}} {
		if got := Classify(&c.e, c.exe); got != c.want {
			t.Errorf("%s of %s is %s, want %s", c.exe, c.e.Value, got, c.want)
		}
	}
}

func opened(path string, flags uint64) *schema.KernelEvent {
	return &schema.KernelEvent{Kind: schema.KindOpen, PID: 10, Value: path, Flags: flags, HasResult: true, Result: 3}
}

func TestClassOfAnOpen(t *testing.T) {
	const (
		libc = "/usr/lib/x86_64-linux-gnu/libc.so.6"
		rdwr = 0o2
	)
	cases := []struct {
		name  string
		exe   string
		path  string
		flags uint64
		errno int64
		want  schema.Class
	}{
		{"the loader's cache", "/usr/bin/cat", "/etc/ld.so.cache", cloexec, 0, schema.ClassLoader},
		{"a library", "/usr/bin/cat", libc, cloexec, 0, schema.ClassLoader},
		{"a library with a version", "/usr/bin/cat", "/usr/lib/libz.so.1.3", cloexec, 0, schema.ClassLoader},
		{"a library that is not there", "/usr/bin/cat", "/lib/glibc-hwcaps/libx.so", cloexec, 2, schema.ClassLoader},
		{"cat of the cache, without O_CLOEXEC", "/usr/bin/cat", "/etc/ld.so.cache", 0, 0, schema.ClassAgent},
		{"cat of a library", "/usr/bin/cat", libc, 0, 0, schema.ClassAgent},
		{"a library beside the agent's files", "/usr/bin/cat", "/srv/libevil.so", cloexec, 0, schema.ClassAgent},
		{"a library opened for writing", "/usr/bin/cat", libc, cloexec | rdwr, 0, schema.ClassAgent},
		{"a library truncated", "/usr/bin/cat", libc, cloexec | 0o1000, 0, schema.ClassAgent},
		{"the cache denied", "/usr/bin/cat", "/etc/ld.so.cache", cloexec, 13, schema.ClassAgent},
		{"a library denied", "/usr/bin/cat", libc, cloexec, 1, schema.ClassAgent},
		{"no library at all", "/usr/bin/cat", "/usr/lib/secret.key", cloexec, 0, schema.ClassAgent},
		{"a library where an administrator may put one", "/usr/bin/cat", "/usr/local/lib/libx.so", cloexec, 0,
			schema.ClassAgent},
		{"python looking for its prefix", "/usr/bin/python3.13", "/usr/bin/python3._pth", cloexec, 2,
			schema.ClassRuntime},
		{"something else beside python", "/usr/bin/python3.13", "/usr/bin/ls", cloexec, 0, schema.ClassAgent},
		{"the gconv cache by an old libc", "/usr/bin/ls", "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache", 0, 0,
			schema.ClassLocale},
		{"the locale archive", "/usr/bin/ls", "/usr/lib/locale/locale-archive", cloexec, 0, schema.ClassLocale},
		{"the locale archive created", "/usr/bin/localedef", "/usr/lib/locale/locale-archive", cloexec | 0o102, 0,
			schema.ClassAgent},
		{"the gconv cache", "/usr/bin/ls", "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache", cloexec, 0,
			schema.ClassLocale},
		{"a message catalogue", "/usr/bin/ls", "/usr/share/locale/de/LC_MESSAGES/coreutils.mo", 0, 0,
			schema.ClassLocale},
		{"something else below share/locale", "/usr/bin/ls", "/usr/share/locale/payload.sh", 0, 0, schema.ClassAgent},
		{"python's standard library", "/usr/bin/python3.13", "/usr/lib/python3.13/__pycache__/os.cpython-313.pyc",
			cloexec, 0, schema.ClassRuntime},
		{"python's cache written", "/usr/bin/python3.13", "/usr/lib/python3.13/__pycache__/os.pyc", cloexec | 0o301, 0,
			schema.ClassAgent},
		{"python's library read by cat", "/usr/bin/cat", "/usr/lib/python3.13/os.py", cloexec, 0, schema.ClassAgent},
		{"an agent's own python", "/srv/python3", "/usr/lib/python3.13/os.py", cloexec, 0, schema.ClassAgent},
		{"a program whose name begins so", "/usr/bin/python3-evil", "/usr/lib/python3.13/os.py", cloexec, 0,
			schema.ClassAgent},
		{"python's library, by pyenv", "/home/u/.pyenv/versions/3.12.1/bin/python3.12",
			"/home/u/.pyenv/versions/3.12.1/lib/python3.12/os.py", cloexec, 0, schema.ClassRuntime},
		{"another python's library", "/home/u/.pyenv/versions/3.12.1/bin/python3.12", "/home/u/lib/python3.12/os.py",
			cloexec, 0, schema.ClassAgent},
		{"what is beside pyenv's python", "/home/u/.pyenv/versions/3.12.1/bin/python3.12",
			"/home/u/.pyenv/versions/3.12.1/bin/x", cloexec, 0, schema.ClassAgent},
		{"a virtual environment's configuration", "/usr/bin/python3.13", "/w/venv/pyvenv.cfg", cloexec, 0,
			schema.ClassRuntime},
		{"its directory of packages", "/usr/bin/python3.13", "/w/venv/lib/python3.13/site-packages", cloexec, 0,
			schema.ClassRuntime},
		{"its list of paths", "/usr/bin/python3.13", "/w/venv/lib/python3.13/site-packages/a.pth", cloexec, 0,
			schema.ClassRuntime},
		{"its directory of programs", "/usr/bin/python3.13", "/w/venv/bin/python._pth", cloexec, 2,
			schema.ClassRuntime},
		{"a library in pyenv's tree", "/home/u/.pyenv/versions/3.12.1/bin/python3.12",
			"/home/u/.pyenv/versions/3.12.1/lib/tls/libc.so.6", cloexec, 2, schema.ClassRuntime},
		{"a package in it", "/usr/bin/python3.13", "/w/venv/lib/python3.13/site-packages/a/b.py", cloexec, 0,
			schema.ClassAgent},
		{"npm's own modules", "/home/u/.nvm/versions/node/v22/bin/node",
			"/home/u/.nvm/versions/node/v22/lib/node_modules/npm/lib/cli.js", cloexec, 0, schema.ClassRuntime},
		{"a module that was installed beside npm", "/home/u/.nvm/versions/node/v22/bin/node",
			"/home/u/.nvm/versions/node/v22/lib/node_modules/evil/x.js", cloexec, 0, schema.ClassAgent},
		{"GOROOT", "/usr/local/go/bin/go", "/usr/local/go/src/fmt/print.go", cloexec, 0, schema.ClassRuntime},
		{"GOROOT for the compiler", "/usr/local/go/pkg/tool/linux_amd64/compile",
			"/usr/local/go/pkg/include/textflag.h", cloexec, 0, schema.ClassRuntime},
		{"a program called go in somebody's home", "/home/u/bin/go", "/home/u/src/secret", cloexec, 0,
			schema.ClassAgent},
		{"a JDK", "/opt/jdk-21/bin/java", "/opt/jdk-21/lib/modules", 0, 0, schema.ClassRuntime},
		{"a JDK of Debian", "/usr/lib/jvm/java-17-openjdk-amd64/bin/java",
			"/usr/lib/jvm/java-17-openjdk-amd64/lib/modules", 0, 0, schema.ClassRuntime},
		{"a program called java in somebody's home", "/home/u/bin/java", "/home/u/lib/secret", 0, 0, schema.ClassAgent},
		{"a project's module", "/usr/bin/python3.13", "/srv/app.py", cloexec, 0, schema.ClassAgent},
		{"its own maps", "/usr/bin/x", "/proc/10/maps", 0, 0, schema.ClassIntrospection},
		{"another's maps", "/usr/bin/x", "/proc/11/maps", 0, 0, schema.ClassAgent},
		{"its own environment", "/usr/bin/x", "/proc/10/environ", 0, 0, schema.ClassAgent},
		{"its own memory", "/usr/bin/x", "/proc/10/mem", 0, 0, schema.ClassAgent},
		{"its own oom score, written", "/usr/bin/x", "/proc/10/oom_score_adj", 1, 0, schema.ClassAgent},
		{"the number of CPUs", "/usr/bin/x", "/sys/devices/system/cpu/online", 0, 0, schema.ClassIntrospection},
		{"a CPU switched off", "/usr/bin/x", "/sys/devices/system/cpu/cpu1/online", 1, 0, schema.ClassAgent},
		{"a cgroup's limit", "/usr/bin/x", "/sys/fs/cgroup/a/cpu.max", 0, 0, schema.ClassIntrospection},
		{"a cgroup's members", "/usr/bin/x", "/sys/fs/cgroup/a/cgroup.procs", 0, 0, schema.ClassAgent},
		{"randomness", "/usr/bin/x", "/dev/urandom", cloexec, 0, schema.ClassRuntime},
		{"the password file", "/usr/bin/x", "/etc/passwd", cloexec, 0, schema.ClassAgent},
		{"a temporary unnamed file in a library directory", "/usr/bin/x", "/usr/lib/x.so", cloexec | 0o20200000, 0,
			schema.ClassAgent},
	}
	for _, c := range cases {
		e := opened(c.path, c.flags)
		if c.errno != 0 {
			e.Result, e.UserMemory = -c.errno, true
		}
		if got := Classify(e, c.exe); got != c.want {
			t.Errorf("%s is %v, want %v", c.name, got, c.want)
		}
	}
}

func TestOnlyOpensAndLookUpsAreNoise(t *testing.T) {
	for _, kind := range schema.Kinds() {
		if kind == schema.KindOpen {
			continue
		}
		for _, path := range []string{"/etc/ld.so.cache", "/proc/10/maps", "/usr/lib/locale/x", "/dev/urandom"} {
			e := opened(path, cloexec)
			e.Kind = kind
			if c := Classify(e, "/usr/bin/x"); c != schema.ClassAgent {
				t.Errorf("a %v of %s is %v", kind, path, c)
			}
		}
	}
}

func TestALookUpInPathThatMisses(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		argv  []string
		errno int64
		want  schema.Class
	}{
		"missed":                   {"/usr/local/bin/git", nil, 2, schema.ClassLookup},
		"missed by its name":       {"/usr/local/bin/git", []string{"git", "status"}, 2, schema.ClassLookup},
		"missed in npm's":          {"/w/node_modules/.bin/git", nil, 2, schema.ClassLookup},
		"a directory that is none": {"/etc/passwd/bin/git", nil, 20, schema.ClassLookup},
		"denied":                   {"/usr/local/bin/git", nil, 13, schema.ClassAgent},
		"asked for by its path":    {"/usr/local/bin/git", []string{"/usr/local/bin/git"}, 2, schema.ClassAgent},
		"where programs are not":   {"/w/script", nil, 2, schema.ClassAgent},
		"a name that is none":      {"/usr/local/bin/", nil, 2, schema.ClassAgent},
	} {
		e := &schema.KernelEvent{Kind: schema.KindExecFailed, Value: c.path, Argv: c.argv, HasResult: true,
			Result: -c.errno}
		if got := Classify(e, "/usr/bin/dash"); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestDoubtfulPathsAreNeverNoise(t *testing.T) {
	for name, change := range map[string]func(*schema.KernelEvent){
		"read from user memory": func(e *schema.KernelEvent) { e.UserMemory = true },
		"moved meanwhile":       func(e *schema.KernelEvent) { e.DirectoryClaimed = true },
		"truncated":             func(e *schema.KernelEvent) { e.Truncated = schema.FieldValue },
		"deleted":               func(e *schema.KernelEvent) { e.Marks = schema.MarkDeleted },
		"without a result":      func(e *schema.KernelEvent) { e.HasResult = false },
	} {
		e := opened("/etc/ld.so.cache", cloexec)
		change(e)
		if c := Classify(e, "/usr/bin/x"); c != schema.ClassAgent {
			t.Errorf("a path that is %s is %v", name, c)
		}
	}
}
