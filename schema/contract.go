package schema

import (
	"slices"
	"strings"
)

// Verdicts of an outcome contract, apart from how the agent itself ended.
const (
	// VerdictPassed: every check ran and passed.
	VerdictPassed = "passed"
	// VerdictFailed: at least one check ran and did not pass.
	VerdictFailed = "failed"
	// VerdictInconclusive: no check is known to have failed, but one could not
	// run, a protected path could not be restored, or the agent never ran; or the
	// checks prove nothing, whatever they said (Contract.Unsound).
	VerdictInconclusive = "inconclusive"
)

// Contract is contract.json: the outcome contract of a run and what the
// runner found when it evaluated it.
type Contract struct {
	Schema string `json:"schema"` // ContractV0
	// RunID is the run's; empty in the report of a contract that was checked
	// without a run.
	RunID string `json:"run_id"`
	// Digest is "sha256:" and the hex digest of the contract file's bytes as
	// they were read before the agent started.
	Digest string `json:"digest"`
	// FileAfter is the state of the contract file after the agent had ended: unchanged, changed, missing or unreadable;
	// unknown if the run was interrupted. The runner always evaluates the contract that it read at the start.
	FileAfter string `json:"file_after"`
	// Contract is what was evaluated, with every default filled in.
	Contract ContractDefinition `json:"contract"`
	// Verdict is passed, failed or inconclusive; Reasons say why it is not
	// passed, or what a reader should know about it. Never null.
	Verdict string   `json:"verdict"`
	Reasons []string `json:"reasons"`
	// Unsound says why the checks prove nothing, such as processes of the run that were alive while the checks ran. The
	// verdict is then inconclusive. Absent if nothing of that kind is known.
	Unsound []string `json:"unsound,omitempty"`
	// StrictChecks is true if each check had directories, an environment and a network of its own.
	StrictChecks bool `json:"strict_checks,omitzero"`
	// ChecksUID is the user that the checks ran as, if it is not the runner's.
	ChecksUID *int `json:"checks_uid,omitempty"`
	// Results has one entry for each check, in the contract's order.
	Results []CheckResult `json:"results"`
	// Baseline are the results from before the agent started; absent when no
	// baseline was asked for. Their output is kept as a tail only.
	Baseline []CheckResult `json:"baseline,omitempty"`
	// ProtectedChanges lists the protected paths that differed from their state at the start, sorted by path.
	// Never null.
	ProtectedChanges []ProtectedChange `json:"protected_changes"`
}

// Doubt makes the verdict inconclusive for a reason that is independent of the results of the checks.
func (c *Contract) Doubt(why string) {
	c.Verdict = VerdictInconclusive
	c.Unsound, c.Reasons = append(c.Unsound, why), append(c.Reasons, why)
}

// Weighed returns the contract's verdict, given that of the checks. It takes into account the changes of protected
// paths and Unsound, which outweighs everything else. A failed check stays failed although a check changed protected
// paths, which were restored: an agent whose work fails gains nothing by that.
func (c *Contract) Weighed(checks string) string {
	verdict, sabotaged := checks, false
	for _, change := range c.ProtectedChanges {
		switch change.Verdict() {
		case VerdictFailed:
			sabotaged = true
		case VerdictInconclusive:
			if checks != VerdictFailed || !change.Restored {
				verdict = VerdictInconclusive
			}
		}
	}
	switch {
	case len(c.Unsound) > 0:
		return VerdictInconclusive
	case sabotaged:
		return VerdictFailed
	}
	return verdict
}

// Summaries returns a summary of each result.
func (c *Contract) Summaries() []CheckSummary {
	all := make([]CheckSummary, len(c.Results))
	for i, r := range c.Results {
		s := CheckSummary{Name: r.Name, Result: CheckFailed, ExitCode: r.ExitCode, TimedOut: r.TimedOut}
		switch {
		case !r.Ran:
			s.Result = CheckNotRun
		case r.Passed:
			s.Result = CheckPassed
		}
		s.GatesNothing = r.GatesNothing != nil && *r.GatesNothing
		for _, f := range r.InfluencedBy {
			if s.Influences == nil {
				s.Influences = map[string]int{}
			}
			s.Influences[f.Kind]++
		}
		all[i] = s
	}
	return all
}

// ContractDefinition is an outcome contract as its author wrote it.
type ContractDefinition struct {
	Description string  `json:"description"`
	Checks      []Check `json:"checks"`
	// Protected are globs of paths that the agent must not change, absolute or relative to the working directory. They
	// are restored to their state at the start before each check.
	Protected []string `json:"protected,omitempty"`
	// Tests is a directory, absolute or relative to the working directory, that the checks can read and that the agent
	// does not see; empty for none.
	Tests string `json:"tests,omitempty"`
}

// Absolute returns the protected globs as absolute ones, for a run that starts in workdir.
func (d *ContractDefinition) Absolute(workdir string) []string {
	return (&EvaluationDefinition{}).Absolute(d.Protected, workdir)
}

// Check is one shell command that must pass in the workspace.
type Check struct {
	Name    string `json:"name"`
	Command string `json:"command"`
	// ExpectExitZero asks for exit status 0. It is default true.
	ExpectExitZero bool `json:"expect_exit_zero"`
	// OutputContains must occur in the combined stdout and stderr; null means no such condition.
	OutputContains *string `json:"output_contains"`
	// TimeoutSecs is the wall clock limit in seconds, default 120.
	TimeoutSecs int64 `json:"timeout_secs"`
}

