package sandbox

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
)

// cloneFlags are the namespaces that the profile needs.
func (p *Profile) cloneFlags() uintptr {
	if !p.PIDs {
		return 0
	}
	flags := uintptr(unix.CLONE_NEWPID | unix.CLONE_NEWNS)
	if p.Mode != Observe {
		flags |= unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	}
	if p.Network.Mode != NetHost {
		flags |= unix.CLONE_NEWNET
	}
	if !mayAdminister() {
		flags |= unix.CLONE_NEWUSER
	}
	return flags
}

// mayAdminister reports whether this process has CAP_SYS_ADMIN. Namespaces then need no user namespace.
func mayAdminister() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// plan is what the shim must do, with or without namespaces.
func (p *Profile) plan(namespaces bool) (shim.Plan, []Layer, error) {
	plan := shim.Plan{Dir: p.Dir, Degrade: p.OnUnavailable == Degrade}
	if p.moved() {
		plan.Dir = p.away.At
	}
	var early []Layer
	if p.User != nil {
		plan.UID, plan.GID, plan.Groups = &p.User.UID, &p.User.GID, p.User.Groups
	}
	if namespaces {
		plan.Init = true
		plan.Mounts = p.mounts()
		p.freshen(plan.Mounts)
		plan.Loopback = p.Network.Mode == NetLoopback || p.Network.Mode == NetAllowlist
		if p.Network.Mode == NetAllowlist {
			plan.Ports = append(slices.Sorted(maps.Keys(p.Network.forwarded())), proxyPort)
		}
	}
	if p.Mode == Observe {
		plan.KeepPrivileges = !p.Restricted()
		if p.NoTyping {
			var err error
			if plan.Filter, err = typingFilter(); err != nil {
				return plan, nil, err
			}
		}
		return plan, nil, nil
	}
	abi, err := LandlockABI()
	switch {
	case err != nil:
		early = append(early, layerError(LayerLandlock, err))
	case abi < bestABI:
		early = append(early, Layer{Layer: LayerLandlock, State: Degraded,
			Reason: "this kernel's Landlock does not know " + lacking(abi)})
	}
	if err == nil {
		plan.Landlock = p.ruleset(abi, namespaces)
	}
	plan.Filter, err = filter(namespaces || p.Network.Mode != NetNone)
	return plan, early, err
}

// mounts describes the file system of the run.
func (p *Profile) mounts() *shim.Mounts {
	m := &shim.Mounts{Proc: true}
	if p.Mode == Observe {
		m.All = true
		return m
	}
	m.Devices, m.Shm = true, p.Mode == WorkspaceWrite || p.open
	for _, d := range p.Private {
		if d.Rule == rulePrivateTmp {
			m.Temporary = append(m.Temporary, d.Path)
		} else {
			m.Private = append(m.Private, d.Path)
		}
	}
	write := outermost(slices.DeleteFunc(paths(p.Write), func(w string) bool {
		return slices.Contains(m.Temporary, w)
	}))
	m.All = p.open
	m.Hidden, m.Sockets = outermost(paths(p.DenyRead)), paths(p.sockets)
	hidden := func(path string) bool {
		return slices.ContainsFunc(m.Hidden, func(h string) bool { return Below(path, h) })
	}
	covered := func(path string) bool {
		return hidden(path) || Below(path, "/dev") ||
			slices.ContainsFunc(append(slices.Clone(m.Private), m.Temporary...), func(d string) bool {
				return Below(path, d)
			})
	}
	for _, a := range p.AllowRead {
		if a.Rule == ruleReach && !covered(a.Path) {
			write = append(write, a.Path)
		}
	}
	for _, w := range outermost(write) {
		if !hidden(w) {
			m.Writable = append(m.Writable, w)
		}
	}
	below := func(path string, dirs []string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return Below(path, dir) })
	}
	if below(p.Dir, m.Temporary) && !below(p.Dir, m.Writable) {
		m.Shown = append(m.Shown, shim.Shown{Path: p.Dir})
	}
	m.Hidden = slices.DeleteFunc(m.Hidden, func(h string) bool {
		return below(h, m.Temporary) && !below(h, append(m.Writable, p.Dir))
	})
	for _, a := range p.AllowRead {
		evidence := slices.ContainsFunc(p.DenyRead, func(d Path) bool {
			return d.Rule == "evidence" && Below(a.Path, d.Path)
		})
		if covered(a.Path) && !evidence && !slices.Contains(m.Hidden, a.Path) {
			m.Shown = append(m.Shown,
				shim.Shown{Path: a.Path, Writable: a.Rule == "sockets" || a.Rule == ruleReach || p.writable(a.Path)})
		}
	}
	for _, d := range p.DenyWrite {
		if hidden(d.Path) {
			continue
		}
		for _, w := range write {
			if !Below(d.Path, w) {
				continue
			}
			for at := filepath.Dir(d.Path); at != w && Below(at, w); at = filepath.Dir(at) {
				m.Pinned = append(m.Pinned, at)
			}
			m.ReadOnly = append(m.ReadOnly, d.Path)
		}
	}
	slices.Sort(m.Pinned) // a bind of an outer directory covers the inner ones
	m.Pinned = slices.Compact(m.Pinned)
	slices.Sort(m.ReadOnly)
	m.ReadOnly = slices.Compact(m.ReadOnly)
	return m
}

