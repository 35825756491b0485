package sandboxfile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema/config"
)

// srtFile has the settings of the sandbox runtime (srt) of Claude Code, as in its sandbox-config.ts. Settings that
// have no effect on Linux there have none here; see unsupported for what is refused.
type srtFile struct {
	Network    srtNetwork    `json:"network"`
	Filesystem srtFilesystem `json:"filesystem"`

	IgnoreViolations map[string][]string `json:"ignoreViolations"`
	EnableWeaker     bool                `json:"enableWeakerNestedSandbox"`
	NestedUserns     jsontext.Value      `json:"allowNestedUserNamespaces"`
	WeakerNetwork    bool                `json:"enableWeakerNetworkIsolation"`
	AllowAppleEvents bool                `json:"allowAppleEvents"`
	AllowPty         bool                `json:"allowPty"`
	SearchDepth      *int                `json:"mandatoryDenySearchDepth"`
	Ripgrep          jsontext.Value      `json:"ripgrep"`
	Seccomp          jsontext.Value      `json:"seccomp"`
	BwrapPath        string              `json:"bwrapPath"`
	SocatPath        string              `json:"socatPath"`
	JavaAgentJarPath string              `json:"javaAgentJarPath"`
	Windows          jsontext.Value      `json:"windows"`
	Git              jsontext.Value      `json:"git"`
	Credentials      *srtCredentials     `json:"credentials"`
}

type srtNetwork struct {
	AllowedDomains      []string          `json:"allowedDomains"`
	DeniedDomains       []string          `json:"deniedDomains"`
	DeniedReasons       map[string]string `json:"deniedDomainReasons"`
	StrictAllowlist     bool              `json:"strictAllowlist"`
	AllowUnixSockets    []string          `json:"allowUnixSockets"`
	AllowAllUnixSockets bool              `json:"allowAllUnixSockets"`
	AllowLocalBinding   bool              `json:"allowLocalBinding"`
	AllowMachLookup     []string          `json:"allowMachLookup"`

	// Refused settings: see unsupported.
	DeniedResolvedAddresses jsontext.Value `json:"deniedResolvedAddresses"`
	HTTPProxyPort           jsontext.Value `json:"httpProxyPort"`
	SocksProxyPort          jsontext.Value `json:"socksProxyPort"`
	MitmProxy               jsontext.Value `json:"mitmProxy"`
	FilterRequest           jsontext.Value `json:"filterRequest"`
	AllowPlaintextHeaderSet jsontext.Value `json:"allowPlaintextHeaderSet"`
	StripResponseHeaders    jsontext.Value `json:"stripResponseHeaders"`
	RefuseOpaqueTunnels     jsontext.Value `json:"refuseOpaqueTunnels"`
	RequireHostMatch        jsontext.Value `json:"requireHostMatch"`
	AmbiguousRequestTarget  jsontext.Value `json:"ambiguousRequestTarget"`
	TLSTerminate            jsontext.Value `json:"tlsTerminate"`
	ParentProxy             jsontext.Value `json:"parentProxy"`
}

type srtFilesystem struct {
	Disabled       bool      `json:"disabled"`
	DenyRead       []srtPath `json:"denyRead"`
	AllowRead      []srtPath `json:"allowRead"`
	AllowWrite     []srtPath `json:"allowWrite"`
	DenyWrite      []srtPath `json:"denyWrite"`
	AllowGitConfig bool      `json:"allowGitConfig"`
}

// srtPath is a path, or an object that says that its path is not a pattern.
type srtPath string

// UnmarshalJSON accepts a string or an object.
func (p *srtPath) UnmarshalJSON(b []byte) error {
	if jsontext.Value(b).Kind() == '"' {
		text, err := jsontext.AppendUnquote(nil, b)
		*p = srtPath(text)
		return err
	}
	var entry struct {
		Path    string `json:"path"`
		Literal bool   `json:"literal"`
	}
	if err := json.Unmarshal(b, &entry, json.RejectUnknownMembers(true)); err != nil || !entry.Literal ||
		entry.Path == "" {
		return errors.New(`found neither a path nor {"path": "/a/path", "literal": true}`)
	}
	if strings.ContainsAny(entry.Path, "*?[{\\") {
		return fmt.Errorf("assay-run does not support literal for a path with one of the characters *?[{\\: %q",
			entry.Path)
	}
	*p = srtPath(entry.Path)
	return nil
}

func texts(paths []srtPath) []string {
	var list []string
	for _, p := range paths {
		list = append(list, string(p))
	}
	return list
}

type srtCredentials struct {
	Files []struct {
		Path string `json:"path"`
		srtMasking
		MaskDuplicates jsontext.Value `json:"maskDuplicates"`
	} `json:"files"`
	EnvVars []struct {
		Name string `json:"name"`
		srtMasking
	} `json:"envVars"`
	AllowPlaintextInject bool           `json:"allowPlaintextInject"`
	AWSPairs             jsontext.Value `json:"awsPairs"`
	SigV4                jsontext.Value `json:"sigv4"`
}

