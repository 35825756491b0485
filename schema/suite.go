package schema

// Verdicts of an attempt of a suite, and of each of its tries.
const (
	SuitePassed         = "passed"
	SuiteFailed         = "failed"
	SuiteInconclusive   = "inconclusive"
	SuiteInfrastructure = "infrastructure" // the machine's fault, with a class; it is tried again
)

// Classes of SuiteInfrastructure.
const (
	SuiteWorkerLost = "worker_lost" // the worker was not heard of any more
	SuiteDiskFull   = "disk_full"
	SuiteEngine     = "engine"    // the container engine is missing, or cannot make containers a part of the run
	SuiteSetup      = "setup"     // the workspace or a file could not be prepared
	SuiteProvider   = "provider"  // no request to a model got an answer, or none could be recorded
	SuiteAssayRun   = "assay_run" // assay-run failed, or left no bundle that verifies
	// Tries of these classes do not count.
	SuiteInterrupted = "interrupted" // the user ended the suite
	SuiteNotBegun    = "not_begun"   // no worker began it
)

// Who caused what kept an attempt from an ordinary end.
const (
	CausedByAgent    = "agent"    // or it may have: the attempt counts as failed
	CausedByProvider = "provider" // of models
	CausedByHost     = "host"     // the machine, or the network
)

// SuiteResults is results.json: every attempt of a suite with its verdict, and what follows from them.
type SuiteResults struct {
	Schema   string         `json:"schema"` // SuiteResultsV0
	Suite    string         `json:"suite"`
	Attempts []SuiteAttempt `json:"attempts"`
	Cells    []SuiteCell    `json:"cells"`
	Agents   []SuiteAgent   `json:"agents"`
	// Flaky are the cells, as task/agent, in which some attempts passed and some did not.
	Flaky []string `json:"flaky"`
	// Definitions has digests of the fields that each "task NAME" and "agent NAME" sets, by their keys in the suite
	// file. Fields that are equal in two suites have equal digests.
	Definitions map[string]map[string]string `json:"definitions,omitzero"`
	// Hosts are the machines and versions that the tries ran on; more than one is a difference within the suite.
	Hosts []SuiteHost `json:"hosts"`
}

// SuiteAttempt is one attempt of an agent at a task.
type SuiteAttempt struct {
	ID      string `json:"id"` // task/agent/attempt
	Task    string `json:"task"`
	Agent   string `json:"agent"`
	Attempt int    `json:"attempt"`
	// Verdict and Reason are those of the try that counts; null while there is none.
	Verdict *string    `json:"verdict"`
	Reason  string     `json:"reason"`
	Tries   []SuiteTry `json:"tries"`
	// Bundle is the path of that try's bundle below the suite's directory; empty without one.
	Bundle string `json:"bundle"`
	// Identity is a digest of what the attempt asks: of the task, the files that it names, the agent and the number.
	Identity string `json:"identity"`
	// Suspicions are the findings of the rules for evaluations; they change no verdict.
	Suspicions []Finding `json:"suspicions"`
	// Unknown are the rules that could not be decided.
	Unknown []string `json:"unknown_rules"`
	// Unusual are calls of the agent that left rules undecided, and that no honest program is known to make. They
	// change no verdict.
	Unusual []string `json:"unusual_calls,omitzero"`
	// ClosedBook is BookClosed or BookOpen; absent if the attempt was not to be a closed book.
	ClosedBook string `json:"closed_book,omitzero"`
}

// SuiteTry is one try of an attempt. A verdict line of the ledger has the same.
type SuiteTry struct {
	Try     int    `json:"try"`
	Verdict string `json:"verdict"`
	// Class is that of an infrastructure failure, also of one that counts as failed.
	Class  string `json:"class,omitzero"`
	Reason string `json:"reason"` // empty for passed
	// CausedBy says who caused an infrastructure failure, or may have: a failure that the agent may have caused counts
	// as failed. It is one of the Caused constants; absent where nothing like that happened, and while it is not known.
	CausedBy string `json:"caused_by,omitzero"`
	RunID    string `json:"run_id"`
	// Bundle is the bundle's path below the suite's directory, and Identity what identifies the
	// bundle; empty without one.
	Bundle     string    `json:"bundle,omitzero"`
	Identity   string    `json:"identity,omitzero"`
	Suspicions []Finding `json:"suspicions,omitzero"`
	Unknown    []string  `json:"unknown_rules,omitzero"`
	Unusual    []string  `json:"unusual_calls,omitzero"` // as of SuiteAttempt
	ExitCode   *int      `json:"exit_code"`              // of assay-run; null if it did not end by itself
	Seconds    *float64  `json:"seconds"`                // of the agent's command; null if it is not known
	// Tokens of input and output, and Cost in the currency of the price list, are what the answers of models say. They
	// are null without a model gateway, and where one answer does not say.
	Tokens *int64   `json:"tokens"`
	Cost   *float64 `json:"cost"`
	// ModelRequests counts the requests to models, and ModelFailed those of them that failed on the provider's side, or
	// that the gateway could not record.
	ModelRequests uint64 `json:"model_requests,omitzero"`
	ModelFailed   uint64 `json:"model_failed,omitzero"`
	KernelState   string `json:"kernel_state,omitzero"`
	ClosedBook    string `json:"closed_book,omitzero"` // as of SuiteAttempt
	// Judged is the try whose kept changes were judged again after an edit, without running an agent; absent for none.
	Judged int `json:"judged,omitzero"`
	// WorkerProcess is random, and tells the process of the worker from others of its name. Tries of the class
	// worker_lost with the same process were lost together. Absent if it never began.
	WorkerProcess string `json:"worker_process,omitzero"`
	// Host is where it ran; absent if it never began.
	Host *SuiteHost `json:"host,omitzero"`
}

