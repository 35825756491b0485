package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
)

// Rights of linux/landlock.h, in groups.
const (
	accessRead  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_EXECUTE
	accessStore = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	accessMake = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_REFER
	accessAll = accessRead | accessStore | accessMake
	accessTCP = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	scopeAll  = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
)

// bestABI is the version of Landlock that has all that is used here; a later
// one adds rights that are left alone.
const bestABI = 6

// LandlockABI is the running kernel's version of Landlock, or why there is none.
func LandlockABI() (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// handled are the rights that a version knows (landlock(7), "VERSIONS").
func handled(abi int) (files, network, scoped uint64) {
	files = accessAll
	if abi < 2 {
		files &^= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi < 3 {
		files &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		network = accessTCP
	}
	if abi < 5 {
		files &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		scoped = scopeAll
	}
	return files, network, scoped
}

// lacking says what a version older than the best cannot restrict.
func lacking(abi int) string {
	var what []string
	for _, l := range []struct {
		since int
		what  string
	}{{2, "renames across directories"}, {3, "truncation"}, {4, "TCP ports"}, {5, "ioctl on devices"},
		{6, "abstract sockets and signals"}} {
		if abi < l.since {
			what = append(what, l.what)
		}
	}
	return strings.Join(what, ", ")
}

// ruleset is what Landlock can say of the profile. Exceptions below what is allowed are for the
// mount namespace. Where there is none, every name is allowed but those that must not be read.
func (p *Profile) ruleset(abi int, mounted bool) *shim.Ruleset {
	files, network, scoped := handled(abi)
	r := &shim.Ruleset{Scoped: scoped}
	if p.Network.Mode == NetNone {
		r.Net = network
	}
	if p.open {
		return r
	}
	r.FS = files
	add := func(path string, access uint64, optional bool) {
		r.Paths = append(r.Paths, shim.PathRule{Path: path, Access: access & files, Optional: optional})
	}
	if mounted {
		add("/", accessRead, false)
		add("/dev", accessStore, false)
		add("/dev/shm", accessStore|accessMake, false)
		add("/proc", unix.LANDLOCK_ACCESS_FS_WRITE_FILE|unix.LANDLOCK_ACCESS_FS_TRUNCATE, false)
	} else {
		for _, rule := range p.readable() {
			add(rule.Path, rule.Access, true)
		}
		for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"} {
			add("/dev/"+name, accessStore, true)
		}
		if p.Mode == WorkspaceWrite {
			add("/dev/shm", accessAll, true)
		}
	}
	for _, w := range p.Write {
		add(w.Path, accessAll, false)
	}
	for _, a := range p.AllowRead {
		if a.Rule == ruleReach {
			add(a.Path, unix.LANDLOCK_ACCESS_FS_READ_FILE|accessStore, true)
		}
	}
	for fd := range 3 {
		add(fmt.Sprintf("/proc/self/fd/%d", fd), unix.LANDLOCK_ACCESS_FS_READ_FILE|accessStore, true)
	}
	return r
}

// readable is everything but DenyRead. The directories on the way to what is denied can be listed,
// and the other entries that they have now can be read.
func (p *Profile) readable() []shim.PathRule {
	var rules []shim.PathRule
	var walk func(dir string)
	walk = func(dir string) {
		var around bool
		for _, d := range p.DenyRead {
			if d.Path == dir {
				for _, a := range p.AllowRead {
					if Below(a.Path, dir) {
						rules = append(rules, shim.PathRule{Path: a.Path, Access: accessRead})
					}
				}
				return
			}
			around = around || Below(d.Path, dir)
		}
		if !around {
			rules = append(rules, shim.PathRule{Path: dir, Access: accessRead})
			return
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return
		}
		for _, e := range entries {
			if e.Type()&os.ModeSymlink == 0 { // it is judged where it leads to
				walk(filepath.Join(dir, e.Name()))
			}
		}
	}
	walk("/")
	return slices.Clip(rules)
}
