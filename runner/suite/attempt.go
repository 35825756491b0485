//go:build linux

package suite

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/runner/suite/trial"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// Labels that each run of a suite has.
const (
	labelSuite   = "assay.suite"
	labelTask    = "assay.task"
	labelAgent   = "assay.agent"
	labelAttempt = "assay.attempt"
	labelTry     = "assay.try"
	labelFolder  = "assay.folder" // only of tasks that are folders
)

// Environment variables of an agent's command.
const (
	envPrompt     = "ASSAY_TASK_PROMPT"
	envPromptFile = "ASSAY_TASK_PROMPT_FILE"
	envCommand    = "ASSAY_TASK_COMMAND"
	envAttempt    = "ASSAY_ATTEMPT"
	envSuiteDir   = "ASSAY_SUITE_DIR" // the directory of the suite file; only for solutions
	envCeiling    = "GIT_CEILING_DIRECTORIES"
)

// inFile is what an agent gets instead of a prompt that is longer than maxWord.
func inFile(prompt string) string { return "Read the file " + prompt + " and do what it says." }

// keepObserver is how long a run keeps its observer for the next one. After that the observer removes itself, even if
// this process is gone.
const keepObserver = 3 * time.Second

// Attempt is one attempt of an agent at a task.
type Attempt = ledger.Attempt

// Description has the digests of what a suite asks for.
type Description struct {
	// Identities are digests, one for each attempt, of the task's fields, the contents of the files that it names, the
	// agent's definition, and the attempt's number. Paths, times and hosts are not part of it. Two attempts with the
	// same identity ask for the same.
	Identities map[Attempt]string
	// Workspaces are the digests of the tasks' workspaces, by task.
	Workspaces map[string]string
	// Definitions are the digests of the fields that are set. The outer key is "task NAME" or "agent NAME", and the
	// inner one the key in the suite file.
	Definitions map[string]map[string]string
}

// fields returns short digests of the fields of a definition that are not zero.
func fields(definition any) map[string]string {
	text, err := json.Marshal(definition, json.OmitZeroStructFields(true), json.Deterministic(true))
	if err != nil {
		panic("encode: " + err.Error()) // plain data always encodes
	}
	var all map[string]jsontext.Value
	if err := json.Unmarshal(text, &all); err != nil {
		panic("decode: " + err.Error()) // it was encoded just now
	}
	digests := map[string]string{}
	for key, value := range all {
		digests[key] = digestOf(value)[:len("sha256:")+16]
	}
	return digests
}

