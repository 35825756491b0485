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

	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/schema"
)

// Labels of each run of a suite.
const (
	LabelSuite   = "assay.suite"
	LabelTask    = "assay.task"
	LabelAgent   = "assay.agent"
	LabelAttempt = "assay.attempt"
	LabelTry     = "assay.try"
)

// Variables that an agent's command gets.
const (
	EnvPrompt     = "ASSAY_TASK_PROMPT"
	EnvPromptFile = "ASSAY_TASK_PROMPT_FILE"
	EnvCommand    = "ASSAY_TASK_COMMAND"
	EnvAttempt    = "ASSAY_ATTEMPT"
	EnvSuiteDir   = "ASSAY_SUITE_DIR" // where the suite file is; solutions alone get it
)

// keepObserver is how long a run leaves its observer to the next one. It goes by itself, whatever becomes of us.
const keepObserver = 3 * time.Second

// Attempt is one attempt of an agent at a task.
type Attempt = ledger.Attempt

// Identities are the identities of attempts: digests of each field of the task and the bytes of the files that it
// names, the agent's definition, and the number. Paths, times and hosts are not in them. Two attempts with one identity
// ask the same.
type Identities map[Attempt]string

// Description is what a suite asks, as digests.
type Description struct {
	Identities Identities
	// Workspaces are the digests of the tasks' workspaces, by task.
	Workspaces map[string]string
	// Definitions are the digests of the fields that are set, by the key of the suite file, of each "task NAME" and
	// "agent NAME".
	Definitions map[string]map[string]string
}

// fields are short digests of the fields of a definition that are not empty.
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

// digestOf leaves out what is zero: a field that a later version adds changes no digest where it is not used.
func digestOf(v any) string {
	text, err := json.Marshal(v, json.Deterministic(true), json.OmitZeroStructFields(true))
	if err != nil {
		panic("encode: " + err.Error()) // plain data always encodes
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// digested is a task with the digests of what it names in the places of the names.
type digested struct {
	Task
	Timeout string `json:"timeout"`
}

// Work is what a worker gets to know of a try. The worker adds what depends on its directories to the spec.
type Work struct {
	Suite string `json:"suite"`
	Attempt
	Try   int    `json:"try"`
	Token string `json:"token"`
	// Spec is the run, without paths; Env are the names of variables that it gets from the worker's environment.
	Spec *runner.Spec `json:"spec"`
	Env  []string     `json:"env"`
	// Prompt also goes into a file.
	Prompt string `json:"prompt"`
	// Workspace is a directory or a tar file on the coordinator's machine, and WorkspaceDigest its DigestTree; both are
	// empty for an empty directory. A worker that has not the same at that path asks for it.
	Workspace       string `json:"workspace"`
	WorkspaceDigest string `json:"workspace_digest"`
	// Contract, Policy and Prices, of models, are copies of the files that the task or the agent names.
	Contract Copy `json:"contract,omitzero"`
	Policy   Copy `json:"policy,omitzero"`
	Prices   Copy `json:"prices,omitzero"`
	// Evaluation lacks the workspace and the others.
	Evaluation schema.EvaluationDefinition `json:"evaluation"`
	// Private are files of the coordinator's machine that tell how the agent is judged. A sandbox hides them.
	Private []string `json:"private,omitzero"`
}

// Copy is a file's base name, which tells its notation, and its bytes. The zero value is no file.
type Copy struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

func readCopy(path string) (Copy, error) {
	data, err := os.ReadFile(path)
	return Copy{filepath.Base(path), data}, err
}

// Decision is a verdict with its reason.
type Decision struct{ Verdict, Class, Reason string }

// Decide is the verdict on a run that ended with res.
func Decide(res *schema.Result, rulesBroken string) Decision {
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
		return Decision{schema.SuiteInconclusive, "", why("")}
	case res.Outcome == schema.OutcomeIncomplete:
		return Decision{schema.SuiteInfrastructure, schema.SuiteAssayRun, why("the run was interrupted")}
	case res.Outcome == schema.OutcomeCancelled:
		return Decision{schema.SuiteInfrastructure, schema.SuiteWorkerLost, "the run was cancelled"}
	case res.Outcome == schema.OutcomeInfraError && code == runner.CodeContainers:
		return Decision{schema.SuiteInfrastructure, schema.SuiteEngine, why("")}
	case res.Outcome == schema.OutcomeInfraError:
		return Decision{schema.SuiteInfrastructure, faultClass(why(""), schema.SuiteAssayRun), why("assay-run failed")}
	case code == "evidence_missing" && faultClass(why(""), "") == schema.SuiteDiskFull:
		return Decision{schema.SuiteInfrastructure, schema.SuiteDiskFull, why("")}
	case res.RunnerExitCode != nil && *res.RunnerExitCode == runner.ExitRunner && res.ErrorSource != nil &&
		*res.ErrorSource == schema.SourceRunner:
		return Decision{schema.SuiteInconclusive, "", why("the evidence is not what was required")}
	case rulesBroken != "":
		return Decision{schema.SuiteInconclusive, "", rulesBroken}
	case killedByHost(res) && (res.Contract == nil || *res.Contract != schema.VerdictPassed):
		return Decision{schema.SuiteInfrastructure, schema.SuiteSetup, "the host ran out of memory"}
	case res.Contract != nil:
		return byContract(res)
	}
	switch res.Outcome {
	case schema.OutcomeExited:
		if res.ExitCode != nil && *res.ExitCode == 0 {
			return Decision{Verdict: schema.SuitePassed}
		}
		return Decision{schema.SuiteFailed, "", fmt.Sprintf("the agent ended with %d", *res.ExitCode)}
	case schema.OutcomeTimeout:
		return Decision{schema.SuiteFailed, "", "the time was over"}
	case schema.OutcomeOOM, schema.OutcomeLimit:
		return Decision{schema.SuiteFailed, "", fmt.Sprintf("the limit was reached: %v", res.LimitsHit)}
	case schema.OutcomeSignaled:
		return Decision{schema.SuiteFailed, "", "the agent was ended by " + *res.Signal}
	}
	return Decision{schema.SuiteFailed, "", "the run ended as " + res.Outcome}
}

// used is what the answers of models say of tokens and cost; nil where one does not say, or there is no gateway.
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

// faultClass is the class of a fault of the machine, by what was said of it.
func faultClass(said, otherwise string) string {
	if strings.Contains(strings.ToLower(said), syscall.ENOSPC.Error()) {
		return schema.SuiteDiskFull
	}
	return otherwise
}

// killedByHost reports whether the kernel killed the agent for want of memory, and not by a limit of the task.
func killedByHost(res *schema.Result) bool {
	if len(res.LimitsHit) > 0 {
		return false
	}
	return res.Outcome == schema.OutcomeOOM || res.Outcome == schema.OutcomeLimit ||
		res.Outcome == schema.OutcomeSignaled && res.Usage.OOMKills != nil && *res.Usage.OOMKills > 0
}

func byContract(res *schema.Result) Decision {
	reason := ""
	if len(res.ContractReasons) > 0 {
		reason = res.ContractReasons[0]
	}
	switch *res.Contract {
	case schema.VerdictPassed:
		return Decision{Verdict: schema.SuitePassed}
	case schema.VerdictFailed:
		return Decision{schema.SuiteFailed, "", reason}
	}
	return Decision{schema.SuiteInconclusive, "", reason}
}
