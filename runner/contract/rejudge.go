//go:build linux || darwin

package contract

import (
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// Rejudge replaces the verdict in the result of a run that has ended.
func Rejudge(res *schema.Result, doc *schema.Contract) {
	blamed := res.ErrorSource != nil && *res.ErrorSource == schema.SourceContract
	res.Contract, res.Checks, res.ContractReasons = &doc.Verdict, doc.Summaries(), doc.Reasons
	if blamed {
		res.ErrorSource, res.Error = nil, nil
	}
	if res.ErrorSource != nil || res.RunnerExitCode == nil {
		return
	}
	exit, inside := *res.RunnerExitCode, false
	switch {
	case res.Outcome == schema.OutcomeExited && res.ExitCode != nil:
		exit = *res.ExitCode
	case res.Outcome == schema.OutcomeSignaled && res.Signal != nil && blamed: // only a signal from inside leads here
		exit, inside = 128+int(unix.SignalNum(*res.Signal)), true
	case res.Outcome != schema.OutcomeSignaled:
		return
	}
	exit = Blame(res, exit, inside)
	res.RunnerExitCode = &exit
}
