//go:build linux

package suite

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
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

// Attempted lists the attempts of a suite: those with the number 1 of all agents at all tasks, then those with 2, ...
func (f *File) Attempted() []Attempt {
	var all []Attempt
	for n := range max(1, f.Attempts) {
		for _, t := range f.Tasks {
			for _, a := range f.Agents {
				if !f.excluded(t.Name, a.Name) {
					all = append(all, Attempt{Task: t.Name, Agent: a.Name, Attempt: n + 1})
				}
			}
		}
	}
	return all
}

func (f *File) excluded(task, agent string) bool {
	return f.out[Exclude{task, agent}] || f.out[Exclude{Task: task}] || f.out[Exclude{Agent: agent}]
}

// leaveOut makes Exclude known to excluded.
func (f *File) leaveOut() {
	f.out = map[Exclude]bool{}
	for _, e := range f.Exclude {
		f.out[e] = true
	}
}

// MostTries is how many tries an attempt has.
func (f *File) MostTries() int {
	if f.Retries != nil {
		return 1 + *f.Retries
	}
	return 1 + DefaultRetries
}

func (f *File) task(name string) *Task {
	for i := range f.Tasks {
		if f.Tasks[i].Name == name {
			return &f.Tasks[i]
		}
	}
	return nil
}

func (f *File) agent(name string) *Agent {
	for i := range f.Agents {
		if f.Agents[i].Name == name {
			return &f.Agents[i]
		}
	}
	return nil
}

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

// Describe reads all that the suite names.
func (f *File) Describe() (*Description, error) {
	d := &Description{Identities: Identities{}, Workspaces: map[string]string{},
		Definitions: map[string]map[string]string{}}
	tasks, agents := map[string]string{}, map[string]string{}
	for i := range f.Tasks {
		t, err := f.digested(&f.Tasks[i])
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", f.Tasks[i].Name, err)
		}
		tasks[t.Name], d.Workspaces[t.Name] = digestOf(t), t.Workspace
		d.Definitions["task "+t.Name] = fields(t)
	}
	for _, a := range f.Agents {
		var err error
		if a.Model, err = f.digestedModel(a.Model); err != nil {
			return nil, fmt.Errorf("agent %s: %w", a.Name, err)
		}
		agents[a.Name] = digestOf(a)
		d.Definitions["agent "+a.Name] = fields(a)
	}
	for _, a := range f.Attempted() {
		d.Identities[a] = digestOf([]string{tasks[a.Task], agents[a.Agent], strconv.Itoa(a.Attempt)})
	}
	return d, nil
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

func (f *File) digested(t *Task) (*digested, error) {
	c := *t
	for _, name := range []*string{&c.Workspace, &c.Policy, &c.Rules} {
		var err error
		if *name, err = f.digestPath(*name); err != nil {
			return nil, err
		}
	}
	var err error
	if c.Model, err = f.digestedModel(t.Model); err != nil {
		return nil, err
	}
	if path, _ := f.ContractFile(t); path != "" {
		digest, err := f.digestPath(path)
		if err != nil {
			return nil, err
		}
		c.Contract, _ = jsontext.AppendQuote(nil, digest)
	}
	return &digested{c, t.Timeout.String()}, nil
}

// digestedModel has digests in the places of files. Of keys, only the routes that have one are in it: a key that is
// changed does not change what is asked, and nothing may follow from a digest of one.
func (f *File) digestedModel(m runner.Model) (runner.Model, error) {
	for _, name := range []*string{&m.Prices, &m.Replay} {
		var err error
		if *name, err = f.digestPath(*name); err != nil {
			return m, err
		}
	}
	if m.Keys != nil {
		m.Keys = maps.Clone(m.Keys)
		for route, file := range m.Keys {
			if file != runner.ModelKeyAgent {
				m.Keys[route] = "file"
			}
		}
	}
	return m, nil
}

func (f *File) digestPath(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	return DigestTree(f.path(name))
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

// Work makes the work of a try.
func (f *File) Work(a Attempt, try int, token, workspaceDigest string) (*Work, error) {
	t, agent := f.task(a.Task), f.agent(a.Agent)
	w := &Work{Suite: f.Name, Attempt: a, Try: try, Token: token, Env: agent.Env, Prompt: t.Prompt,
		WorkspaceDigest: workspaceDigest, Evaluation: f.evaluation(t, agent), Private: f.private(t)}
	if t.Workspace != "" {
		w.Workspace = f.path(t.Workspace)
	}
	w.Spec = f.spec(t, agent)
	w.Spec.RunID, w.Spec.Labels = runID(token), f.labels(t, a, try)
	w.Spec.Env[EnvAttempt] = strconv.Itoa(a.Attempt)
	var err error
	if path, text := f.ContractFile(t); path != "" {
		if w.Contract, err = readCopy(path); err != nil {
			return nil, err
		}
	} else if text != nil {
		w.Contract = Copy{"contract.json", text}
	}
	if t.Policy != "" {
		if w.Policy, err = readCopy(f.path(t.Policy)); err != nil {
			return nil, err
		}
	}
	if prices := w.Spec.Model.Prices; prices != "" {
		if w.Prices, err = readCopy(prices); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// spec is the run of an agent at a task, without what differs between attempts.
func (f *File) spec(t *Task, agent *Agent) *runner.Spec {
	command := agent.Command
	if agent.solves {
		command = t.Solution
	}
	s := runner.New("sh", "-c", command)
	s.Timeout, s.Limits, s.Require, s.Containers = t.Timeout, t.Limits, t.Require, t.Containers
	s.Model = f.model(t, agent)
	s.WorkspaceChanges = true
	s.KeepObserver = keepObserver
	if agent.Shim != "" {
		s.AgentShim = agent.Shim
	}
	s.Env = map[string]string{}
	if t.Prompt != "" {
		s.Env[EnvPrompt] = t.Prompt
	}
	if t.Command != "" {
		s.Env[EnvCommand] = t.Command
	}
	if agent.solves {
		s.Env[EnvSuiteDir] = f.dir
	}
	return s
}

func (f *File) labels(t *Task, a Attempt, try int) map[string]string {
	labels := map[string]string{LabelSuite: f.Name, LabelTask: a.Task, LabelAgent: a.Agent,
		LabelAttempt: strconv.Itoa(a.Attempt), LabelTry: strconv.Itoa(try)}
	for k, v := range t.Labels {
		labels[k] = v
	}
	return labels
}

func (t *Task) evaluation() schema.EvaluationDefinition {
	return schema.EvaluationDefinition{Hidden: t.Hidden, Protected: t.Protected, Reward: t.Reward,
		Forbidden: t.Forbidden, StartCommit: t.StartCommit}
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

// judge makes the verdict of a try of what its bundle proves.
func (e *Examined) judge(v *schema.SuiteTry) {
	res := e.Result
	d := Decide(res, e.Broken)
	v.Verdict, v.Class, v.Reason = d.Verdict, d.Class, d.Reason
	v.Identity, v.KernelState = e.Identity, res.KernelState
	v.Suspicions, v.Unknown = e.Suspicions, e.Unknown
	if res.Timings.ChildNS != nil {
		v.Seconds = new(float64(*res.Timings.ChildNS) / 1e9)
	}
	v.Tokens, v.Cost = used(res.Model)
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
