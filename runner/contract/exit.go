package contract

import "github.com/assay-run/assay-run/schema"

// The exit codes of a run whose agent exited with 0, by its contract's verdict.
const (
	ExitFailed       = 122
	ExitInconclusive = 123
)

// ExitCode is what a run exits with: the agent's own code unless that is 0 and
// the verdict says otherwise. A signal that the agent sent to itself hides no check
// that failed: signaled tells of one.
func ExitCode(agent int, verdict string, signaled bool) int {
	switch {
	case signaled && verdict == schema.VerdictFailed:
		return ExitFailed
	case agent != 0:
		return agent
	case verdict == schema.VerdictFailed:
		return ExitFailed
	case verdict == schema.VerdictInconclusive:
		return ExitInconclusive
	}
	return 0
}
