//go:build linux

package suite

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/suite/task"
	"github.com/assay-run/assay-run/runner/suite/trial"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/contractfile"
	"github.com/assay-run/assay-run/schema/evalfile"
	"github.com/assay-run/assay-run/schema/modelfile"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/sandboxfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// Limits of a suite file.
const (
	maxFile             = 16 << 20 // bytes
	maxAttempts         = 1000     // of one agent at one task
	maxAttemptsOfSuite  = 100_000
	maxReportedProblems = 200
)

// defaultRetries is how often an attempt is tried again after an infrastructure failure, by default.
const defaultRetries = 2

// File is a suite file.
type File struct {
	Name string `json:"name"`
	// Each agent attempts each task, except for the combinations in Exclude.
	Tasks  Tasks   `json:"tasks"`
	Agents []Agent `json:"agents"`
	// Attempts is how often each agent attempts each task; zero means once.
	Attempts int `json:"attempts"`
	// Retries is how often an attempt is tried again after an infrastructure failure; nil means defaultRetries.
	Retries *int      `json:"retries"`
	Exclude []Exclude `json:"exclude"`
	// Timeouts multiply those of tasks that are folders.
	Timeouts Multipliers `json:"timeouts"`
	// Judge says where the tests of tasks that are folders run: one of trial.Judges. Empty means the first.
	Judge string `json:"judge"`
	// ClosedBook is that of each task that says nothing itself.
	ClosedBook schema.BookRule `json:"closed_book"`

	dir  string           // directory of the file; relative paths in the file start there
	file string           // absolute path of the file
	out  map[Exclude]bool // the entries of Exclude, see setExcluded

	surveys map[string]*survey // of the workspaces, by the name in the file
}

// Exclude leaves out an agent at a task. An empty field stands for all tasks or agents.
type Exclude struct {
	Task  string `json:"task"`
	Agent string `json:"agent"`
}

// Tasks are the tasks of a suite file, where they are a list, or the path of a directory with tasks in folders.
type Tasks []Task

// UnmarshalJSONFrom reads the path of a directory as one task that stands for the directory.
func (t *Tasks) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '"' {
		return json.UnmarshalDecode(d, (*[]Task)(t))
	}
	text, err := d.ReadToken()
	if err == nil {
		*t = Tasks{{folders: text.String()}}
	}
	return err
}

// Multipliers multiply the times of a task that is a folder. Zero means one.
type Multipliers struct {
	Agent    float64 `json:"agent"`
	Verifier float64 `json:"verifier"`
	Build    float64 `json:"build"`
}

// Task is a task of a suite file. Its paths are relative to the suite file.
type Task struct {
	Name string `json:"name"`
	// Prompt is a text for the agent, and Command a command for it to run. Exactly one of them is set.
	Prompt  string `json:"prompt"`
	Command string `json:"command"`
	// Workspace is a directory. Each try gets a copy, see survey. Empty means an empty directory.
	Workspace string `json:"workspace"`
	// Contract is the path of a contract file, or the contract itself.
	Contract jsontext.Value `json:"contract"`
	// Policy is the path of a policy file, and Rules that of a file of rules as for assay-run gate.
	Policy  string            `json:"policy"`
	Rules   string            `json:"rules"`
	Require []string          `json:"require"`
	Limits  specfile.Limits   `json:"limits"`
	Timeout time.Duration     `json:"timeout"`
	Labels  map[string]string `json:"labels"`
	// Containers makes containers that an agent starts part of its run. It cannot be combined with a policy that has a
	// sandbox.
	Containers bool `json:"containers"`
	// Disk is how much an attempt may add to its directory. Zero means defaultDisk.
	Disk config.Bytes `json:"disk"`
	// Model is as in a run's spec. Its fields override those of the agent.
	Model modelfile.Settings `json:"model"`
	// Solution is a shell command that solves the task, for check --oracle.
	Solution string `json:"solution"`

	// Judge overrides that of the suite.
	Judge string `json:"judge"`

	// The next fields are as in an evaluation file.
	Hidden       []string                   `json:"hidden"`
	Protected    []string                   `json:"protected"`
	Tests        string                     `json:"tests"`
	Reward       []string                   `json:"reward"`
	Forbidden    schema.EvaluationForbidden `json:"forbidden"`
	Deliverables []string                   `json:"deliverables"`
	Servers      []schema.EvaluationServer  `json:"servers"`
	StartCommit  string                     `json:"start_commit"`
	ClosedBook   schema.BookRule            `json:"closed_book"`

	folder  *task.Task // the task is a folder of its own, see Folders; nil for others
	folders string     // it stands for the tasks in this directory, until they are read
}

