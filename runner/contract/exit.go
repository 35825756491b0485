package contract

import "github.com/assay-run/assay-run/schema"

// The exit codes of a run whose agent exited with 0, by its contract's verdict.
const (
	ExitFailed       = 122
	ExitInconclusive = 123
)

// ExitCode is a run's exit code: the agent's own, unless that is 0 and the verdict says otherwise.
// signaled reports that the agent killed itself by a signal, which does not hide a failed check.
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

// Blame turns the exit code of a run whose result has the verdict of a contract into the contract's. A contract that
// was not passed is an error of the result as well. inside tells that a signal from inside of the run ended the
// command.
func Blame(res *schema.Result, exit int, inside bool) int {
	if res.Contract == nil {
		return exit
	}
	verdict := *res.Contract
	code := ExitCode(exit, verdict, inside)
	if code == exit {
		return exit
	}
	source := schema.SourceContract
	e := schema.ResultError{Code: "contract_" + verdict, Message: "the outcome contract failed",
		Hint: "contract.json in the bundle has every check's result, and a command line that runs it by hand"}
	if verdict == schema.VerdictInconclusive {
		e.Message = "the outcome contract was inconclusive"
	}
	res.ErrorSource, res.Error = &source, &e
	return code
}
