package surface

import (
	"path"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// This file is the whole of what decides an event's class, but for check and
// runner, which follow from whose process it is (kernel/layer). Everything is
// agent, unless one of the rules below says otherwise. They follow from one
// concern: calling an agent's action noise hides it from a reviewer, calling
// noise an action merely lengthens a list. So noise is only a program that was
// not found where programs are, as on the way through PATH (isLookup), or
//
//   - an open: no other kind of event ever is;
//   - that cannot change anything: read access, no create, no truncate;
//   - that succeeded on the kernel's own path, in which nobody else changed a
//     directory meanwhile, or found nothing (ENOENT, ENOTDIR): a denial is
//     evidence and stays agent; or whose result nobody saw (status attempted);
//   - of a file in a system directory, or of /proc and /sys, that the rule
//     names: a library or module beside the agent's own files is the agent's;
//     or of a file that came with the interpreter or toolchain that opens it
//     (tree.go);
//   - in the run's own mount namespace, unless nothing was found: in another
//     one, anything may be mounted there;
//   - with the flags of the library that is known to do it, where those tell
//     it from cat(1).
//
// The rules look at one event and the executable alone. What a process did
// before must not count: repeats of an event are coalesced in the kernel, and
// threads interleave, so a rule with a memory would give two runs of the same
// workload two surfaces. The price: a program that reads a library of the
// distribution, as data and with O_CLOEXEC, looks like one that loads it. A
// library that somebody could have put there is not in a directory below.
//
// The layer keeps the event either way; only the capability surface leaves
// noise out, and counts it.

// rule is one row. Every condition that is not empty must hold.
type rule struct {
	class schema.Class
	// exe is a prefix of the executable's base name; the executable must lie
	// in a system directory, so that an agent's own "python" gets no rule.
	exe string
	// cloexec: O_CLOEXEC must be set, as libc's own opens have it.
	cloexec bool
	// in are directories (with a final slash); path is below one of them.
	in []string
	// is are whole paths.
	is []string
	// like further restricts the path.
	like func(path string) bool
}

var libraryDirs = []string{"/lib/", "/lib32/", "/lib64/", "/usr/lib/", "/usr/lib32/", "/usr/lib64/"}

var rules = [...]rule{
	// ld.so reads its cache, then maps the libraries it names, at start-up as
	// in a later dlopen; musl reads its search path instead.
	{class: schema.ClassLoader, cloexec: true, like: isLoaderConfig},
	{class: schema.ClassLoader, cloexec: true, in: libraryDirs, like: isLibrary},

	// libc: setlocale, gettext, iconv, time zones.
	{class: schema.ClassLocale, cloexec: true, in: []string{"/usr/lib/locale/", "/usr/share/zoneinfo/"}},
	{class: schema.ClassLocale, cloexec: true,
		is: []string{"/etc/localtime", "/etc/locale.alias", "/usr/share/locale/locale.alias"}},
	{class: schema.ClassLocale, cloexec: true, in: libraryDirs, like: func(p string) bool {
		return strings.Contains(p, "/gconv/")
	}},
	{class: schema.ClassLocale, in: libraryDirs, like: func(p string) bool {
		return strings.HasSuffix(p, "/gconv/gconv-modules.cache")
	}},
	{class: schema.ClassLocale, in: []string{"/usr/share/locale/", "/usr/share/locale-langpack/"},
		like: func(p string) bool { return strings.HasSuffix(p, ".mo") }},

	// Interpreters and their standard libraries, as the distribution
	// installed them. Packages of a project or a virtual environment are not.
	{class: schema.ClassRuntime, exe: "python3", cloexec: true,
		in: []string{"/usr/lib/python3", "/usr/local/lib/python3"}},
	{class: schema.ClassRuntime, exe: "python3", like: isPythonConfig},
	{class: schema.ClassRuntime, exe: "perl", cloexec: true,
		in: []string{"/usr/share/perl/", "/usr/share/perl5/", "/etc/perl/", "/usr/local/share/perl/",
			"/usr/local/lib/site_perl/"}},
	{class: schema.ClassRuntime, exe: "perl", cloexec: true, in: libraryDirs, like: func(p string) bool {
		return strings.Contains(p, "/perl/") || strings.Contains(p, "/perl5/") || strings.Contains(p, "/perl-base/")
	}},
	{class: schema.ClassRuntime, exe: "node", in: []string{"/usr/share/nodejs/", "/usr/share/node_modules/"}},
	{class: schema.ClassRuntime,
		is: []string{"/etc/ssl/openssl.cnf", "/usr/lib/ssl/openssl.cnf", "/dev/urandom", "/dev/random"}},

	// A program asking about itself and the machine. environ, mem, root, cwd
	// and the files behind fd/ are not in the list: they hold other things.
	{class: schema.ClassIntrospection, in: []string{"/proc/self/"}, like: isOwnStatus},
	{class: schema.ClassIntrospection,
		is: []string{"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/version",
			"/proc/loadavg", "/proc/uptime", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/cap_last_cap",
			"/proc/sys/kernel/ngroups_max",
			"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/proc/sys/vm/overcommit_memory",
			"/proc/sys/net/core/somaxconn",
			"/proc/sys/fs/pipe-max-size", "/sys/kernel/mm/transparent_hugepage/enabled",
			"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"}},
	{class: schema.ClassIntrospection, in: []string{"/sys/devices/system/cpu/", "/sys/devices/system/node/"}},
	{class: schema.ClassIntrospection, in: []string{"/sys/fs/cgroup/"}, like: isCgroupLimit},
}

func isLoaderConfig(p string) bool {
	return p == "/etc/ld.so.cache" || p == "/etc/ld.so.preload" || strings.HasPrefix(p, "/etc/ld-musl-") &&
		strings.HasSuffix(p, ".path")
}

// isLibrary reports whether the last part is NAME.so or NAME.so.VERSION.
func isLibrary(p string) bool {
	base := p[strings.LastIndexByte(p, '/')+1:]
	i := strings.Index(base, ".so")
	return i > 0 && (len(base) == i+3 || base[i+3] == '.')
}

// SystemLibrary reports whether a path is one of a library in a directory of the system's.
func SystemLibrary(p string) bool {
	return isLibrary(p) && slices.ContainsFunc(libraryDirs, func(dir string) bool { return strings.HasPrefix(p, dir) })
}

// isPythonConfig reports whether p is what getpath looks for beside the
// executable and above it.
func isPythonConfig(p string) bool {
	dir, base := p[:strings.LastIndexByte(p, '/')], p[strings.LastIndexByte(p, '/')+1:]
	switch dir {
	case "/usr", "/usr/bin", "/usr/local", "/usr/local/bin":
		return base == "pyvenv.cfg" || base == "pybuilddir.txt" || strings.HasPrefix(base, "python3") &&
			strings.HasSuffix(base, "._pth")
	}
	return false
}

// isOwnStatus reports whether a file is among those of the process's own /proc/self that say how it is.
func isOwnStatus(p string) bool {
	switch strings.TrimPrefix(p, "/proc/self/") {
	case "maps", "stat", "statm", "status", "cgroup", "mountinfo", "mounts", "auxv", "limits", "cpuset", "comm",
		"cmdline",
		"oom_score_adj", "fd", "task", "uid_map", "gid_map", "setgroups", "coredump_filter":
		return true
	}
	return false
}

// isCgroupLimit reports whether a file of a cgroup has a limit or a usage.
func isCgroupLimit(p string) bool {
	switch p[strings.LastIndexByte(p, '/')+1:] {
	case "cpu.max", "cpu.stat", "cpu.weight", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpuset.cpus",
		"cpuset.cpus.effective",
		"memory.max", "memory.high", "memory.current", "memory.stat", "memory.limit_in_bytes",
		"memory.soft_limit_in_bytes", "memory.usage_in_bytes",
		"memory.swap.max", "memory.use_hierarchy", "pids.max", "pids.current", "cgroup.controllers":
		return true
	}
	return false
}

const (
	openCloexec = 0o2000000 // fcntl.h, the same on x86-64 and arm64
	openExcl    = 0o200
	openRdwr    = 0o2
	enoent      = -2
	enotdir     = -20
)

// Classify returns the class of e, an event of a process that executes exe:
// agent, or one of the four kinds of noise.
func Classify(e *schema.KernelEvent, exe string) schema.Class {
	switch {
	case e.Kind == schema.KindExecFailed && isLookup(e):
		return schema.ClassLookup
	case e.Kind != schema.KindOpen:
		return schema.ClassAgent
	case e.Value == exe && harmless(e): // as V8 does, now and then
		return schema.ClassRuntime
	case !systemPath(e.Value):
		if harmless(e) && inOwnTree(exe, e.Value) {
			return schema.ClassRuntime
		}
		return schema.ClassAgent
	case !harmless(e):
		return schema.ClassAgent
	}
	file := ownProc(e.Value, e.PID)
	for i := range rules {
		r := &rules[i]
		if r.cloexec && e.Flags&openCloexec == 0 || !r.matches(file) || r.exe != "" && !isProgram(exe, r.exe) {
			continue
		}
		return r.class
	}
	if inOwnTree(exe, e.Value) {
		return schema.ClassRuntime
	}
	return schema.ClassAgent
}

// isLookup reports whether a program was not found where programs are, as when a
// shell or execvp(3) goes through PATH. One that was asked for by its path has a
// slash in its arguments, where those are known.
func isLookup(e *schema.KernelEvent) bool {
	if !e.Attempted && (!e.HasResult || e.Result != enoent && e.Result != enotdir) || e.Truncated != 0 ||
		len(e.Argv) > 0 && strings.Contains(e.Argv[0], "/") {
		return false
	}
	dir, name := path.Split(e.Value)
	switch path.Base(dir) {
	case "bin", "sbin", ".bin", "games", "shims":
		return name != "" && path.IsAbs(dir)
	}
	return false
}

// harmless reports whether the conditions that every rule shares hold.
func harmless(e *schema.KernelEvent) bool {
	if !e.HasResult && !e.Attempted || e.Writes() || e.Flags&3 != 0 || e.Truncated != 0 || !certain(e) {
		return false
	}
	if e.Attempted { // it could change nothing, however it ended
		return true
	}
	if e.Result >= 0 {
		return !e.UserMemory && !e.DirectoryClaimed
	}
	return e.Result == enoent || e.Result == enotdir
}

// certain reports whether the path is what it says. One that could not be resolved
// (/proc/self is a link that only the kernel can read) is, where nothing was
// found, as long as nothing in it leads up. One in another mount namespace may be
// any file, put there by who made the namespace, unless nothing was found.
func certain(e *schema.KernelEvent) bool {
	marks := e.Marks
	if e.HasResult && e.Result < 0 {
		marks &^= schema.MarkMountNamespace
	}
	return marks == 0 || marks == schema.MarkUnresolved && e.Result < 0 && !strings.Contains(e.Value, "/..")
}

func (r *rule) matches(path string) bool {
	if r.in != nil || r.is != nil {
		if !slices.Contains(r.is, path) && !below(r.in, path) {
			return false
		}
	}
	return r.like == nil || r.like(path)
}

func below(dirs []string, path string) bool {
	for _, d := range dirs {
		if strings.HasPrefix(path, d) {
			return true
		}
	}
	return false
}

// systemPath reports whether a path can match a rule at all. It spares most paths the walk through the rules.
func systemPath(p string) bool {
	if len(p) < 5 || p[0] != '/' {
		return false
	}
	switch p[1] {
	case 'u':
		return strings.HasPrefix(p, "/usr/")
	case 'l':
		return strings.HasPrefix(p, "/lib")
	case 'e':
		return strings.HasPrefix(p, "/etc/")
	case 'p':
		return strings.HasPrefix(p, "/proc/")
	case 's':
		return strings.HasPrefix(p, "/sys/")
	case 'd':
		return p == "/dev/urandom" || p == "/dev/random" // no rule has another
	}
	return false
}

// isProgram reports whether exe is a program of the system named name, perhaps
// with a version after it (python3, python3.13).
func isProgram(exe, name string) bool {
	i := strings.LastIndexByte(exe, '/')
	switch exe[:i+1] {
	case "/usr/bin/", "/bin/", "/usr/local/bin/", "/usr/sbin/":
	default:
		return false
	}
	rest, ok := strings.CutPrefix(exe[i+1:], name)
	return ok && strings.Trim(rest, "0123456789.") == ""
}
