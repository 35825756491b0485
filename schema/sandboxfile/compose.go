package sandboxfile

import (
	"embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema/config"
)

//go:embed profiles/*.yaml
var profileFiles embed.FS

// ProfileFile is a profile: what programs of one kind need, and why.
type ProfileFile struct {
	Name string
	// Text is the file's content, as it is shown.
	Text     string
	Settings Settings
}

// Builtins lists the names of the built-in profiles.
func Builtins() []string {
	entries, _ := profileFiles.ReadDir("profiles") // embedded files can always be read
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Builtin returns a built-in profile.
func Builtin(name string) (*ProfileFile, error) {
	data, err := profileFiles.ReadFile(path.Join("profiles", name+".yaml"))
	if err != nil || strings.ContainsAny(name, "/.") {
		return nil, fmt.Errorf("%q is not a built-in profile; the profiles are %s", name,
			strings.Join(Builtins(), ", "))
	}
	p := &ProfileFile{Name: name, Text: string(data)}
	var file struct {
		Version *int64 `json:"version"`
		Settings
	}
	if err := config.Decode(data, config.YAML, &file); err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	p.Settings = file.Settings
	return p, p.Settings.Check()
}

// Compose combines settings: it joins lists, and for other settings the last value wins. Denials take precedence.
func Compose(all ...Settings) Settings {
	var out Settings
	for _, s := range all {
		last(&out.Mode, s.Mode)
		last(&out.OnUnavailable, s.OnUnavailable)
		last(&out.User, s.User)
		last(&out.Home, s.Home)
		last(&out.HomeLayer, s.HomeLayer)
		last(&out.Login, s.Login)
		out.Hidden = append(slices.Clip(out.Hidden), s.Hidden...)
		if s.Limits != nil {
			out.Limits = s.Limits
		}
		out.Exact, out.GitConfig = out.Exact || s.Exact, out.GitConfig || s.GitConfig
		out.Sockets, out.Unrestricted = out.Sockets || s.Sockets, out.Unrestricted || s.Unrestricted
		out.Filesystem = composeFiles(out.Filesystem, s.Filesystem)
		out.Network = composeNetwork(out.Network, s.Network)
		out.Env = composeEnv(out.Env, s.Env)
	}
	return out
}

func last[T ~string](into *T, s T) {
	if s != "" {
		*into = s
	}
}

func composeFiles(a, b *Filesystem) *Filesystem {
	if a == nil || b == nil {
		return either(a, b)
	}
	return &Filesystem{
		AllowWrite: slices.Concat(a.AllowWrite, b.AllowWrite), DenyWrite: slices.Concat(a.DenyWrite, b.DenyWrite),
		DenyRead: slices.Concat(a.DenyRead, b.DenyRead), AllowRead: slices.Concat(a.AllowRead, b.AllowRead),
		PrivateTmp: a.PrivateTmp || b.PrivateTmp,
	}
}

func composeNetwork(a, b *Network) *Network {
	if a == nil || b == nil {
		return either(a, b)
	}
	n := &Network{
		Mode: a.Mode, AllowedDomains: slices.Concat(a.AllowedDomains, b.AllowedDomains),
		DeniedDomains:    slices.Concat(a.DeniedDomains, b.DeniedDomains),
		AllowLocalPorts:  slices.Concat(a.AllowLocalPorts, b.AllowLocalPorts),
		AllowUnixSockets: slices.Concat(a.AllowUnixSockets, b.AllowUnixSockets),
		Reasons:          map[string]string{},
	}
	maps.Copy(n.Reasons, a.Reasons)
	maps.Copy(n.Reasons, b.Reasons)
	last(&n.Mode, b.Mode)
	if n.Mode != "" && n.Mode != NetAllowlist {
		n.AllowedDomains, n.DeniedDomains = nil, nil // with this mode, no domain or every domain is reachable
	}
	return n
}

func composeEnv(a, b *Env) *Env {
	if a == nil || b == nil {
		return either(a, b)
	}
	e := &Env{Pass: a.Pass, Set: maps.Clone(a.Set), Drop: slices.Concat(a.Drop, b.Drop)}
	if b.Pass != nil {
		e.Pass = b.Pass
	}
	if e.Set == nil {
		e.Set = map[string]string{}
	}
	maps.Copy(e.Set, b.Set)
	return e
}

func either[T any](a, b *T) *T {
	if a == nil {
		return b
	}
	return a
}
