package archive

import (
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// contract checks contract.json by itself, against result.json and against the
// output that was kept of its checks.
func (v *verifier) contract(c *schema.Contract, r *schema.Result) {
	bad := func(format string, args ...any) {
		v.report.add(problem(CodeContract, schema.ContractPath, format, args...))
	}
	if _, listed := v.manifest.Files[schema.ContractPath]; !listed {
		if r != nil && r.Contract != nil {
			bad("it is missing, and %s has the verdict %s", schema.ResultPath, *r.Contract)
		}
		for path := range v.sizes {
			if strings.HasPrefix(path, schema.ChecksDir) {
				bad("it is missing, and there is %s", path)
				break
			}
		}
		return
	}
	if c == nil {
		return // not valid, as was reported
	}
	if c.RunID == "" {
		bad("run_id is empty: it is the report of a contract that was checked without a run")
	}
	if r != nil {
		v.contractResult(c, r, bad)
	}
	v.contractResults(c, bad)
}

// contractResult compares the verdict with what result.json makes of it.
func (v *verifier) contractResult(c *schema.Contract, r *schema.Result, bad func(string, ...any)) {
	switch {
	case r.Contract == nil:
		bad("its verdict is %s, %s has none", c.Verdict, schema.ResultPath)
	case *r.Contract != c.Verdict:
		bad("its verdict is %s, that of %s is %s", c.Verdict, schema.ResultPath, *r.Contract)
	case c.Verdict != schema.VerdictPassed && r.Outcome == schema.OutcomeExited && r.RunnerExitCode != nil && *r.RunnerExitCode == 0:
		bad("its verdict is %s, and the run's exit code is 0", c.Verdict)
	case c.Verdict == schema.VerdictPassed && r.Outcome == schema.OutcomeExited && r.ErrorSource != nil && *r.ErrorSource == schema.SourceContract:
		bad("its verdict is %s, and %s blames the contract", c.Verdict, schema.ResultPath)
	}
}

// contractResults checks that each result is what its check makes of the facts
// in it, and the verdict what the results make together.
func (v *verifier) contractResults(c *schema.Contract, bad func(string, ...any)) {
	if len(c.Results) != len(c.Contract.Checks) || c.Baseline != nil && len(c.Baseline) != len(c.Contract.Checks) {
		bad("%d checks have %d results and %d baseline results", len(c.Contract.Checks), len(c.Results), len(c.Baseline))
		return
	}
	outputs := map[string]bool{}
	verdict := schema.VerdictPassed
	for i, check := range c.Contract.Checks {
		res := c.Results[i]
		checkAgrees("result", check, res, bad)
		outputs[schema.CheckOutputPath(check.Name)] = true
		v.checkOutput(check, res, bad)
		switch {
		case res.Ran && !res.Passed:
			verdict = schema.VerdictFailed
		case !res.Ran && verdict == schema.VerdictPassed:
			verdict = schema.VerdictInconclusive
		}
		if c.Baseline != nil {
			checkAgrees("baseline result", check, c.Baseline[i], bad)
			if g := res.GatesNothing; g == nil || *g != c.Baseline[i].Passed {
				bad("gates_nothing of check %.100q is not whether it passed before the run", check.Name)
			}
		}
	}
	verdict = c.Weighed(verdict)
	if c.Verdict != verdict {
		bad("its verdict is %s, its results make it %s", c.Verdict, verdict)
	}
	for path := range v.sizes {
		if strings.HasPrefix(path, schema.ChecksDir) && !outputs[path] {
			bad("%s is the output of no check", path)
		}
	}
}

func checkAgrees(what string, check schema.Check, res schema.CheckResult, bad func(string, ...any)) {
	exited := !check.ExpectExitZero || res.ExitCode != nil && *res.ExitCode == 0
	found := check.OutputContains == nil || res.OutputMatched != nil && *res.OutputMatched
	switch {
	case res.Name != check.Name:
		bad("the %s of check %.100q is named %.100q", what, check.Name, res.Name)
	case res.ExitCode != nil && res.Signal != nil, res.Ran != (res.ExitCode != nil || res.Signal != nil):
		bad("the %s of check %.100q does not say how it ended", what, check.Name)
	case res.Passed != (res.Ran && !res.TimedOut && exited && found):
		bad("the %s of check %.100q says passed %t, which does not follow from how it ended", what, check.Name, res.Passed)
	}
}

// checkOutput compares the kept output with its member. Of a check that was
// cut off there may be one that no result tells of.
func (v *verifier) checkOutput(check schema.Check, res schema.CheckResult, bad func(string, ...any)) {
	path := schema.CheckOutputPath(check.Name)
	size, kept := v.sizes[path]
	if _, listed := v.manifest.Files[path]; listed && !kept {
		return // missing, as was reported
	}
	switch {
	case res.OutputPath != "" && res.OutputPath != path:
		bad("the output of check %.100q should be in %[3]s, but its result names %[2]s", check.Name, res.OutputPath, path)
	case res.OutputPath != "" && !kept:
		bad("%s is not in the bundle", path)
	case res.OutputPath != "" && size != res.OutputKept, res.OutputPath == "" && res.Ran && kept:
		bad("%s has %d bytes, the result of its check says %d", path, size, res.OutputKept)
	case res.OutputKept-res.OutputRedacted > res.OutputBytes:
		bad("%d bytes of the output of check %.100q were kept, it wrote %d", res.OutputKept, check.Name, res.OutputBytes)
	}
}
