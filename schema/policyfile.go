package schema

import (
	"fmt"
	"net"
	"path"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Policy is policy.json: the policy that was in force, in its effective form.
// It is there when the run had a policy file or a client added rules.
type Policy struct {
	Schema string `json:"schema"` // PolicyV0
	RunID  string `json:"run_id"`
	// Digest is "sha256:" and 64 hex digits of the policy file's bytes; null
	// without a file.
	Digest *string `json:"digest"`
	// Version is the version of the file's format: 1.
	Version int         `json:"version"`
	Tools   PolicyTools `json:"tools"`
	// Resources, Prompts and ServerRequests are there when the policy lists any.
	Resources      *PolicyTools `json:"resources,omitempty"`
	Prompts        *PolicyTools `json:"prompts,omitempty"`
	ServerRequests *PolicyTools `json:"server_requests,omitempty"`
	// Capabilities are those that tools may be granted; null means any.
	Capabilities []string `json:"capabilities"`
	// Rules are the file's, in its order.
	Rules []PolicyRule `json:"rules"`
	// Model is there when the policy says something of requests to models.
	Model *PolicyModel `json:"model,omitempty"`
	// Sandbox is what the policy meant for the run: its paths, resolved, its
	// network, environment (names only) and user, and how each layer that enforces
	// them went. Absent without a sandbox.
	Sandbox jsontext.Value `json:"sandbox,omitempty"`
	// ClientRules are those that clients added while the run went on.
	ClientRules []PolicyRule `json:"client_rules"`
}

// Home is the command's home directory; nil if that is not known.
func (p *Policy) Home() *Home {
	var sandbox struct {
		Home *Home `json:"home"`
	}
	if p == nil || len(p.Sandbox) == 0 || json.Unmarshal(p.Sandbox, &sandbox) != nil {
		return nil
	}
	return sandbox.Home
}

// Domains are the names of hosts, globs and addresses that a sandbox's network allows, without ports.
func (p *Policy) Domains() (all []string) {
	var sandbox struct {
		Network struct {
			AllowedDomains []string `json:"allowed_domains"`
		} `json:"network"`
	}
	if p == nil || len(p.Sandbox) == 0 || json.Unmarshal(p.Sandbox, &sandbox) != nil {
		return nil
	}
	for _, domain := range sandbox.Network.AllowedDomains {
		if host, _, err := net.SplitHostPort(domain); err == nil {
			domain = host
		}
		all = append(all, domain)
	}
	return all
}

// Proxy is the address of the sandbox's proxy as the command has it; empty without one.
func (p *Policy) Proxy() string {
	var sandbox struct {
		Network struct {
			Proxy string `json:"proxy"`
		} `json:"network"`
	}
	if p == nil || len(p.Sandbox) == 0 || json.Unmarshal(p.Sandbox, &sandbox) != nil {
		return ""
	}
	return sandbox.Network.Proxy
}

// Layer returns a function that reports whether what was written to a path went to the layer of a private home.
func (p *Policy) Layer() func(path string) bool {
	effect := p.Effect()
	return func(name string) bool {
		_, access := effect(name)
		return access == "layer"
	}
}

// Effect returns a function that returns what the sandbox's plan says about a path: the nearest path above it that the
// plan lists, or itself, and the access to that. Both are empty if there was no sandbox.
func (p *Policy) Effect() func(path string) (target, access string) {
	var sandbox struct {
		Plan struct {
			Paths []struct {
				Target string `json:"target"`
				Access string `json:"access"`
			} `json:"paths"`
		} `json:"plan"`
	}
	if p == nil || len(p.Sandbox) == 0 || json.Unmarshal(p.Sandbox, &sandbox) != nil {
		return func(string) (string, string) { return "", "" }
	}
	access := map[string]string{}
	for _, e := range sandbox.Plan.Paths {
		access[e.Target] = e.Access
	}
	return func(name string) (string, string) {
		for at := path.Clean(name); ; at = path.Dir(at) {
			if a, ok := access[at]; ok || at == "/" || at == "." {
				return at, a
			}
		}
	}
}

// PolicyModel is about requests to models.
type PolicyModel struct {
	// ProviderTools is "deny" where requests must not declare tools that the provider runs.
	ProviderTools string `json:"provider_tools"`
}

// PolicyTools lists tool names. A null Allow allows every tool; one that is
// there denies the rest, also when it is empty. Deny wins.
type PolicyTools struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// PolicyRule is one rule. Which keys it uses depends on Rule.
type PolicyRule struct {
	Name    string   `json:"name"`
	Rule    string   `json:"rule"`
	Target  string   `json:"target,omitempty"`
	Key     string   `json:"key,omitempty"`
	Pattern string   `json:"pattern,omitempty"`
	Values  []string `json:"value,omitempty"`
	Paths   []string `json:"value_path,omitempty"`
	// Limit and WindowMS are rate_limit_tool's: calls in any such window.
	Limit    int64 `json:"limit,omitempty"`
	WindowMS int64 `json:"window_ms,omitempty"`
	// TNS is when a client added the rule, on the runner's clock.
	TNS int64 `json:"t_ns,omitempty"`
	// Broken says why the rule cannot be evaluated: it then denies every call
	// of its target.
	Broken string `json:"broken,omitempty"`
}

// GatewaySession is session.json: who spoke to the gateway, what they called
// the run's end, and the gateway's own account. It is there when a client
// opened recording.
type GatewaySession struct {
	Schema             string `json:"schema"` // GatewaySessionV0
	RunID              string `json:"run_id"`
	AgentID            string `json:"agent_id"`
	Intent             string `json:"intent"`
	OutcomeDescription string `json:"outcome_description,omitempty"`
	// State is completed or incomplete.
	State string `json:"state"`
	// Outcome is the client's own word for how the run went; a claim.
	Outcome string `json:"outcome,omitempty"`
	// OutcomeReport is what the client said beside it; absent when it said only the word.
	OutcomeReport *OutcomeReport `json:"outcome_report,omitempty"`
	TStartNS      int64          `json:"t_start_ns"`
	TEndNS        int64          `json:"t_end_ns"`
	Turns         uint64         `json:"turns"`
	// Calls counts the lines of the audit layer by the kind of their outcome.
	Calls map[string]uint64 `json:"calls"`
	// Cut is how many values of the turns are not whole.
	Cut uint64 `json:"cut,omitzero"`
}

// OutcomeReport is what a client says of a run that it completes, beside the outcome's word.
type OutcomeReport struct {
	Summary   string         `json:"summary,omitempty"`
	Evidence  jsontext.Value `json:"evidence,omitempty"`
	Metrics   jsontext.Value `json:"metrics,omitempty"`
	Timestamp jsontext.Value `json:"timestamp,omitempty"`
}

// CutReason says in the health that values of turns were cut.
func CutReason(values uint64) Reason {
	return Reason{
		Subject: "gateway", Code: "values_cut",
		Message: fmt.Sprintf("%d values in turns were cut; the member cut of a turn lists them", values),
		Remedy:  "let the tool write large results to files",
	}
}
