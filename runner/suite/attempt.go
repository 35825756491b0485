//go:build linux

package suite

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

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
)

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
	for _, e := range f.Exclude {
		if (e.Task == "" || e.Task == task) && (e.Agent == "" || e.Agent == agent) {
			return true
		}
	}
	return false
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

// Identities computes them for all attempts of the suite.
func (f *File) Identities() (Identities, error) {
	tasks, agents := map[string]string{}, map[string]string{}
	for i := range f.Tasks {
		digest, err := f.digestTask(&f.Tasks[i])
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", f.Tasks[i].Name, err)
		}
		tasks[f.Tasks[i].Name] = digest
	}
	for _, a := range f.Agents {
		agents[a.Name] = digestOf(a)
	}
	all := Identities{}
	for _, a := range f.Attempted() {
		all[a] = digestOf([]string{tasks[a.Task], agents[a.Agent], strconv.Itoa(a.Attempt)})
	}
	return all, nil
}

func digestOf(v any) string {
	text, err := json.Marshal(v, json.Deterministic(true), json.FormatNilSliceAsNull(true))
	if err != nil {
		panic("encode: " + err.Error()) // plain data always encodes
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// digestTask is the digest of a task, with digests in the places of what it names.
func (f *File) digestTask(t *Task) (string, error) {
	c := *t
	var err error
	if c.Workspace, err = f.digestPath(t.Workspace); err != nil {
		return "", err
	}
	if c.Policy, err = f.digestPath(t.Policy); err != nil {
		return "", err
	}
	if c.Rules, err = f.digestPath(t.Rules); err != nil {
		return "", err
	}
	if path, _ := f.ContractFile(t); path != "" {
		digest, err := f.digestPath(path)
		if err != nil {
			return "", err
		}
		c.Contract, _ = jsontext.AppendQuote(nil, digest)
	}
	return digestOf(struct {
		Task
		Timeout string `json:"timeout"`
	}{c, t.Timeout.String()}), nil
}

func (f *File) digestPath(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	return DigestTree(f.path(name))
}

// DigestTree is the digest of a file's bytes, or of a directory: the names, kinds, permissions and contents below it.
// Times and owners are not in it. A file that is neither regular, a directory nor a link is an error.
func DigestTree(root string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == root && d.Type()&fs.ModeSymlink != 0 { // the suite may name a link
			if path, err = filepath.EvalSymlinks(path); err != nil {
				return err
			}
			digest, err := DigestTree(path)
			sum.Write([]byte(digest))
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return digestEntry(sum, path, name, info)
	})
	if err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// digestEntry adds one file. Each part has its length before it, so that no two trees give the same bytes.
func digestEntry(sum hash.Hash, path, name string, info fs.FileInfo) error {
	put := func(s string) {
		sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(s))))
		io.WriteString(sum, s)
	}
	put(name)
	put(info.Mode().String())
	switch {
	case info.IsDir():
		return nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		put(target)
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file, directory or link; a workspace has nothing else", path)
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	contents := sha256.New()
	if _, err := io.Copy(contents, in); err != nil {
		return err
	}
	sum.Write(contents.Sum(nil))
	return nil
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
	// Workspace is a directory or a tar file on the worker's machine, and WorkspaceDigest its
	// DigestTree; both are empty
	// for an empty directory.
	Workspace       string `json:"workspace"`
	WorkspaceDigest string `json:"workspace_digest"`
	// Contract and Policy are copies of the files that the task names.
	Contract Copy `json:"contract,omitzero"`
	Policy   Copy `json:"policy,omitzero"`
	// Evaluation lacks the workspace and the others.
	Evaluation schema.EvaluationDefinition `json:"evaluation"`
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
		WorkspaceDigest: workspaceDigest, Evaluation: t.evaluation()}
	if t.Workspace != "" {
		w.Workspace = f.path(t.Workspace)
	}
	w.Spec = f.spec(t, agent)
	w.Spec.RunID, w.Spec.Labels = "try_"+token, f.labels(t, a, try)
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
	return w, nil
}

// spec is the run of an agent at a task, without what differs between attempts.
func (f *File) spec(t *Task, agent *Agent) *runner.Spec {
	s := runner.New("sh", "-c", agent.Command)
	s.Timeout, s.Limits, s.Require = t.Timeout, t.Limits, t.Require
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
	case res.Outcome == schema.OutcomeInfraError:
		return Decision{schema.SuiteInfrastructure, schema.SuiteAssayRun, why("assay-run failed")}
	case res.RunnerExitCode != nil && *res.RunnerExitCode == runner.ExitRunner && res.ErrorSource != nil &&
		*res.ErrorSource == schema.SourceRunner:
		return Decision{schema.SuiteInconclusive, "", why("the evidence is not what was required")}
	case rulesBroken != "":
		return Decision{schema.SuiteInconclusive, "", rulesBroken}
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
		if len(res.LimitsHit) == 0 {
			return Decision{schema.SuiteInfrastructure, schema.SuiteSetup, "the host ran out of memory"}
		}
		return Decision{schema.SuiteFailed, "", fmt.Sprintf("the limit was reached: %v", res.LimitsHit)}
	case schema.OutcomeSignaled:
		if res.Usage.OOMKills != nil && *res.Usage.OOMKills > 0 && len(res.LimitsHit) == 0 {
			return Decision{schema.SuiteInfrastructure, schema.SuiteSetup, "the host ran out of memory"}
		}
		return Decision{schema.SuiteFailed, "", "the agent was ended by " + *res.Signal}
	}
	return Decision{schema.SuiteFailed, "", "the run ended as " + res.Outcome}
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
