package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxSockets bounds how many sockets are hidden one by one.
const maxSockets = 4096

// private makes the directories where a system's services have their sockets
// the run's own, and lists the sockets that are elsewhere: a path reaches a
// socket from every network namespace.
func (p *Profile) private(s *Settings, c Context) error {
	reach := append(append([]string{}, p.Network.UnixSockets...), c.Reach...)
	var shown []string
	for _, path := range reach {
		at, err := absolute(path, c)
		if err != nil {
			return err
		}
		real, err := filepath.EvalSymlinks(at)
		if err != nil {
			p.Absent = append(p.Absent, Path{at, "network.allowUnixSockets"})
			continue
		}
		shown = append(shown, real)
	}
	if s.Filesystem != nil && s.Filesystem.PrivateTmp {
		if err := p.privateTmp(c); err != nil {
			return err
		}
	}
	if s.sockets {
		return nil
	}
	for _, dir := range []string{"/run", "/var/run", lookup(c.Env, "XDG_RUNTIME_DIR"), "/tmp/.X11-unix", "/tmp/.ICE-unix"} {
		p.addPrivate(dir, "sockets")
	}
	// Names are resolved there on many hosts.
	for _, path := range append(shown, "/etc/resolv.conf") {
		real, err := filepath.EvalSymlinks(path)
		covered := func(d Path) bool { return Below(real, d.Path) && real != d.Path }
		if err == nil && (Below(real, "/dev/shm") || slices.ContainsFunc(p.Private, covered)) {
			p.AllowRead = append(p.AllowRead, Path{real, "sockets"})
		}
	}
	for _, path := range append(boundSockets(), namedSockets(c.Env)...) {
		if !isSocket(path) { // most are mounts of directories
			continue
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil || slices.Contains(shown, real) || len(p.sockets) >= maxSockets {
			continue
		}
		inside := func(d Path) bool { return Below(real, d.Path) }
		if Below(real, "/dev") || slices.ContainsFunc(p.Private, inside) || slices.ContainsFunc(p.DenyRead, inside) || slices.ContainsFunc(p.sockets, inside) {
			continue
		}
		p.sockets = append(p.sockets, Path{real, "sockets"})
	}
	return nil
}

func (p *Profile) addPrivate(dir, rule string) {
	if !filepath.IsAbs(dir) {
		return
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() || real == "/" {
		return
	}
	if !slices.ContainsFunc(p.Private, func(d Path) bool { return Below(real, d.Path) }) && !Below(p.Dir, real) {
		p.Private = append(p.Private, Path{real, rule})
	}
}

// rulePrivateTmp is the rule of the directories that are in memory.
const rulePrivateTmp = "filesystem.privateTmp"

// privateTmp makes /tmp the run's own, and the directory below it that TMPDIR names.
func (p *Profile) privateTmp(c Context) error {
	tmp, err := filepath.EvalSymlinks("/tmp")
	if err != nil {
		return fmt.Errorf("filesystem.privateTmp: %w", err)
	}
	if p.Dir == tmp {
		return fmt.Errorf("filesystem.privateTmp: the working directory is %s; start the command in another directory", tmp)
	}
	p.Private = append(p.Private, Path{tmp, rulePrivateTmp})
	if t := lookup(c.Env, "TMPDIR"); filepath.IsAbs(t) {
		real, err := filepath.EvalSymlinks(t)
		if err == nil && real != tmp && Below(real, tmp) && real != p.Dir {
			p.Private = append(p.Private, Path{real, rulePrivateTmp})
		}
	}
	return nil
}

// boundSockets are the sockets that are bound to a path in our network
// namespace, and those that are mounted from another.
func boundSockets() []string {
	var paths []string
	if b, err := os.ReadFile("/proc/net/unix"); err == nil {
		for line := range strings.Lines(string(b)) {
			// Num RefCount Protocol Flags Type St Inode Path
			if i := strings.Index(line, " /"); i >= 0 {
				paths = append(paths, strings.TrimSuffix(line[i+1:], "\n"))
			}
		}
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 4 {
				paths = append(paths, unescape(f[4]))
			}
		}
	}
	return paths
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	for _, e := range []string{`\040 `, "\\011\t", "\\012\n", `\134\`} {
		s = strings.ReplaceAll(s, e[:4], e[4:])
	}
	return s
}

// namedSockets are those that the environment leads to.
func namedSockets(env []string) []string {
	paths := []string{"/var/run/docker.sock", "/run/docker.sock"}
	for _, name := range []string{"SSH_AUTH_SOCK", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "GPG_AGENT_INFO", "TMUX"} {
		v := lookup(env, name)
		if _, rest, ok := strings.Cut(v, "path="); ok {
			v = rest
		}
		v, _, _ = strings.Cut(strings.TrimPrefix(v, "unix://"), ",")
		if filepath.IsAbs(v) {
			paths = append(paths, v)
		}
	}
	return paths
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeSocket != 0
}