func (t *Task) evaluation() schema.EvaluationDefinition {
	return schema.EvaluationDefinition{Hidden: t.Hidden, Protected: t.Protected, Tests: t.Tests, Reward: t.Reward,
		Forbidden: t.Forbidden, Deliverables: t.Deliverables, Servers: t.Servers, StartCommit: t.StartCommit,
		ClosedBook: t.ClosedBook}
}

// Agent is an agent of a suite file.
type Agent struct {
	Name string `json:"name"`
	// Command is run by sh -c in the workspace, with ASSAY_TASK_PROMPT and other variables, see envPrompt.
	Command string `json:"command"`
	// Env names environment variables that the agent gets besides PATH, HOME and the locale.
	Env []string `json:"env"`
	// Shim says who reports the agent's tool calls, as --agent-shim; empty means nobody.
	Shim string `json:"shim"`
	// Model says how the agent reaches models, as in a run's spec.
	Model modelfile.Settings `json:"model"`
	// Setup, Files and Recipe are as in [trial.Plan]. They are only for tasks that are folders.
	Setup  string `json:"setup"`
	Files  string `json:"files"`
	Recipe string `json:"recipe"`

	solves bool // run the task's solution instead of Command
}

// useRecipe sets what the agent's recipe says and the suite does not. Without a key for the agent, the gateway is only
// wanted if the suite passes nothing else to the agent.
func (a *Agent) useRecipe() {
	r, err := agents.ByName(a.Recipe)
	if err != nil {
		return
	}
	a.Command, a.Shim = cmp.Or(a.Command, r.Task), cmp.Or(a.Shim, r.Reports)
	if !a.Model.On() {
		a.Model.Gateway = len(a.Env) == 0 || a.hasKey()
	}
}

// hasKey reports whether the agent has a key for a route of the model gateway.
func (a *Agent) hasKey() bool {
	return len(a.Model.Keys) > 0 || slices.ContainsFunc(modelfile.Routes, func(route string) bool {
		return slices.ContainsFunc(modelfile.KeyVariables(route), func(v string) bool {
			return slices.Contains(a.Env,
				v)
		})
	})
}

// Names of the agents of a trial.
const (
	Oracle = "oracle" // runs each task's solution
	Nop    = "nop"    // does nothing
)

// errFile is wrapped by every error about a suite file.
var errFile = errors.New("bad suite file")

// Load reads and checks a suite file and the files that it names. rules checks a file of rules. The error lists all
// problems with their lines.
func Load(path string, rules func(path string) error) (*File, error) {
	data, err := config.ReadFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFile, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%w: %s: larger than %d bytes", errFile, path, maxFile)
	}
	dir, err := RealPath(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFile, err)
	}
	f := &File{}
	doc, err := config.DecodeDocument(data, config.YAML, f)
	f.dir, f.file = dir, filepath.Join(dir, filepath.Base(path))
	c := &checker{file: f, doc: doc, rules: rules}
	if err != nil {
		c.problems = append(c.problems, err)
	}
	if len(f.Tasks) > 0 && f.Tasks[0].folders != "" {
		if err := readFolders(f, f.Tasks[0].folders, false); err != nil {
			c.problem("%v", err)("tasks")
			c.refused = true
		}
	}
	f.setExcluded()
	for i := range f.Agents {
		f.Agents[i].useRecipe()
	}
	for i := range f.Tasks {
		f.Tasks[i].ClosedBook = f.Tasks[i].ClosedBook.Or(f.ClosedBook)
	}
	if len(c.problems) == 0 || f.Name != "" || len(f.Tasks) > 0 {
		c.all()
	}
	if n := len(c.problems) - maxReportedProblems; n > 0 {
		c.problems = append(c.problems[:maxReportedProblems], fmt.Errorf("and %d more problems", n))
	}
	if err := errors.Join(c.problems...); err != nil {
		return nil, fmt.Errorf("%w: %s:\n%w", errFile, path, err)
	}
	return f, nil
}

// checker collects the problems of a suite file.
type checker struct {
	file     *File
	doc      *config.Document // nil if the file is not a document
	rules    func(path string) error
	problems []error
	refused  bool // tasks in folders, whose problems say why
}