// digestOf is the digest of v as JSON without zero fields, so that a new field changes no digest where it is not used.
func digestOf(v any) string {
	text, err := json.Marshal(v, json.Deterministic(true), json.OmitZeroStructFields(true))
	if err != nil {
		panic("encode: " + err.Error()) // plain data always encodes
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// digested is a task with digests of files in the place of their names.
type digested struct {
	Task
	Timeout string `json:"timeout"`
	Folder  string `json:"folder"`
}

// tryWork is what a worker gets for a try. The worker adds the paths in its own directories to Spec.
type tryWork struct {
	Suite string `json:"suite"`
	Attempt
	Try   int    `json:"try"`
	Token string `json:"token"`
	// Spec is the run without paths. Env names the variables that the run gets from the worker's environment.
	Spec *specfile.Spec `json:"spec"`
	Env  []string       `json:"env"`
	// Prompt is the task's prompt, which the worker also writes to a file.
	Prompt string `json:"prompt"`
	// Disk is how much the try may add to its directory, in bytes.
	Disk int64 `json:"disk"`
	// Workspace is a directory on the coordinator's machine, and WorkspaceDigest its digest by
	// digestTree. Both are empty for an empty directory. A worker without the same workspace at that path asks for it.
	Workspace       string `json:"workspace"`
	WorkspaceDigest string `json:"workspace_digest"`
	// Place is where the copy of the workspace must be mounted for the run; empty means that it may be anywhere.
	Place string `json:"place,omitzero"`
	// Contract, Policy and Prices are copies of files that the task or the agent names.
	Contract fileCopy `json:"contract,omitzero"`
	Policy   fileCopy `json:"policy,omitzero"`
	Prices   fileCopy `json:"prices,omitzero"` // of models
	// Plan is for a task that is a folder; nil for others. The worker adds what depends on its directories and engine.
	Plan *trial.Plan `json:"plan,omitzero"`
	// Evaluation lacks Workspace and Others, which depend on the worker's directories.
	Evaluation schema.EvaluationDefinition `json:"evaluation"`
	// Private are files on the coordinator's machine that show how the agent is judged. A sandbox hides them.
	Private []string `json:"private,omitzero"`
}

// fileCopy is a copy of a file. The extension of Name tells the format of Data. The zero value means no file.
type fileCopy struct {
	Name string `json:"name"` // base name
	Data []byte `json:"data"`
}

func copyFile(path string) (fileCopy, error) {
	data, err := os.ReadFile(path)
	return fileCopy{filepath.Base(path), data}, err
}

// decision is a verdict with the class of an infrastructure failure and the reason, where it has them.
type decision struct{ Verdict, Class, Reason string }

// decide returns the verdict on a run with the given result. rulesBroken says which rules of the task do not pass;
// empty if all do.
func decide(res *schema.Result, rulesBroken string) decision {
	why := func(fallback string) string {
		if res.Error != nil {
			return res.Error.Message
		}
		return fallback
	}
	code := ""
	if res.Error != nil {
		code = res.Error.Code
	}
	switch {
	case code == "tampered" || code == "evidence_tampered":
		return decision{schema.SuiteInconclusive, "", why("")}
	case res.Outcome == schema.OutcomeIncomplete:
		return decision{schema.SuiteInfrastructure, schema.SuiteAssayRun, why("the run was interrupted")}
	case res.Outcome == schema.OutcomeCancelled:
		return decision{schema.SuiteInfrastructure, schema.SuiteWorkerLost, "the run was cancelled"}
	case res.Outcome == schema.OutcomeInfraError && code == schema.CodeContainers:
		return decision{schema.SuiteInfrastructure, schema.SuiteEngine, why("")}
	case res.Outcome == schema.OutcomeInfraError:
		return decision{schema.SuiteInfrastructure, faultClass(why(""), schema.SuiteAssayRun), why("assay-run failed")}
	case code == "evidence_missing" && faultClass(why(""), "") == schema.SuiteDiskFull:
		return decision{schema.SuiteInfrastructure, schema.SuiteDiskFull, why("")}
	case res.RunnerExitCode != nil && *res.RunnerExitCode == schema.ExitRunner && res.ErrorSource != nil &&
		*res.ErrorSource == schema.SourceRunner:
		return decision{schema.SuiteInconclusive, "", why("the evidence does not meet the task's requirements")}
	case rulesBroken != "":
		return decision{schema.SuiteInconclusive, "", rulesBroken}
	case killedByHost(res) && (res.Contract == nil || *res.Contract != schema.VerdictPassed):
		return decision{schema.SuiteInfrastructure, schema.SuiteSetup, "the host ran out of memory"}
	case res.Contract != nil:
		return byContract(res)
	}
	switch res.Outcome {
	case schema.OutcomeExited:
		if res.ExitCode != nil && *res.ExitCode == 0 {
			return decision{Verdict: schema.SuitePassed}
		}
		return decision{schema.SuiteFailed, "", fmt.Sprintf("the agent exited with %d", *res.ExitCode)}
	case schema.OutcomeTimeout:
		return decision{schema.SuiteFailed, "", "the agent ran longer than the task's timeout"}
	case schema.OutcomeOOM, schema.OutcomeLimit:
		return decision{schema.SuiteFailed, "", fmt.Sprintf("the agent reached a limit: %v", res.LimitsHit)}
	case schema.OutcomeSignaled:
		return decision{schema.SuiteFailed, "", "the agent was killed by " + *res.Signal}
	}
	return decision{schema.SuiteFailed, "", "the run ended as " + res.Outcome}
}

// used returns the tokens and the cost by the answers of models. Each is nil if an answer lacks it, or without a
// gateway.
func used(m *schema.ModelTotals) (tokens *int64, cost *float64) {
	if m == nil {
		return nil, nil
	}
	if m.UsageUnknown == 0 && m.InputTokens != nil && m.OutputTokens != nil {
		tokens = new(*m.InputTokens + *m.OutputTokens)
	}
	if m.CostUnknown == 0 && m.Cost != nil {
		cost = new(*m.Cost)
	}
	return tokens, cost
}

// faultClass is the class of an infrastructure failure, by its error message: disk_full, or else the given one.
func faultClass(message, otherwise string) string {
	if strings.Contains(strings.ToLower(message), syscall.ENOSPC.Error()) {
		return schema.SuiteDiskFull
	}
	return otherwise
}

// killedByHost reports whether the kernel killed the agent because the host ran out of memory, and not because the
// agent reached a limit of the task.
func killedByHost(res *schema.Result) bool {
	if len(res.LimitsHit) > 0 {
		return false
	}
	return res.Outcome == schema.OutcomeOOM || res.Outcome == schema.OutcomeLimit ||
		res.Outcome == schema.OutcomeSignaled && res.Usage.OOMKills != nil && *res.Usage.OOMKills > 0
}

func byContract(res *schema.Result) decision {
	reason := ""
	if len(res.ContractReasons) > 0 {
		reason = res.ContractReasons[0]
	}
	switch *res.Contract {
	case schema.VerdictPassed:
		return decision{Verdict: schema.SuitePassed}
	case schema.VerdictFailed:
		if why := undecided(res); why != "" {
			return decision{schema.SuiteInconclusive, "", why}
		}
		return decision{schema.SuiteFailed, "", reason}
	}
	return decision{schema.SuiteInconclusive, "", reason}
}
