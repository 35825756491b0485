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

// Diagnosis is what this host offers to runs, and what would fix the rest.
type Diagnosis struct {
	// Works reports whether a run would work at all, in however degraded a form.
	Works    bool      `json:"works"`
	Platform string    `json:"platform"`
	Place    Place     `json:"place"`
	Findings []Finding `json:"findings"`
	// Fixes are the causes of all that is not ok, each with its remedy once.
	Fixes []Fix `json:"fixes,omitempty"`
}

// Place is where this process runs, and String names it in words.
type Place = place.Place

// SeccompProfile is a profile for Docker and Podman that remedies name.
func SeccompProfile() []byte { return place.Seccomp }

// Fix is a cause for which something is not ok, and the remedy.
type Fix struct {
	// Codes are the reasons' codes, in the order of the findings.
	Codes []string `json:"codes"`
	// Findings are what it concerns, as subject/name.
	Findings []string `json:"findings"`
	// Message is the first of each code, joined.
	Message string `json:"message"`
	// Remedy is empty if none is known.
	Remedy string `json:"remedy,omitempty"`
}

// Finding is one thing that a run can make use of.
type Finding struct {
	// Subject groups findings: run, cgroup, limits, terminal, kernel.
	Subject string `json:"subject"`
	Name    string `json:"name"`
	// State is ok, degraded or missing.
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"`
	// Reasons say why it is not ok, and what would fix that.
	Reasons []schema.Reason `json:"reasons,omitempty"`
	// Hooks are the kernel hooks of the eBPF observer, and whether a run has them.
	Hooks []HookFinding `json:"hooks,omitempty"`
}

// HookFinding is one hook of the eBPF observer.
type HookFinding struct {
	Name     string `json:"name"`
	Attached bool   `json:"attached"`
	// Detail says why it is not attached.
	Detail string `json:"detail,omitempty"`
}

// States of a Finding.
const (
	StateOK       = "ok"
	StateDegraded = "degraded"
	StateMissing  = "missing"
)

// fixes puts together the reasons that have one remedy.
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

// What CheckHost finds.
var (
	// ErrPlatform is also what Run returns where runs cannot be contained.
	ErrPlatform = errors.New("assay-run runs commands on Linux only; verify, inspect, events and recover work here")
	ErrNoProc   = errors.New("/proc is not mounted here, and every run needs it")
)

// CheckHost returns why no run is possible here, whatever the run is: ErrPlatform,
// ErrNoProc or nil. Diagnose tells more, and takes longer.
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
