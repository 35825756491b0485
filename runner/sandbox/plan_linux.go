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
	"github.com/assay-run/assay-run/runner/sandbox/startup"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// cloneFlags are the namespaces that the profile needs.
func (p *Profile) cloneFlags() uintptr {
	if !p.PIDs {
		return 0
	}
	flags := uintptr(unix.CLONE_NEWPID | unix.CLONE_NEWNS)
	if p.Mode != sandboxfile.Observe {
		flags |= unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	}
	if p.Network.Mode != sandboxfile.NetHost {
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
	plan := shim.Plan{Dir: p.Dir, Degrade: p.OnUnavailable == sandboxfile.Degrade, MustAsk: p.insists}
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
		slices.SortStableFunc(plan.Mounts.Places, comparePlaces) // what is outside comes first
		plan.Loopback = p.Network.Mode == sandboxfile.NetLoopback || p.Network.Mode == sandboxfile.NetAllowlist
		if p.Network.Mode == sandboxfile.NetAllowlist {
			plan.Ports = append(slices.Sorted(maps.Keys(p.Network.forwarded())), proxyPort)
		}
	}
	if p.Mode == sandboxfile.Observe {
		// In a user namespace, an ordinary user would get all capabilities there.
		plan.KeepPrivileges = p.User == nil && (!namespaces || p.cloneFlags()&unix.CLONE_NEWUSER == 0)
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
	plan.Filter, err = filter(namespaces || p.Network.Mode != sandboxfile.NetNone, namespaces)
	// Without a PID namespace, nothing tells the run's processes from others. What assay-run connects in the command's
	// place is not under the command's Landlock rules.
	if p.asks && namespaces && p.listened {
		early = append(early, Layer{Layer: LayerSockets, State: Unavailable,
			Reason: "--kernel notify listens to the command's calls, and the kernel allows one listener"})
	} else if err == nil && p.asks && namespaces {
		plan.Asks, err = asks()
	}
	return plan, early, err
}

// mounts describes the file system of the run: a mount for each path of the plan to which something else applies than
// to the directory above it.
func (p *Profile) mounts() *shim.Mounts {
	m := &shim.Mounts{Proc: true, All: p.open}
	if len(p.only) > 0 {
		m.Devices, m.Places = true, p.only
		return m
	}
	if p.Mode == sandboxfile.Observe {
		return m
	}
	m.Devices = true
	around := aroundMounts()
	pinned := map[string]bool{}
	for _, e := range p.Plan.Paths {
		if !e.changes || e.Rule == ruleDevices || p.replaces(e.Target) {
			continue
		}
		as := map[Access]shim.State{AccessNone: shim.Hidden, AccessPrivate: shim.Private,
			AccessTemporary: shim.Temporary, AccessRead: shim.Shown, AccessWrite: shim.Writable,
			AccessLayer: shim.Layered}[e.Access]
		if e.Access == AccessRead && p.Plan.under(e) == AccessWrite {
			as = shim.ReadOnly
			for at := filepath.Dir(e.Target); !pinned[at] && !p.Plan.mounted(at); at = filepath.Dir(at) {
				pinned[at] = true
				m.Places = append(m.Places, shim.Place{Path: at, As: shim.Pinned, Flat: !around[at]})
			}
		}
		at := shim.Place{Path: e.Target, As: as, Flat: !around[e.Target]}
		if link := p.links[e.Target]; link != "" && as == shim.ReadOnly {
			at.As, at.From = shim.Linked, link
		}
		if as == shim.Layered {
			at.From, at.Flat = p.layer, true
		}
		m.Places = append(m.Places, at)
	}
	m.Places = append(m.Places, p.replaced...)
	if len(p.links) > 0 {
		m.Places = append(m.Places, shim.Place{Path: carriedAt, As: shim.Writable, From: p.copies, Flat: true})
	}
	for _, s := range p.sockets {
		m.Places = append(m.Places, shim.Place{Path: s.Path, As: shim.Socket})
	}
	return m
}

// aroundMounts are the directories that contain a mount point.
func aroundMounts() map[string]bool {
	around := map[string]bool{}
	for _, at := range mountPoints() {
		for at = filepath.Dir(at); !around[at]; at = filepath.Dir(at) {
			around[at] = true
		}
	}
	return around
}

func comparePlaces(a, b shim.Place) int { return comparePaths(a.Path, b.Path) }

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
			schema.Below(real, "/dev") && m.Devices {
			continue
		}
		covered = append(covered, real)
	}
	within := func(path string) bool {
		return schema.Below(path, covered...)
	}
	var placed []shim.Place
	put := func(as shim.State, paths ...string) {
		for _, path := range paths {
			placed = append(placed, shim.Place{Path: path, As: as})
		}
	}
	seen := []string{p.fresh}
	if p.away != nil {
		put(shim.Shown, p.away.Shown...)
		for _, path := range slices.Sorted(maps.Keys(p.away.Carried)) {
			as := shim.Joined
			if within(path) {
				as = shim.Shown
			}
			placed = append(placed, shim.Place{Path: path, As: as, From: p.away.Carried[path]})
		}
	}
	for _, d := range p.tests {
		if within(d.Path) {
			put(shim.Shown, d.Path)
		}
	}
	if p.moved() {
		placed = append(placed, shim.Place{Path: p.away.At, As: shim.Writable, From: p.Dir})
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
			put(shim.Shown, at)
		}
	}
	for _, w := range p.Write { // Landlock must find the policy's paths
		if within(w.Path) && !slices.Contains(covered, w.Path) && !(p.moved() && w.Path == p.Dir) {
			seen = append(seen, w.Path)
		}
	}
	visible := slices.Clone(seen)
	for _, s := range slices.Concat(m.Places, placed) {
		if s.As == shim.Shown {
			visible = append(visible, s.Path)
		}
	}
	gone := func(path string) bool {
		return within(path) && !schema.Below(path, visible...)
	}
	m.Places = slices.DeleteFunc(m.Places, func(at shim.Place) bool {
		switch at.As {
		case shim.Writable:
			return slices.Contains(seen, at.Path) || gone(at.Path) || p.moved() && at.Path == p.Dir
		case shim.Temporary:
			return within(at.Path)
		case shim.Shown, shim.Private:
			return false
		}
		return gone(at.Path)
	})
	put(shim.Temporary, startup.Outermost(covered)...)
	put(shim.Writable, startup.Outermost(seen)...)
	m.Places = append(m.Places, placed...)
}

