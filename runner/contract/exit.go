package contract

import "github.com/assay-run/assay-run/schema"

// ExitCode is a run's exit code: the agent's own, unless that is 0 and the verdict is not passed. signaled means that
// the agent died of its own signal, which does not hide a failed check.
func ExitCode(agent int, verdict string, signaled bool) int {
	switch {
	case signaled && verdict == schema.VerdictFailed:
		return schema.ExitContractFailed
	case agent != 0:
		return agent
	case verdict == schema.VerdictFailed:
		return schema.ExitContractFailed
	case verdict == schema.VerdictInconclusive:
		return schema.ExitContractInconclusive
	}
	return 0
}

// Blame returns a run's exit code after its contract was evaluated, and adds an error to the result if the contract
// did not pass. inside means that a signal from inside the run ended the command.
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