// srtMasking is the replacement for a credential whose mode is mask. In other modes, everything but the mode is
// ignored.
type srtMasking struct {
	Mode             string         `json:"mode"`
	Extract          jsontext.Value `json:"extract"`
	OnExtractNoMatch jsontext.Value `json:"onExtractNoMatch"`
	Decode           jsontext.Value `json:"decode"`
	MaskClaims       jsontext.Value `json:"maskClaims"`
	InjectHosts      jsontext.Value `json:"injectHosts"`
}

// srtDefaultWrites are writable in srt by default.
var srtDefaultWrites = []string{"/tmp/claude", "~/.npm/_logs", "~/.claude/debug"}

// IsSRT reports whether JSON data are srt settings and not a policy: they have no version and no mode, and all lists
// that srt requires.
func IsSRT(data []byte) bool {
	var top map[string]jsontext.Value
	if json.Unmarshal(data, &top) != nil {
		return false
	}
	for _, key := range []string{"version", "mode", "on_unavailable", "tools", "rules", "env", "limits", "user",
		"capabilities"} {
		if _, ours := top[key]; ours {
			return false
		}
	}
	has := func(section string, keys ...string) bool {
		var m map[string]jsontext.Value
		if json.Unmarshal(top[section], &m) != nil {
			return false
		}
		return !slices.ContainsFunc(keys, func(k string) bool { _, ok := m[k]; return !ok })
	}
	return has("network", "allowedDomains", "deniedDomains") && has("filesystem", "denyRead", "allowWrite", "denyWrite")
}

// ParseSRT reads srt settings. An unsupported setting that would change what is enforced is an error that names it.
func ParseSRT(data []byte) (*Settings, error) {
	var f srtFile
	if err := config.Decode(data, config.JSON, &f); err != nil {
		return nil, err
	}
	if err := f.unsupported(); err != nil {
		return nil, err
	}
	s := &Settings{Mode: WorkspaceWrite, Exact: true, GitConfig: f.Filesystem.AllowGitConfig,
		Unrestricted: f.Filesystem.Disabled, Sockets: f.Network.AllowAllUnixSockets}
	if d := f.SearchDepth; d != nil && (*d < 1 || *d > 10) { // assay-run searches all of it
		return nil, fmt.Errorf("mandatoryDenySearchDepth: found %d; allowed are 1 to 10", *d)
	}
	if f.EnableWeaker {
		s.OnUnavailable = Degrade
	}
	s.Filesystem = &Filesystem{
		AllowWrite: append(texts(f.Filesystem.AllowWrite), srtDefaultWrites...),
		DenyWrite:  texts(f.Filesystem.DenyWrite), DenyRead: texts(f.Filesystem.DenyRead),
		AllowRead: texts(f.Filesystem.AllowRead),
	}
	s.Network = &Network{
		Mode: NetAllowlist, AllowedDomains: f.Network.AllowedDomains, DeniedDomains: f.Network.DeniedDomains,
		AllowUnixSockets: f.Network.AllowUnixSockets, Reasons: f.Network.DeniedReasons,
	}
	if c := f.Credentials; c != nil {
		s.Env = &Env{}
		for _, file := range c.Files {
			s.Filesystem.DenyRead = append(s.Filesystem.DenyRead, file.Path)
		}
		for _, v := range c.EnvVars {
			s.Env.Drop = append(s.Env.Drop, v.Name)
		}
	}
	return s, s.Check()
}

// unsupported returns an error for settings that would not be enforced as they say.
func (f *srtFile) unsupported() error {
	n := &f.Network
	given := map[string]jsontext.Value{
		"network.deniedResolvedAddresses": n.DeniedResolvedAddresses,
		"network.httpProxyPort":           n.HTTPProxyPort,
		"network.socksProxyPort":          n.SocksProxyPort,
		"network.mitmProxy":               n.MitmProxy,
		"network.filterRequest":           n.FilterRequest,
		"network.allowPlaintextHeaderSet": n.AllowPlaintextHeaderSet,
		"network.stripResponseHeaders":    n.StripResponseHeaders,
		"network.refuseOpaqueTunnels":     n.RefuseOpaqueTunnels,
		"network.requireHostMatch":        n.RequireHostMatch,
		"network.ambiguousRequestTarget":  n.AmbiguousRequestTarget,
		"network.tlsTerminate":            n.TLSTerminate,
		"network.parentProxy":             n.ParentProxy,
		"allowNestedUserNamespaces":       f.NestedUserns,
		"git":                             f.Git,
	}
	if c := f.Credentials; c != nil {
		given["credentials.awsPairs"], given["credentials.sigv4"] = c.AWSPairs, c.SigV4
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if v := string(given[key]); v != "" && v != "false" && v != "[]" { // the same as without the key
			return fmt.Errorf("%s: assay-run does not support this srt setting; remove it", key)
		}
	}
	if c := f.Credentials; c != nil {
		for i, file := range c.Files {
			if file.Mode != "deny" {
				return fmt.Errorf("credentials.files[%d].mode: assay-run supports deny alone; %q would "+
					"show a made-up value", i, file.Mode)
			}
		}
		for i, v := range c.EnvVars {
			if v.Mode != "deny" || strings.ContainsAny(v.Name, "*=") {
				return fmt.Errorf("credentials.envVars[%d].mode: assay-run supports deny alone; %q would "+
					"show a made-up value", i, v.Mode)
			}
		}
	}
	return nil
}
