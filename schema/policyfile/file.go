package policyfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// MaxRules limits the rules of a file, and those of a file and clients together.
const MaxRules = 1024

// Rule names that stand for a file's lists of tools.
const (
	AllowList = "tools.allow"
	DenyList  = "tools.deny"
)

// Reserved reports whether no rule may have a name, as denials by something else have it.
func Reserved(name string) bool {
	return name == AllowList || name == DenyList || strings.HasPrefix(name, "gateway.")
}

// maxFileBytes limits a policy file.
const maxFileBytes = 256 << 10

// File is a policy as an operator wrote it. It is read once, before the agent starts. The zero File forbids nothing.
type File struct {
	Tools Tools
	// Resources (by URI), Prompts, and ServerRequests (by method) are what an MCP client may read from a server, and
	// what a server may ask of a client.
	Resources, Prompts, ServerRequests Tools
	// Capabilities are those that tools may get; nil means any.
	Capabilities *[]string
	Rules        []Rule
	// Model restricts requests to models.
	Model Model
	// Sandbox has the file's settings for the sandbox.
	Sandbox sandboxfile.Settings
	// Effective is the resulting sandbox of one run, as in policy.json; nil without a sandbox. The code that makes
	// the sandbox sets it.
	Effective jsontext.Value
	// Digest is "sha256:" and 64 hex digits of the file's bytes.
	Digest string
	// Warnings name rules that deny everything because their pattern cannot be used, and rules that may deny less
	// than expected.
	Warnings []string
}

// Model restricts a run's requests to models. Only the model gateway can enforce it.
type Model struct {
	// ProviderTools is empty, "allow" or "deny". It restricts tools that the provider runs, such as web search, code
	// execution and remote MCP servers.
	ProviderTools string `json:"provider_tools"`
}

// DeniesProviderTools reports whether requests to models must not declare tools that the provider runs.
func (f *File) DeniesProviderTools() bool { return f != nil && f.Model.ProviderTools == "deny" }

// Denials describes for people what the file denies of tool calls and of what an MCP server and client may ask for,
// in one line each.
func (f *File) Denials() (lines []string) {
	for _, l := range []struct {
		what string
		Tools
	}{{"tools", f.Tools}, {"resources", f.Resources}, {"prompts", f.Prompts}, {"server requests", f.ServerRequests}} {
		if l.Allow != nil {
			lines = append(lines, fmt.Sprintf("%s: denies all but %s", l.what, quoted(*l.Allow)))
		}
		if len(l.Deny) > 0 {
			lines = append(lines, fmt.Sprintf("%s: denies %s", l.what, quoted(l.Deny)))
		}
	}
	if f.Capabilities != nil {
		lines = append(lines, "capabilities: denies all but "+quoted(*f.Capabilities))
	}
	if f.DeniesProviderTools() {
		lines = append(lines, "model: denies requests that declare tools which the provider runs")
	}
	for _, r := range f.Rules {
		lines = append(lines, fmt.Sprintf("rule %q: denies calls of %q by %s", r.Name, r.Target, r.Rule))
	}
	return lines
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strconv.Quote(n)
	}
	return strings.Join(out, ", ")
}

// fileKeys is a policy file's top level.
type fileKeys struct {
	Version        *int64    `json:"version"`
	Tools          Tools     `json:"tools"`
	Resources      Tools     `json:"resources"`
	Prompts        Tools     `json:"prompts"`
	ServerRequests Tools     `json:"server_requests"`
	Capabilities   *[]string `json:"capabilities"`
	Rules          []Rule    `json:"rules"`
	Model          Model     `json:"model"`
	sandboxfile.Settings
}

// Load reads the policy at path, which must be a regular file. The file's extension (.json, .yaml, .yml) decides the
// format, otherwise its first character. Unknown and duplicate keys are errors that name the file and the line.
func Load(path string) (*File, error) {
	data, err := config.ReadFile(path, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	p, err := Parse(data, config.FormatOf(path, data))
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", path, err)
	}
	return p, nil
}

