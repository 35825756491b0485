package schema

import (
	"fmt"
	"strings"
	"time"
)

// Applied is what a run was under, whoever asked for it. It is in run.json. How far the layers of a sandbox could be
// enforced is in policy.json, and which limits could not is in result.json.
type Applied struct {
	// Mode is observe, read-only or workspace-write.
	Mode Setting `json:"mode"`
	// Network is host, none, loopback or allowlist.
	Network Setting `json:"network"`
	// User is the command's user as it was asked for: a name, a uid, or uid:gid. Absent for the recorder's own.
	User *Setting `json:"user,omitempty"`
	// Limits are the limits, in the order memory, pids, cpus, wall.
	Limits []AppliedLimit `json:"limits"`
	// Home is private or real, as it was asked for; what it was is in policy.json. Absent in mode observe.
	Home *Setting `json:"home,omitempty"`
	// Agent is the recipe by which the agent was set up. What somebody else set is in the other fields, with where it
	// came from.
	Agent *AppliedAgent `json:"agent,omitempty"`
	// Profiles are the built-in policies, and Policy is the file, of which the rules are in policy.json.
	Profiles []string       `json:"profiles,omitempty"`
	Policy   *AppliedPolicy `json:"policy,omitempty"`
}

// Setting is a value and where it came from.
type Setting struct {
	Value string `json:"value"`
	From  string `json:"from"`
}

// AppliedLimit is a limit and where it came from.
type AppliedLimit struct {
	// Name is memory (Value is in bytes), pids (processes and threads), cpus (thousandths of one CPU) or wall (ms).
	Name  string `json:"name"`
	Value int64  `json:"value"`
	From  string `json:"from"`
}

// AppliedAgent is the recipe of an agent.
type AppliedAgent struct {
	// Name is the recipe's, and Path its file if it is not a built-in one.
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
	// Digest is "sha256:" and 64 hex digits of the recipe's bytes.
	Digest string `json:"digest"`
	From   string `json:"from"`
	// Mode, Home, Network and ModelGateway are what the recipe sets.
	Mode         string `json:"mode"`
	Home         string `json:"home"`
	Network      string `json:"network"`
	ModelGateway bool   `json:"model_gateway"`
	// ArgumentsOmitted are arguments of the recipe that the command did not get, as no word of it is the agent's
	// program.
	ArgumentsOmitted []string `json:"arguments_omitted,omitempty"`
}

// AppliedPolicy is the policy's file.
type AppliedPolicy struct {
	Path string `json:"path"`
	// Digest is "sha256:" and 64 hex digits of the file's bytes.
	Digest string `json:"digest"`
}

// Where a setting came from. A later one replaces an earlier one.
const (
	FromDefault = "default"
	FromAgent   = "agent" // its recipe
	FromProfile = "profile"
	FromPolicy  = "policy"
	FromSpec    = "spec"
	FromFlag    = "flag"
)

// Names of limits.
const (
	LimitMemory = "memory"
	LimitPids   = "pids"
	LimitCPUs   = "cpus"
	LimitWall   = "wall"
)

// Sandbox says in words which sandbox applied.
func (a *Applied) Sandbox() string {
	if a == nil {
		return "not recorded"
	}
	var parts []string
	add := func(what string, s Setting) { parts = append(parts, what+" "+s.Value+from(s.From)) }
	if a.Mode.Value != "observe" {
		add("mode", a.Mode)
		add("network", a.Network)
	}
	if a.Agent != nil {
		agent := "agent " + a.Agent.Name
		if n := len(a.Agent.ArgumentsOmitted); n > 0 {
			agent += " without its " + Count(n, "argument", "arguments")
		}
		parts = append(parts, agent)
	}
	if a.Home != nil && a.Home.From != FromDefault {
		add("home", *a.Home)
	}
	if a.User != nil {
		add("user", *a.User)
	}
	if len(a.Profiles) > 0 {
		parts = append(parts, "profile "+strings.Join(a.Profiles, ", "))
	}
	if a.Policy != nil {
		parts = append(parts, "policy "+a.Policy.Path)
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "; ")
}

// Limit says in words which limits applied; empty without any. unenforced are those that the host could not enforce.
func (a *Applied) Limit(unenforced []string) string {
	if a == nil {
		return ""
	}
	var parts []string
	for _, l := range a.Limits {
		value := fmt.Sprint(l.Value)
		switch l.Name {
		case LimitMemory:
			value = wholeSize(l.Value)
		case LimitCPUs:
			value = fmt.Sprint(float64(l.Value) / 1000)
		case LimitWall:
			value = (time.Duration(l.Value) * time.Millisecond).String()
		}
		text := l.Name + " " + value + from(l.From)
		for _, name := range unenforced {
			if name == l.Name {
				text += ", not enforced"
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func from(source string) string {
	if source == FromDefault {
		return ""
	}
	return " (" + source + ")"
}