// CheckResult is how one check went.
type CheckResult struct {
	Name   string `json:"name"`
	Passed bool   `json:"passed"`
	// Ran is false when the command could not be run at all or was cancelled.
	Ran bool `json:"ran"`
	// ExitCode is null when the command could not run or a signal ended it.
	ExitCode *int `json:"exit_code"`
	// Signal is the name of the signal that ended the command, else null.
	Signal   *string `json:"signal"`
	TimedOut bool    `json:"timed_out"`
	// OutputMatched reports whether the output had the text of output_contains, also where it was not kept; null if the
	// check has none.
	OutputMatched *bool `json:"output_matched"`
	// DurationMS is milliseconds on the runner's clock.
	DurationMS int64 `json:"duration_ms"`
	// OutputTail is the last 4 KiB of the combined output, invalid UTF-8
	// replaced; or "check failed to run: " and the reason.
	OutputTail string `json:"output_tail"`
	// OutputBytes is how much the command wrote. OutputKept is how much of it, from the beginning, is in the bundle's
	// member OutputPath, which is empty if no output was kept.
	OutputBytes int64 `json:"output_bytes"`
	OutputKept  int64 `json:"output_kept"`
	// OutputRedacted is how many bytes redaction added to what was kept; negative if it became shorter.
	OutputRedacted int64  `json:"output_redacted_bytes,omitempty"`
	OutputPath     string `json:"output_path"`
	// OutputError says why less was kept than the cap allows, else absent.
	OutputError string `json:"output_error,omitempty"`
	// GatesNothing is set when the check had passed before the agent started.
	// Absent without a baseline.
	GatesNothing *bool `json:"gates_nothing,omitempty"`
	// InfluencedBy lists the files outside of the protected paths that the command wrote or created and that the check
	// opened or executed, by path. It comes from the kernel layer. Files in a renamed directory count as written.
	InfluencedBy []Influence `json:"influenced_by,omitempty"`
	// Rerun is a shell command line that reruns the check by hand.
	Rerun string `json:"rerun"`
}

// Influence is a file that the command wrote and that a check read or executed.
type Influence struct {
	Path string `json:"path"`
	// Kind is source (below the working directory), cache, configuration or other.
	Kind string `json:"kind"`
}

// Kinds of [Influence].
const (
	InfluenceSource        = "source"
	InfluenceCache         = "cache"
	InfluenceConfiguration = "configuration"
	InfluenceOther         = "other"
)

// InCache reports whether a path is in a directory whose name is that of a tool's cache.
func InCache(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if name == ".cache" || name == "go-build" || slices.Contains(cacheNames, name) {
			return true
		}
	}
	return strings.HasSuffix(path, ".pyc")
}

// ProtectedChange is a protected path that had been changed.
type ProtectedChange struct {
	// Path is relative to the working directory, with slashes; outside of it, it is absolute.
	Path string `json:"path"`
	// Change is added, deleted, modified, replaced (another kind of file),
	// linked (given another hard link), permissions, or immutable (chattr +i or
	// +a, so that nobody could restore it).
	Change string `json:"change"`
	// During is agent, baseline for what the baseline checks did, or check for
	// what a check after the agent did. Check names that check.
	During string `json:"during"`
	Check  string `json:"check,omitempty"`
	// Restored is false when the path could not be put back; Error says why.
	Restored bool   `json:"restored"`
	Error    string `json:"error,omitempty"`
}

// Changes of protected paths.
const (
	ChangeAdded     = "added"
	ChangeImmutable = "immutable"
	DuringAgent     = "agent"
	DuringBaseline  = "baseline"
	DuringCheck     = "check"
)

// Verdict is the verdict of the contract because of this change, whatever the checks say; empty if the change does not
// matter. A tool does not make a path immutable by accident, so that counts as the agent's failure. A check that
// changed a protected path may have changed its own result.
func (p ProtectedChange) Verdict() string {
	switch {
	case p.Change == ChangeImmutable && p.During == DuringAgent:
		return VerdictFailed
	case !p.Restored, p.During == DuringCheck && !p.cached():
		return VerdictInconclusive
	}
	return ""
}

// cached reports whether the change added a cache, as test runners do beside the tests. The runner removes it before
// the next check.
func (p ProtectedChange) cached() bool {
	return p.Change == ChangeAdded && slices.ContainsFunc(strings.Split(p.Path, "/"), func(name string) bool {
		return slices.Contains(cacheNames, name)
	})
}

var cacheNames = []string{"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".nyc_output"}

// CheckOutputPath is the bundle member that holds a check's output:
// "checks/<name>/output", where every byte of the name but ASCII letters,
// digits, "_", "-" and "." is written as "%" and two upper-case hex digits, and
// so is a leading ".". Different names give different paths, and no name gives
// one that leaves the folder.
func CheckOutputPath(name string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.WriteString(ChecksDir)
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '_', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	b.WriteString("/output")
	return b.String()
}

// Results of a check, for a CheckSummary.
const (
	CheckPassed = "passed"
	CheckFailed = "failed"
	CheckNotRun = "not_run" // it could not run, or was cancelled
)

// CheckSummary is how one check of an outcome contract went.
type CheckSummary struct {
	Name   string `json:"name"`
	Result string `json:"result"` // CheckPassed, CheckFailed or CheckNotRun
	// ExitCode is null when the command could not run or a signal ended it.
	ExitCode *int `json:"exit_code"`
	// TimedOut is true for a check that its timeout ended.
	TimedOut bool `json:"timed_out,omitzero"`
	// GatesNothing is true for a check that had passed before the agent started.
	GatesNothing bool `json:"gates_nothing,omitzero"`
	// Influences counts the files in InfluencedBy of the check's result, by kind.
	Influences map[string]int `json:"influences,omitempty"`
}
