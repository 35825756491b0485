package sandbox

import "github.com/assay-run/assay-run/runner/sandbox/internal/shim"

// Profile is a policy in effect: what Settings mean in one working directory,
// for one user, at one moment. Its JSON is what the bundle's policy.json says;
// values of the environment are not in it.
type Profile struct {
	Mode          string `json:"mode"`
	OnUnavailable string `json:"on_unavailable"`
	Dir           string `json:"workdir"`
	// Write are the trees and files that may be written; DenyWrite are exceptions
	// below them. DenyRead cannot be opened; AllowRead are exceptions below those.
	Write     []Path `json:"write"`
	DenyWrite []Path `json:"deny_write"`
	DenyRead  []Path `json:"deny_read"`
	AllowRead []Path `json:"allow_read"`
	// Private are directories that the run has for its own, empty at its start.
	Private []Path `json:"private"`
	// Absent are paths that the policy names and that do not exist: nothing was
	// allowed there, and nothing could be protected.
	Absent  []Path     `json:"absent"`
	Network NetProfile `json:"network"`
	Env     EnvProfile `json:"env"`
	User    *User      `json:"user"`
	PIDs    bool       `json:"isolate_pid"`
	// NoTyping refuses to put input into a terminal, in every mode.
	NoTyping   bool `json:"no_typing,omitzero"`
	env        *Env
	sockets    []Path // of others, hidden where files can be hidden
	startFiles []Path // that may be created while the run goes on, and should not
	open       bool   // the file system is not restricted
	fresh      string // see Strict; else empty
	depth      int    // to which repositories are looked for below Dir
}

// Path is a path with the rule that it comes from, such as
// filesystem.denyRead[0] or protected.
type Path struct {
	Path string `json:"path"`
	Rule string `json:"rule"`
}

// NetProfile is the network in effect.
type NetProfile struct {
	Mode           string   `json:"mode"`
	AllowedDomains []string `json:"allowed_domains"`
	DeniedDomains  []string `json:"denied_domains"`
	LocalPorts     []int    `json:"local_ports"`
	UnixSockets    []string `json:"unix_sockets"`

	reasons map[string]string
}

// EnvProfile are the names of variables: what passes (null: everything), what
// is set and what is dropped.
type EnvProfile struct {
	Pass []string `json:"pass"`
	Set  []string `json:"set"`
	Drop []string `json:"drop"`
}

// User is who the command runs as.
type User struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups"`

	name string // empty where the user has no account
	home string // "/" where the user has no account
}

// Restricted tells whether the profile restricts anything that layers are
// needed for.
func (p *Profile) Restricted() bool { return p.Mode != Observe || p.PIDs || p.User != nil }

// Layer is how a layer of the sandbox went.
type Layer = shim.Report

// Layers, in the order in which they are built.
const (
	LayerPrivileges = shim.Privileges
	LayerNamespaces = shim.Namespaces
	LayerFiles      = shim.Files
	LayerNetwork    = shim.Network
	LayerLandlock   = shim.Landlock
	LayerSeccomp    = shim.Seccomp
	LayerCgroupBPF  = "cgroup_bpf" // programs on the cgroup that judge addresses
)

// States of a layer.
const (
	Enforced    = shim.Enforced
	Degraded    = shim.Degraded
	Unavailable = shim.Unavailable
)