// ParseYAML reads a policy in YAML.
func ParseYAML(data []byte) (*File, error) { return Parse(data, config.YAML) }

// Parse reads a policy in a format.
func Parse(data []byte, format config.Format) (*File, error) {
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("larger than %d bytes", maxFileBytes)
	}
	var keys fileKeys
	if format == config.JSON && sandboxfile.IsSRT(data) {
		settings, err := sandboxfile.ParseSRT(data)
		if err != nil {
			return nil, err
		}
		keys.Settings = *settings
	} else if err := config.Decode(data, format, &keys); err != nil {
		return nil, err
	}
	if err := keys.Settings.Check(); err != nil {
		return nil, err
	}
	if keys.Version != nil && *keys.Version != 1 {
		return nil, fmt.Errorf("version: found %d, only 1 is supported", *keys.Version)
	}
	sum := sha256.Sum256(data)
	f := &File{
		Sandbox: keys.Settings, Tools: keys.Tools, Resources: keys.Resources, Prompts: keys.Prompts,
		ServerRequests: keys.ServerRequests, Capabilities: keys.Capabilities, Rules: keys.Rules, Model: keys.Model,
		Digest: "sha256:" + hex.EncodeToString(sum[:]),
	}
	if !slices.Contains([]string{"", "allow", "deny"}, f.Model.ProviderTools) {
		return nil, fmt.Errorf("model.provider_tools: found %.40q, the values are allow and deny",
			f.Model.ProviderTools)
	}
	if len(f.Rules) > MaxRules {
		return nil, fmt.Errorf("rules: found %d, at most %d are allowed", len(f.Rules), MaxRules)
	}
	for name, list := range map[string]Tools{"tools": f.Tools, "resources": f.Resources, "prompts": f.Prompts,
		"server_requests": f.ServerRequests} {
		if err := list.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	seen := map[string]int{}
	for i, r := range f.Rules {
		if err := r.Check(); err != nil {
			return nil, fmt.Errorf("rules[%d]: %w", i, err)
		}
		if first, twice := seen[r.Name]; twice {
			return nil, fmt.Errorf("rules[%d]: the name %q is already used by rules[%d]", i, r.Name, first)
		}
		if Reserved(r.Name) {
			return nil, fmt.Errorf("rules[%d]: the name %q is reserved", i, r.Name)
		}
		seen[r.Name] = i
		if r.Rule == DenyToolParamMatching {
			if _, err := CompilePattern(r.Pattern); err != nil {
				f.Warnings = append(f.Warnings,
					fmt.Sprintf("rule %q denies every call of %s: %v", r.Name, r.Target, err))
			}
		}
		if r.Rule == DenyToolParam && slices.ContainsFunc(r.Value, func(v string) bool {
			return strings.ContainsAny(v, "/ ")
		}) {
			f.Warnings = append(f.Warnings,
				fmt.Sprintf("rule %q denies a parameter that equals its value: use pattern to deny a part of a "+
					"text, value_path to deny what is below a path", r.Name))
		}
	}
	return f, nil
}

// Tools lists tools, or other named things, by name or glob. A nil Allow allows all; otherwise everything that is not
// listed is denied. Deny takes precedence.
type Tools struct {
	Allow *[]string `json:"allow"`
	Deny  []string  `json:"deny"`
}

// check returns an error for an invalid name, or a glob that cannot be used.
func (t Tools) check() error {
	names := t.Deny
	if t.Allow != nil {
		names = slices.Concat(names, *t.Allow)
	}
	for _, n := range names {
		if n == "" || len(n) > maxValue {
			return fmt.Errorf("%.40q: a name must have 1 to %d bytes", n, maxValue)
		}
		if err := config.CheckGlob(n); err != nil {
			return err
		}
	}
	return nil
}