func paths(list []Path) []string {
	out := make([]string, 0, len(list))
	for _, p := range list {
		out = append(out, p.Path)
	}
	return out
}

// moved reports whether the command sees the working directory at another path.
func (p *Profile) moved() bool { return p.away != nil && p.away.At != "" }

// freshen covers the directories for temporary files by empty ones. A working directory in one of them stays visible,
// and so does the fresh directory.
func (p *Profile) freshen(m *shim.Mounts) {
	if p.fresh == "" {
		return
	}
	var covered []string
	temporary := Temporary
	if p.away != nil {
		temporary = slices.Concat(temporary, p.away.Empty)
	}
	for _, dir := range temporary {
		real, err := filepath.EvalSymlinks(dir)
		if info, serr := os.Stat(real); err != nil || serr != nil || !info.IsDir() || real == p.Dir ||
			Below(real, "/dev") && m.Devices {
			continue
		}
		covered = append(covered, real)
	}
	within := func(path string) bool {
		return slices.ContainsFunc(covered, func(dir string) bool { return Below(path, dir) })
	}
	seen := []string{p.fresh}
	if p.away != nil {
		for _, dir := range p.away.Shown {
			m.Shown = append(m.Shown, shim.Shown{Path: dir})
		}
	}
	if p.moved() {
		m.Moved = append(m.Moved, shim.Moved{From: p.Dir, To: p.away.At})
	} else if p.away != nil && within(p.Dir) {
		seen = append(seen, p.Dir)
	}
	for _, dir := range covered {
		if p.away != nil {
			break
		}
		rest, in := strings.CutPrefix(p.Dir, dir+"/")
		if !in {
			continue
		}
		top, _, _ := strings.Cut(rest, "/")
		if at := filepath.Join(dir, top); m.All || p.writable(p.Dir) {
			seen = append(seen, at)
		} else {
			m.Shown = append(m.Shown, shim.Shown{Path: at})
		}
	}
	for _, w := range p.Write { // Landlock must find the policy's paths
		if within(w.Path) && !slices.Contains(covered, w.Path) && !(p.moved() && w.Path == p.Dir) {
			seen = append(seen, w.Path)
		}
	}
	gone := func(path string) bool {
		return within(path) && !slices.ContainsFunc(append(slices.Clone(seen), shownPaths(m)...), func(s string) bool {
			return Below(path, s)
		})
	}
	m.Writable = slices.DeleteFunc(m.Writable, func(path string) bool {
		return within(path) || p.moved() && path == p.Dir
	})
	for _, list := range []*[]string{&m.Pinned, &m.ReadOnly, &m.Hidden, &m.Sockets} {
		*list = slices.DeleteFunc(*list, gone)
	}
	m.Temporary = outermost(append(m.Temporary, covered...))
	m.Writable = append(m.Writable, outermost(seen)...)
}

// ruleset is the part of the profile that Landlock can enforce. The mount namespace handles exceptions below allowed
// directories. Without one, every path is allowed except those that must not be read.
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

// readable allows everything except DenyRead. Directories above a denied path can be listed, and the entries that
// they have now can be read.
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
			if e.Type()&os.ModeSymlink == 0 { // a symbolic link is checked at its target
				walk(filepath.Join(dir, e.Name()))
			}
		}
	}
	walk("/")
	return slices.Clip(rules)
}

func shownPaths(m *shim.Mounts) []string {
	var paths []string
	for _, s := range m.Shown {
		paths = append(paths, s.Path)
	}
	return paths
}
