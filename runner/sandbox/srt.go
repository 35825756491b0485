package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/internal/strict"
)

// srtFile are the settings of the sandbox runtime (srt) that Claude Code uses,
// as its sandbox-config.ts has them. What means nothing on Linux there means
// nothing here; see unsupported for what is refused.
type srtFile struct {
	Network    srtNetwork    `json:"network"`
	Filesystem srtFilesystem `json:"filesystem"`

	IgnoreViolations map[string][]string `json:"ignoreViolations"`
	EnableWeaker     bool                `json:"enableWeakerNestedSandbox"`
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
	HTTPProxyPort       *int              `json:"httpProxyPort"`
	SocksProxyPort      *int              `json:"socksProxyPort"`
	MitmProxy           jsontext.Value    `json:"mitmProxy"`
	TLSTerminate        jsontext.Value    `json:"tlsTerminate"`
	ParentProxy         jsontext.Value    `json:"parentProxy"`
}

type srtFilesystem struct {
	Disabled       bool     `json:"disabled"`
	DenyRead       []string `json:"denyRead"`
	AllowRead      []string `json:"allowRead"`
	AllowWrite     []string `json:"allowWrite"`
	DenyWrite      []string `json:"denyWrite"`
	AllowGitConfig bool     `json:"allowGitConfig"`
}

type srtCredentials struct {
	Files []struct {
		Path string `json:"path"`
		Mode string `json:"mode"`
	} `json:"files"`
	EnvVars []struct {
		Name string `json:"name"`
		Mode string `json:"mode"`
	} `json:"envVars"`
}

// srtDefaultWrites are writable in srt without being named.
var srtDefaultWrites = []string{"/tmp/claude", "~/.npm/_logs", "~/.claude/debug"}

// IsSRT tells whether JSON data are srt settings rather than a policy: they
// have no version and no mode, and all the lists that srt demands.
func IsSRT(data []byte) bool {
	var top map[string]jsontext.Value
	if json.Unmarshal(data, &top) != nil {
		return false
	}
	for _, key := range []string{"version", "mode", "on_unavailable", "tools", "rules", "env", "limits", "user", "capabilities"} {
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

// ParseSRT reads srt settings. A setting that would change what is enforced and
// is not supported is an error that names it.
func ParseSRT(data []byte) (*Settings, error) {
	var f srtFile
	if err := strict.Decode(data, strict.JSON, &f); err != nil {
		return nil, err
	}
	if err := f.unsupported(); err != nil {
		return nil, err
	}
	s := &Settings{Mode: WorkspaceWrite, exact: true, gitConfig: f.Filesystem.AllowGitConfig, unrestricted: f.Filesystem.Disabled, sockets: f.Network.AllowAllUnixSockets}
	if f.EnableWeaker {
		s.OnUnavailable = Degrade
	}
	s.Filesystem = &Filesystem{
		AllowWrite: append(slices.Clone(srtDefaultWrites), f.Filesystem.AllowWrite...),
		DenyWrite:  f.Filesystem.DenyWrite, DenyRead: f.Filesystem.DenyRead, AllowRead: f.Filesystem.AllowRead,
	}
	s.Network = &Network{
		Mode: NetAllowlist, AllowedDomains: f.Network.AllowedDomains, DeniedDomains: f.Network.DeniedDomains,
		AllowUnixSockets: f.Network.AllowUnixSockets,
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

// unsupported names what would be enforced otherwise than it says.
func (f *srtFile) unsupported() error {
	given := map[string]bool{
		"network.httpProxyPort":  f.Network.HTTPProxyPort != nil,
		"network.socksProxyPort": f.Network.SocksProxyPort != nil,
		"network.mitmProxy":      len(f.Network.MitmProxy) > 0,
		"network.tlsTerminate":   len(f.Network.TLSTerminate) > 0,
		"network.parentProxy":    len(f.Network.ParentProxy) > 0,
		"git":                    len(f.Git) > 0,
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if given[key] {
			return fmt.Errorf("%s: assay-run does not support this srt setting; remove it", key)
		}
	}
	if c := f.Credentials; c != nil {
		for i, file := range c.Files {
			if file.Mode != "deny" {
				return fmt.Errorf("credentials.files[%d].mode: assay-run supports deny alone; %q would show a made-up value", i, file.Mode)
			}
		}
		for i, v := range c.EnvVars {
			if v.Mode != "deny" || strings.ContainsAny(v.Name, "*=") {
				return fmt.Errorf("credentials.envVars[%d].mode: assay-run supports deny alone; %q would show a made-up value", i, v.Mode)
			}
		}
	}
	return nil
}