// problem adds a problem. Call its result with the path of the key, such as "tasks", "2", "name".
func (c *checker) problem(format string, args ...any) func(path ...string) {
	return func(path ...string) {
		c.problems = append(c.problems, c.doc.Fault(fmt.Sprintf(format, args...), path...))
	}
}

var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$`)

func (c *checker) all() {
	f := c.file
	c.name(f.Name, "name")
	if len(f.Tasks) == 0 && !c.refused {
		c.problem("the suite has no tasks")("tasks")
	}
	if len(f.Agents) == 0 {
		c.problem("the suite has no agents")("agents")
	}
	if f.Attempts < 0 || f.Attempts > maxAttempts {
		c.problem("%d is not 1 to %d", f.Attempts, maxAttempts)("attempts")
	}
	if f.Retries != nil && (*f.Retries < 0 || *f.Retries > 100) {
		c.problem("%d is not 0 to 100", *f.Retries)("retries")
	}
	if err := f.Timeouts.check(); err != nil {
		c.problem("%v", err)("timeouts")
	}
	if !f.Folders() && (f.Judge != "" || f.Timeouts != Multipliers{}) {
		c.problem("timeouts and judge are for tasks in folders")()
	}
	c.judges(f.Judge, "judge")
	tasks, agents := map[string]bool{}, map[string]bool{}
	for i := range f.Tasks {
		at := strconv.Itoa(i)
		c.unique(tasks, f.Tasks[i].Name, "tasks", at, "name")
		c.task(&f.Tasks[i], at)
	}
	for i := range f.Agents {
		at := strconv.Itoa(i)
		c.unique(agents, f.Agents[i].Name, "agents", at, "name")
		c.agent(&f.Agents[i], at)
	}
	for i, e := range f.Exclude {
		at := strconv.Itoa(i)
		if e.Task != "" && !tasks[e.Task] {
			c.problem("there is no task %q", e.Task)("exclude", at, "task")
		}
		if e.Agent != "" && !agents[e.Agent] {
			c.problem("there is no agent %q", e.Agent)("exclude", at, "agent")
		}
		if e == (Exclude{}) {
			c.problem("name a task, an agent, or both")("exclude", at)
		}
	}
	switch n := f.count(); {
	case n > maxAttemptsOfSuite:
		c.problem("the suite has %d attempts, at most %d are allowed", n, maxAttemptsOfSuite)("attempts")
	case n == 0 && len(f.Tasks) > 0 && len(f.Agents) > 0:
		c.problem("it excludes every attempt")("exclude")
	default:
		c.models()
	}
}

// count is the number of attempts. If there would be far too many without Exclude, it is that number.
func (f *File) count() int {
	n := len(f.Tasks) * len(f.Agents)
	if n <= maxAttemptsOfSuite {
		n = 0
		for i := range f.Tasks {
			for j := range f.Agents {
				if !f.excluded(f.Tasks[i].Name, f.Agents[j].Name) {
					n++
				}
			}
		}
	}
	return n * max(1, min(f.Attempts, maxAttempts))
}

func (c *checker) name(name string, path ...string) bool {
	if goodName.MatchString(name) {
		return true
	}
	if name == "" {
		c.problem("it is missing")(path...)
	} else {
		c.problem("%.90q is not a name: letters, digits, _, - and ., at most 80", name)(path...)
	}
	return false
}

func (c *checker) unique(seen map[string]bool, name string, path ...string) {
	if c.name(name, path...) && seen[name] {
		c.problem("the name %q is used twice", name)(path...)
	}
	seen[name] = true
}

func (c *checker) task(t *Task, at string) {
	in := func(key string) []string { return []string{"tasks", at, key} }
	if (t.Prompt == "") == (t.Command == "") {
		c.problem("set either prompt or command")("tasks", at)
	}
	for key, text := range map[string]string{"prompt": t.Prompt, "command": t.Command, "solution": t.Solution} {
		if strings.ContainsRune(text, 0) {
			c.problem("it contains a NUL byte")(in(key)...)
		}
		if key != "prompt" {
			c.length(text, in(key)...)
		}
	}
	if err := c.file.checkWorkspace(t); err != nil {
		c.problem("%v", err)(in("workspace")...)
	}
	if err := c.file.checkContract(t); err != nil {
		c.problem("%v", err)(in("contract")...)
	}
	if t.Policy != "" {
		switch p, err := policyfile.Load(c.file.path(t.Policy)); {
		case err != nil:
			c.problem("%v", err)(in("policy")...)
		case t.Containers && p.Sandbox.Mode != "" && p.Sandbox.Mode != sandboxfile.Observe:
			c.problem("%v", specfile.ErrContainers)(in("containers")...)
		}
	}
	if t.Rules != "" {
		if err := c.rules(c.file.path(t.Rules)); err != nil {
			c.problem("%v", err)(in("rules")...)
		}
	}
	if _, err := evaluationFile(t.evaluation()); err != nil {
		c.problem("%v", err)("tasks", at)
	}
	if t.ClosedBook.Close == schema.BookRequired && (t.Containers || t.folder != nil) {
		c.problem("containers are outside of a run's sandbox: the book cannot be closed; write try to record what is " +
			"open")(in("closed_book")...)
	}
	if t.Disk < 0 {
		c.problem("%d is negative", t.Disk)(in("disk")...)
	}
	if t.Timeout < 0 {
		c.problem("%v is negative", t.Timeout)(in("timeout")...)
	}
	c.judges(t.Judge, in("judge")...)
	if t.Judge != "" && t.folder == nil {
		c.problem("it is for tasks in folders")(in("judge")...)
	}
	if len(t.Servers) > 0 && t.Judge != "" && t.Judge != trial.InPlace {
		c.problem("a task with servers is judged in place: omit this key")(in("judge")...)
	}
	for _, name := range []string{labelSuite, labelTask, labelAgent, labelAttempt, labelTry, labelFolder} {
		if _, taken := t.Labels[name]; taken {
			c.problem("the label %q is reserved", name)(in("labels")...)
		}
	}
	spec := c.file.spec(t, &Agent{Command: "true"})
	spec.Labels, spec.Model = t.Labels, modelfile.Settings{} // see models
	spec.Require = slices.DeleteFunc(slices.Clone(t.Require), isModelPath)
	if err := spec.Validate(); err != nil {
		c.problem("%v", err)("tasks", at)
	}
}

// judges checks where tests are to run.
func (c *checker) judges(judge string, path ...string) {
	if judge != "" && !slices.Contains(trial.Judges, judge) {
		c.problem("%.80q is not one of %s", judge, strings.Join(trial.Judges, ", "))(path...)
	}
}

// maxWord is how many bytes of text one argument or variable of a command may have. The kernel takes 131,071 (see
// MAX_ARG_STRLEN in execve(2)), with the variable's name.
const maxWord = 100_000

// length reports a text that a command could not be given.
func (c *checker) length(text string, path ...string) {
	if len(text) > maxWord {
		c.problem("it has %d bytes, and at most %d are allowed: put it in a file", len(text), maxWord)(path...)
	}
}

func (c *checker) agent(a *Agent, at string) {
	if a.Command == "" && !a.solves {
		c.problem("it is missing")("agents", at, "command")
	}
	c.length(a.Command, "agents", at, "command")
	if a.Shim != "" && !slices.Contains(specfile.Shims, a.Shim) {
		c.problem("%.80q is unknown; the shims are %s", a.Shim, strings.Join(specfile.Shims, ", "))("agents", at,
			"shim")
	}
	for _, name := range a.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			c.problem("%.80q is not the name of a variable", name)("agents", at, "env")
		}
	}
	if _, err := agents.ByName(a.Recipe); a.Recipe != "" && err != nil {
		c.problem("%v", err)("agents", at, "recipe")
	}
	switch info, err := os.Stat(c.file.path(a.Files)); {
	case a.Setup+a.Files+a.Recipe == "":
	case !c.file.Folders():
		c.problem("setup, files and recipe are for tasks in folders")("agents", at)
	case a.Files != "" && (err != nil || !info.IsDir()):
		c.problem("%q is not a directory", a.Files)("agents", at, "files")
	}
	word, _, _ := strings.Cut(strings.TrimSpace(a.Command), " ")
	if !c.file.Folders() && programName.MatchString(word) {
		if _, err := exec.LookPath(word); err != nil && !builtins[word] {
			c.problem("%v", err)("agents", at, "command")
		}
	}
}

func isModelPath(requirement string) bool { return requirement == specfile.RequireModelPath }

// models checks how each agent reaches models at each task. It reports each error once.
func (c *checker) models() {
	reported := map[string]bool{}
	for i := range c.file.Agents {
		a := &c.file.Agents[i]
		for j := range c.file.Tasks {
			t := &c.file.Tasks[j]
			if c.file.excluded(t.Name, a.Name) {
				continue
			}
			key := []string{"agents", strconv.Itoa(i), "model"}
			if !reflect.ValueOf(t.Model).IsZero() {
				key = []string{"tasks", strconv.Itoa(j), "model"}
			}
			if err := c.file.checkModel(t, a); err != nil && !reported[err.Error()] {
				reported[err.Error()] = true
				c.problem("%v", err)(key...)
			}
		}
	}
}

func (f *File) checkModel(t *Task, a *Agent) error {
	bare := specfile.New("true")
	bare.Model = f.model(t, a)
	if slices.ContainsFunc(t.Require, isModelPath) {
		bare.Require = []string{specfile.RequireModelPath}
	}
	if err := bare.Validate(); err != nil {
		return err
	}
	if t.Policy != "" {
		if p, err := policyfile.Load(f.path(t.Policy)); err == nil {
			if err := bare.CheckModelPolicy(p); err != nil {
				return err
			}
		}
	}
	if m := bare.Model; m.Gateway && m.Replay == "" && len(m.Keys) == 0 && !a.hasKey() {
		return fmt.Errorf("the model gateway has no key for %s: name a key file in keys, or the variable with the key "+
			"in the agent's env (--agent-env)", a.Name)
	}
	return bare.CheckModel()
}

// model says how an agent reaches models at a task, with absolute paths. The task's fields override the agent's.
func (f *File) model(t *Task, a *Agent) modelfile.Settings {
	m, own := a.Model, t.Model
	m.Gateway = m.Gateway || own.Gateway
	m.ReplayStrict = m.ReplayStrict || own.ReplayStrict
	m.Bodies, m.Replay = cmp.Or(own.Bodies, m.Bodies), cmp.Or(own.Replay, m.Replay)
	m.Prices = cmp.Or(own.Prices, m.Prices)
	m.Budget.Requests = cmp.Or(own.Budget.Requests, m.Budget.Requests)
	m.Budget.Tokens = cmp.Or(own.Budget.Tokens, m.Budget.Tokens)
	m.Budget.Cost = cmp.Or(own.Budget.Cost, m.Budget.Cost)
	m.Budget.End = m.Budget.End || own.Budget.End
	for _, file := range []*string{&m.Prices, &m.Replay} {
		if *file != "" {
			*file = f.path(*file)
		}
	}
	keys, upstreams := map[string]string{}, map[string]string{}
	for _, from := range []modelfile.Settings{a.Model, t.Model} {
		maps.Copy(upstreams, from.Upstreams)
		for route, file := range from.Keys {
			if file != "" && file != modelfile.KeyAgent {
				file = f.path(file)
			}
			keys[route] = file
		}
	}
	m.Keys, m.Upstreams = nil, nil
	if len(keys) > 0 {
		m.Keys = keys
	}
	if len(upstreams) > 0 {
		m.Upstreams = upstreams
	}
	return m
}

// programName matches a word that sh takes literally.
var programName = regexp.MustCompile(`^[A-Za-z0-9_./+-]+$`)

// builtins are first words of a shell command that sh understands without a program of that name.
var builtins = map[string]bool{".": true, "cd": true, "command": true, "eval": true, "exec": true, "exit": true,
	"export": true, "for": true, "if": true, "set": true, "trap": true, "umask": true, "ulimit": true, "unset": true,
	"until": true, "while": true, "case": true, "read": true, ":": true, "wait": true}

// path is the absolute path of a file that the suite file names.
func (f *File) path(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(f.dir, name)
}

// checkWorkspace surveys a task's workspace, and refuses one whose copies would not be whole.
func (f *File) checkWorkspace(t *Task) error {
	if t.Workspace == "" {
		return nil
	}
	s := f.surveys[t.Workspace]
	if s == nil {
		var err error
		if s, err = surveyed(f.path(t.Workspace)); err != nil {
			return err
		}
		if f.surveys == nil {
			f.surveys = map[string]*survey{}
		}
		f.surveys[t.Workspace] = s
	}
	if s.place == "" {
		return nil
	}
	why := fmt.Sprintf("%s %s where the workspace is (%s), and a copy is elsewhere", names(s.naming),
		plural(len(s.naming), "depends on", "depend on"), schema.Readable(s.place))
	if t.Containers {
		return fmt.Errorf("%s; assay-suite mounts each copy there, but containers would mount the original: make a "+
			"workspace without such files", why)
	}
	if err := placed(s.place, s.place, func() error { return nil }); err != nil {
		return fmt.Errorf("%s; %w: run assay-suite as root, or make a workspace without such files", why, err)
	}
	return nil
}

// Notes says what is unusual about the copies of the tasks' workspaces.
func (f *File) Notes() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(f.surveys)) {
		for _, note := range f.surveys[name].notes() {
			list = append(list, schema.Readable(name)+": "+note)
		}
	}
	return list
}

// contractFile is the path of a task's contract file, or the text of a contract in the suite file. Both are empty if
// the task has no contract.
func (f *File) contractFile(t *Task) (path string, text []byte) {
	switch {
	case len(t.Contract) == 0 || t.Contract.Kind() == 'n':
		return "", nil
	case t.Contract.Kind() == '"':
		var name string
		_ = json.Unmarshal(t.Contract, &name)
		return f.path(name), nil
	}
	return "", t.Contract
}

func (f *File) checkContract(t *Task) error {
	path, text := f.contractFile(t)
	switch {
	case path != "":
		_, err := contractfile.LoadValid(path)
		return err
	case text == nil:
		return nil
	}
	c, err := contractfile.Parse(text, config.JSON)
	if err != nil {
		return err
	}
	if problems := c.Validate(); len(problems) > 0 {
		return &contractfile.InvalidError{Problems: problems}
	}
	return nil
}

// Trial is a suite that tests the tasks themselves. With oracle it has an agent that runs each task's solution, with
// nop an agent that does nothing. It reaches no models.
func (f *File) Trial(oracle, nop bool) *File {
	t := &File{Name: f.Name, Attempts: 1, Retries: f.Retries, Tasks: slices.Clone(f.Tasks), Judge: f.Judge, dir: f.dir,
		file: f.file, surveys: f.surveys}
	for i := range t.Tasks {
		task := &t.Tasks[i]
		task.Model = modelfile.Settings{}
		task.Require = slices.DeleteFunc(slices.Clone(task.Require), isModelPath)
		if task.Solution == "" {
			t.Exclude = append(t.Exclude, Exclude{task.Name, Oracle})
		}
	}
	t.setExcluded()
	if oracle {
		t.Agents = append(t.Agents, Solver())
	}
	if nop {
		t.Agents = append(t.Agents, Idler())
	}
	return t
}

// StartTrial is a suite that starts each task once, as an attempt of the first agent that attempts it. The agent's
// command is not run, and nothing judges the task.
func (f *File) StartTrial() *File {
	t := *f
	t.Attempts, t.Retries, t.Tasks, t.Agents, t.Exclude = 1, new(int), slices.Clone(f.Tasks), nil, nil
	for _, a := range f.Agents {
		if a.Command = findsProgram(a.Command); f.Folders() {
			a.Command, a.solves = ":", false // the agent's setup may install its program
		}
		t.Agents = append(t.Agents, a)
	}
	for i := range t.Tasks {
		task, found := &t.Tasks[i], false
		task.Contract, task.Rules, task.Require = nil, "", nil
		for _, a := range f.Agents {
			if found || f.excluded(task.Name, a.Name) {
				t.Exclude = append(t.Exclude, Exclude{task.Name, a.Name})
				continue
			}
			found = true
		}
	}
	t.setExcluded()
	return &t
}

// Attempted lists the attempts of the suite: the first ones of all agents at all tasks, then the second ones, and so
// on.
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

// setExcluded prepares excluded from Exclude.
func (f *File) setExcluded() {
	f.out = map[Exclude]bool{}
	for _, e := range f.Exclude {
		f.out[e] = true
	}
}

// maxTries is how many tries an attempt may take.
func (f *File) maxTries() int {
	if f.Retries != nil {
		return 1 + *f.Retries
	}
	return 1 + defaultRetries
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

// Describe computes the digests of the suite. It reads all files that the suite file names.
func (f *File) Describe() (*Description, error) {
	d := &Description{Identities: map[Attempt]string{}, Workspaces: map[string]string{},
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
		if a.Files, err = f.digestPath(a.Files); err != nil {
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

func (f *File) digested(t *Task) (*digested, error) {
	c, folder := *t, ""
	if t.folder != nil {
		var err error
		if folder, err = digestTree(t.folder.Dir); err != nil {
			return nil, err
		}
	}
	if s := f.surveys[c.Workspace]; s != nil {
		c.Workspace = s.digest
	}
	for _, name := range []*string{&c.Policy, &c.Rules} {
		var err error
		if *name, err = f.digestPath(*name); err != nil {
			return nil, err
		}
	}
	var err error
	if c.Model, err = f.digestedModel(t.Model); err != nil {
		return nil, err
	}
	if path, _ := f.contractFile(t); path != "" {
		digest, err := f.digestPath(path)
		if err != nil {
			return nil, err
		}
		c.Contract, _ = jsontext.AppendQuote(nil, digest)
	}
	return &digested{c, t.Timeout.String(), folder}, nil
}

// digestedModel is m with digests in the place of files. Of keys it only tells which routes have one: another key does
// not change what the suite asks for, and even a digest of a key may help to guess it.
func (f *File) digestedModel(m modelfile.Settings) (modelfile.Settings, error) {
	for _, name := range []*string{&m.Prices, &m.Replay} {
		var err error
		if *name, err = f.digestPath(*name); err != nil {
			return m, err
		}
	}
	if m.Keys != nil {
		m.Keys = maps.Clone(m.Keys)
		for route, file := range m.Keys {
			if file != modelfile.KeyAgent {
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
	return digestTree(f.path(name))
}

// source is what the workspaces of a task's tries are copies of. The zero value is an empty directory.
type source struct {
	path, digest string
	// place is where each copy must be mounted; empty means anywhere.
	place string
}

// work is the work for a try with a workspace from the given source.
func (f *File) work(a Attempt, try int, token string, from source) (*tryWork, error) {
	t, agent := f.task(a.Task), f.agent(a.Agent)
	w := &tryWork{Suite: f.Name, Attempt: a, Try: try, Token: token, Env: agent.Env, Prompt: t.Prompt,
		Disk: int64(cmp.Or(t.Disk, defaultDisk)), Workspace: from.path, WorkspaceDigest: from.digest, Place: from.place,
		Evaluation: f.evaluation(t, agent), Private: f.private(t)}
	w.Spec = f.spec(t, agent)
	if t.folder != nil {
		w.Env = slices.Concat(agent.Env, engineVariables)
		w.Plan = f.plan(t, agent)
	}
	w.Spec.RunID, w.Spec.Labels = runID(token), f.labels(t, a, try)
	w.Spec.Env[envAttempt] = strconv.Itoa(a.Attempt)
	var err error
	if path, text := f.contractFile(t); path != "" {
		if w.Contract, err = copyFile(path); err != nil {
			return nil, err
		}
	} else if text != nil {
		w.Contract = fileCopy{"contract.json", text}
	}
	if t.Policy != "" {
		if w.Policy, err = copyFile(f.path(t.Policy)); err != nil {
			return nil, err
		}
	}
	if prices := w.Spec.Model.Prices; prices != "" {
		if w.Prices, err = copyFile(prices); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// spec is the spec of an agent's run at a task, without the fields that differ between attempts.
func (f *File) spec(t *Task, agent *Agent) *specfile.Spec {
	command := agent.Command
	if agent.solves {
		command = t.Solution
	}
	if t.folder != nil {
		command = attemptStep + stepAgent
	}
	s := specfile.New("sh", "-c", command)
	s.Timeout, s.Limits, s.Require, s.Containers = t.Timeout, t.Limits, t.Require, t.Containers
	s.Model = f.model(t, agent)
	s.WorkspaceChanges = true
	s.KeepObserver = keepObserver
	if agent.Shim != "" {
		s.AgentShim = agent.Shim
	}
	s.Env = map[string]string{}
	if t.Prompt != "" && len(t.Prompt) <= maxWord {
		s.Env[envPrompt] = t.Prompt
	}
	if t.Command != "" {
		s.Env[envCommand] = t.Command
	}
	if agent.solves {
		s.Env[envSuiteDir] = f.dir
	}
	return s
}

func (f *File) labels(t *Task, a Attempt, try int) map[string]string {
	labels := map[string]string{labelSuite: f.Name, labelTask: a.Task, labelAgent: a.Agent,
		labelAttempt: strconv.Itoa(a.Attempt), labelTry: strconv.Itoa(try)}
	if t.folder != nil {
		labels[labelFolder] = "true"
	}
	for k, v := range t.Labels {
		labels[k] = v
	}
	return labels
}

// evaluation is the task's evaluation definition. It also hides and protects the suite's own files, and protects the
// original of the workspace.
func (f *File) evaluation(t *Task, a *Agent) schema.EvaluationDefinition {
	e := t.evaluation()
	e.Hidden, e.Watched = slices.Clone(e.Hidden), slices.Clone(e.Watched)
	for _, path := range f.private(t) {
		e.Hidden, e.Watched = append(e.Hidden, literal(path)), append(e.Watched, literal(path))
	}
	if s := f.surveys[t.Workspace]; s != nil && s.place == "" { // else the agent does not see the original
		if real, err := filepath.EvalSymlinks(f.path(t.Workspace)); err == nil {
			e.Watched = append(e.Watched, literal(real), literal(real)+"/**")
		}
	}
	for _, name := range []string{a.Shim, a.Recipe} {
		if _, known := agents.Of(name); known {
			e.Agent = name
		}
	}
	return e
}

// private are the files that show an agent how it is judged: the suite file, the contract and the rules.
func (f *File) private(t *Task) (paths []string) {
	contract, _ := f.contractFile(t)
	rules := ""
	if t.Rules != "" {
		rules = f.path(t.Rules)
	}
	for _, path := range []string{f.file, contract, rules} {
		if real, err := filepath.EvalSymlinks(path); path != "" && err == nil {
			paths = append(paths, real)
		}
	}
	return paths
}

// evaluationFile is the text of an evaluation file. It is JSON, which is also YAML.
func evaluationFile(d schema.EvaluationDefinition) ([]byte, error) {
	text, err := json.Marshal(d, json.Deterministic(true))
	if err == nil {
		_, err = evalfile.Parse(text)
	}
	return text, err
}

// Folders reports whether the tasks are folders.
func (f *File) Folders() bool { return len(f.Tasks) > 0 && f.Tasks[0].folder != nil }

// Derived returns the evaluation definition of each task that is a folder, by the task's name: what follows from the
// folder, and what metadata.assay adds. It has no workspace if only the image says where that is.
func (f *File) Derived() map[string]schema.EvaluationDefinition {
	all := map[string]schema.EvaluationDefinition{}
	for _, t := range f.Tasks {
		if t.folder == nil {
			continue
		}
		e := t.evaluation()
		derive(&e, t.folder.Evaluation(t.folder.Workdir))
		if t.folder.Workdir == "" {
			e.Workspace = nil
		}
		all[t.Name] = e
	}
	return all
}

// derive adds to a task's own definition what follows from its folder.
func derive(own *schema.EvaluationDefinition, e schema.EvaluationDefinition) {
	own.Workspace, own.Deliverables = e.Workspace, append(own.Deliverables, e.Deliverables...)
	own.Hidden, own.Reward = append(own.Hidden, e.Hidden...), append(own.Reward, e.Reward...)
}

// plan is the plan of an attempt, without what the worker adds.
func (f *File) plan(t *Task, a *Agent) *trial.Plan {
	p := &trial.Plan{Task: t.folder, Command: a.Command, Solve: a.solves, Setup: a.Setup, Recipe: a.Recipe,
		Env: map[string]string{envPrompt: t.Prompt}, Pass: a.Env, Judges: cmp.Or(t.Judge, f.Judge, trial.Judges[0])}
	if m := f.model(t, a); m.On() {
		p.Pass, p.Routes = slices.Concat(a.Env, modelfile.Variables()), modelfile.Addresses()
	}
	for _, s := range t.Servers {
		p.Judges, p.Ports = trial.InPlace, append(p.Ports, s.Port)
	}
	if a.Files != "" {
		p.Files = f.path(a.Files)
	}
	return p
}

// agentKeys are the routes of [Exam.AgentKeys].
func (f *File) agentKeys(a Attempt) (routes []string) {
	for route, file := range f.model(f.task(a.Task), f.agent(a.Agent)).Keys {
		if file == modelfile.KeyAgent {
			routes = append(routes, route)
		}
	}
	return routes
}

// exam says how to judge a bundle of a task.
func (f *File) exam(t *Task, bundle string) Exam {
	e := Exam{Bundle: bundle}
	if t.Rules != "" {
		e.Rules = f.path(t.Rules)
	}
	return e
}
