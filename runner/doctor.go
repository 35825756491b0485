package runner

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/assay-run/assay-run/runner/internal/place"
	"github.com/assay-run/assay-run/schema"
)

// Diagnosis is what runs on this host can use, and how to fix the rest.
type Diagnosis struct {
	// Works reports whether a run works at all, even if degraded.
	Works    bool      `json:"works"`
	Platform string    `json:"platform"`
	Place    Place     `json:"place"`
	Findings []Finding `json:"findings"`
	// Fixes are the causes of everything that is not ok, each remedy once.
	Fixes []Fix `json:"fixes,omitempty"`
}

// Place is where this process runs. String describes it.
type Place = place.Place

// SeccompProfile is the profile for Docker and Podman that remedies name.
func SeccompProfile() []byte { return place.Seccomp }

// Fix is a cause of findings that are not ok, and its remedy.
type Fix struct {
	// Codes are the reason codes, in the order of the findings.
	Codes []string `json:"codes"`
	// Findings are the affected findings, as subject/name.
	Findings []string `json:"findings"`
	// Message has the first message of each code.
	Message string `json:"message"`
	// Remedy is empty if none is known.
	Remedy string `json:"remedy,omitempty"`
}

// Finding is one feature that a run can use.
type Finding struct {
	// Subject groups findings: run, cgroup, limits, terminal, kernel.
	Subject string `json:"subject"`
	Name    string `json:"name"`
	// State is ok, degraded or missing.
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"`
	// Reasons say why it is not ok, and how to fix it.
	Reasons []schema.Reason `json:"reasons,omitempty"`
	// Hooks are the eBPF observer's kernel hooks, and whether a run gets them.
	Hooks []HookFinding `json:"hooks,omitempty"`
}

// HookFinding is one hook of the eBPF observer.
type HookFinding struct {
	Name     string `json:"name"`
	Attached bool   `json:"attached"`
	// Detail says why the hook is not attached.
	Detail string `json:"detail,omitempty"`
}

// States of a Finding.
const (
	StateOK       = "ok"
	StateDegraded = "degraded"
	StateMissing  = "missing"
)

// fixes groups reasons that have the same remedy.
func fixes(findings []Finding) []Fix {
	var all []Fix
	for _, f := range findings {
		for _, r := range f.Reasons {
			i := slices.IndexFunc(all, func(x Fix) bool {
				return x.Remedy == r.Remedy && (r.Remedy != "" || x.Message == r.Message)
			})
			if i < 0 {
				i = len(all)
				all = append(all, Fix{Remedy: r.Remedy})
			}
			x := &all[i]
			switch {
			case x.Message == "":
				x.Message = r.Message
			case !slices.Contains(x.Codes, r.Code):
				x.Message += "; " + r.Message
			}
			x.Codes, x.Findings = appendNew(x.Codes, r.Code), appendNew(x.Findings, f.Subject+"/"+f.Name)
		}
	}
	return all
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// Errors of CheckHost.
var (
	// ErrPlatform is also returned by Run where runs are impossible.
	ErrPlatform = errors.New("assay-run runs commands on Linux only; verify, inspect, events and recover work here")
	ErrNoProc   = errors.New("/proc is not mounted here, and every run needs it")
)

// CheckHost returns why no run is possible on this host, whatever its spec: ErrPlatform, ErrNoProc or nil. Diagnose
// says more, and takes longer.
func CheckHost() error { return checkHost(runtime.GOOS, "/proc") }

func checkHost(goos, proc string) error {
	if goos != "linux" {
		return ErrPlatform
	}
	if _, err := os.Stat(filepath.Join(proc, "self")); errors.Is(err, os.ErrNotExist) {
		return ErrNoProc
	}
	return nil
}