// ruleset is the part of the profile that Landlock can enforce. The mount namespace handles exceptions below allowed
// directories. Without one, every path is allowed except those that must not be read.
func (p *Profile) ruleset(abi int, mounted bool) *shim.Ruleset {
	files, network, scoped := handled(abi)
	r := &shim.Ruleset{Scoped: scoped}
	if p.Network.Mode == sandboxfile.NetNone {
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
		if len(p.links) > 0 {
			add(carriedAt, accessAll, true)
		}
		add("/proc", unix.LANDLOCK_ACCESS_FS_WRITE_FILE|unix.LANDLOCK_ACCESS_FS_TRUNCATE, false)
	} else {
		for _, rule := range p.readable() {
			add(rule.Path, rule.Access, true)
		}
		for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"} {
			add("/dev/"+name, accessStore, true)
		}
		if p.Mode == sandboxfile.WorkspaceWrite {
			add("/dev/shm", accessAll, true)
		}
	}
	for _, e := range p.Plan.Paths {
		if e.changes && e.Access == AccessWrite && e.Rule != ruleReach ||
			e.Access == AccessTemporary && e.Rule != ruleDevices || e.changes && e.Access == AccessLayer && mounted {
			add(e.Target, accessAll, p.moved() && schema.Below(e.Target, p.Dir)) // that is seen elsewhere
		}
	}
	for _, r := range p.replaced {
		if !mounted {
			break
		}
		add(r.Path, accessAll, false)
	}
	if p.fresh != "" && p.moved() {
		add(p.away.At, accessAll, false)
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
		inside := p.Plan.inside(dir)
		if p.Plan.Path(dir).Access == AccessNone && p.Plan.hides(dir) {
			walked := ""
			for _, e := range inside {
				if e.changes && e.Access.visible() && (walked == "" || !schema.Below(e.Target, walked)) {
					walked = e.Target
					walk(walked)
				}
			}
			return
		}
		if !slices.ContainsFunc(inside, func(e Effect) bool { return e.Access == AccessNone }) {
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