// SuiteCell has the figures of an agent at a task.
type SuiteCell struct {
	Task  string `json:"task"`
	Agent string `json:"agent"`
	SuiteRates
	// PassAt and PassHat estimate, for k = 1, 2, ..., that one of k attempts passes, and that all of them do.
	PassAt  []float64 `json:"pass_at"`
	PassHat []float64 `json:"pass_hat"`
}

// SuiteAgent has the figures of an agent over all tasks: means over the tasks of its cells.
type SuiteAgent struct {
	Agent string `json:"agent"`
	Tasks int    `json:"tasks"`
	// Counted is how many of Tasks the rate counts: those with an attempt that counts.
	Counted int `json:"counted"`
	SuiteRates
	// TasksLikeThese is the interval of 95 % of the rate at tasks of which these are a sample; null below five tasks.
	TasksLikeThese *[2]float64 `json:"tasks_like_these"`
}

// SuiteRates are rates with what they leave out. A rate of nothing is null.
type SuiteRates struct {
	Attempts       int `json:"attempts"`
	Passed         int `json:"passed"`
	Failed         int `json:"failed"`
	Inconclusive   int `json:"inconclusive"`
	Infrastructure int `json:"infrastructure"`
	Pending        int `json:"pending"`
	Suspicious     int `json:"suspicious"`
	// PassedSuspicious are those of Passed that have a suspicion.
	PassedSuspicious int `json:"passed_with_suspicions"`
	// PassedUnusual are those of Passed that have no suspicion, and in which an unusual call of the agent's left a rule
	// undecided.
	PassedUnusual int `json:"passed_with_unusual_calls,omitzero"`
	// Closed and Open are the attempts whose book was closed, and those whose book was to be and was open.
	Closed int `json:"closed_book,omitzero"`
	Open   int `json:"open_book,omitzero"`
	// PassedClosed are those of Passed whose book was closed.
	PassedClosed int `json:"passed_with_closed_book,omitzero"`
	// Rate counts inconclusive attempts as not passed and leaves infrastructure out. TheseTasksAgain is its interval of
	// 95 %, if the same tasks were tried again.
	Rate            *float64    `json:"rate"`
	TheseTasksAgain *[2]float64 `json:"these_tasks_again"`
	// RateWithInfrastructure counts that as not passed. RateWithoutSuspicions counts passed attempts with suspicions,
	// and those with unusual calls, as not passed.
	RateWithInfrastructure *float64 `json:"rate_with_infrastructure"`
	RateWithoutSuspicions  *float64 `json:"rate_without_suspicions"`
	// RateClosed counts passed attempts whose book was not closed as not passed; absent if no attempt was to be a
	// closed book.
	RateClosed *float64 `json:"rate_closed,omitzero"`
	// Seconds, Tokens and Cost are those of the attempts that Rate counts together; null if one is not known.
	Seconds *float64 `json:"seconds"`
	Tokens  *int64   `json:"tokens"`
	Cost    *float64 `json:"cost"`
}

// SuiteHost is a machine and the versions on it.
type SuiteHost struct {
	Worker      string `json:"worker"`
	AssayRun    string `json:"assay_run"`
	Kernel      string `json:"kernel"`
	AgentDigest string `json:"agent_digest,omitzero"` // of the agent's program, where its command names one
}

// Add counts an attempt.
func (r *SuiteRates) Add(a *SuiteAttempt) {
	r.Attempts++
	if len(a.Suspicions) > 0 {
		r.Suspicious++
	}
	switch a.ClosedBook {
	case BookClosed:
		r.Closed++
	case BookOpen:
		r.Open++
	}
	switch {
	case a.Verdict == nil:
		r.Pending++
	case *a.Verdict == SuitePassed:
		r.Passed++
		if a.ClosedBook == BookClosed {
			r.PassedClosed++
		}
		switch {
		case len(a.Suspicions) > 0:
			r.PassedSuspicious++
		case len(a.Unusual) > 0:
			r.PassedUnusual++
		}
	case *a.Verdict == SuiteFailed:
		r.Failed++
	case *a.Verdict == SuiteInconclusive:
		r.Inconclusive++
	default:
		r.Infrastructure++
	}
}
