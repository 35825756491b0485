// Package trial makes one attempt at a task in a folder (package task) with Docker's client. [Plan.Agent] is the
// command of the attempt's run, and [Plan.Judge] is the check of its contract.
//
// The agent works in a container of the run. When the agent has ended, the container is stopped and committed. The
// judge gets a new container from that commit. Nothing that the agent started runs there, and the tests are copied
// there only then. The rewards are read from a directory that the agent never had. With the other [Judges], the tests
// run in the agent's own container too, or only there.
//
// Everything that an attempt makes has its suite's label. So [Remove] finds it even if assay-suite was killed.
package trial

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/harbor"
	"github.com/assay-run/assay-run/runner/internal/listening"
	"github.com/assay-run/assay-run/runner/suite/task"
	"github.com/assay-run/assay-run/schema/agents"
)

// Labels of what is made.
const (
	labelSuite = "assay.suite.directory" // containers and commits, until the attempt is over
	labelImage = "assay.suite.task"      // images that were built, until Prune
)

// Plan is what an attempt needs, on the host where it is made.
type Plan struct {
	Task *task.Task `json:"task"`
	// Name is that of the agent's container, and Suite names the suite's directory.
	Name  string `json:"name"`
	Suite string `json:"suite"`
	Image
	// Command is the agent's, for sh -c. Solve runs the task's solution instead.
	Command string `json:"command"`
	Solve   bool   `json:"solve"`
	// Recipe is the name of the recipe that sets the agent up; empty means none. Program is the path of assay-run,
	// which the agent's hooks call.
	Recipe  string `json:"recipe"`
	Program string `json:"program"`
	// Routes are the providers behind the run's model gateway, if this process has the variable that is their value. It
	// is empty without a gateway.
	Routes map[string]string `json:"routes"`
	// Log is the file to which hooks report the agent's calls; empty means none.
	Log string `json:"log"`
	// Setup is run before Command, as root; empty means nothing. Files is a directory of the host that the container
	// has, read-only, as FilesAt; empty means none.
	Setup string `json:"setup"`
	Files string `json:"files"`
	// Env are variables of the agent, and Pass the names of those that it gets from this process.
	Env  map[string]string `json:"env"`
	Pass []string          `json:"pass"`
	// Judges is one of [Judges].
	Judges string `json:"judges"`
	// Ports are those on which the task asks for servers. If something listens on one when the agent has ended, the
	// agent's container is not stopped before the tests run there.
	Ports []int `json:"ports"`
	// Dir is a directory of the host for the tests and rewards.
	Dir string `json:"dir"`
	// Changes is the path of the [ChangesFile] that Agent writes; empty means none.
	Changes string `json:"changes"`
}

// Where the tests run: in a fresh container from a commit of the agent's, in the agent's own container once everything
// of the agent has ended there, or in both. With both, the fresh container decides, and a task that only passes in the
// other is not decided.
const (
	judgeFresh = "fresh"
	judgeBoth  = "both"
	// InPlace is the only way for a task that asks for servers.
	InPlace = "place"
)

// Judges are the ways to run the tests, the usual one first.
var Judges = []string{judgeFresh, InPlace, judgeBoth}

// FilesAt is where a container has the files for the agent, and ProgramAt is where it has assay-run for an agent with a
// recipe.
const (
	FilesAt   = "/opt/assay-agent"
	ProgramAt = "/opt/assay-run/assay-run"
)

// Load reads a plan.
func Load(file string) (*Plan, error) {
	data, err := os.ReadFile(file)
	p := &Plan{}
	if err == nil {
		err = json.Unmarshal(data, p)
	}
	return p, err
}

// Save writes a plan for [Load].
func (p *Plan) Save(file string) error {
	data, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// maxSaid is how much of an error message of Docker's client is kept.
const maxSaid = 2000

// docker runs Docker's client and returns what it printed.
func docker(ctx context.Context, args ...string) (string, error) {
	return dockerFrom(ctx, nil, args...)
}

// dockerFrom is docker with standard input; nil for none.
func dockerFrom(ctx context.Context, in io.Reader, args ...string) (string, error) {
	out, stderr := &bytes.Buffer{}, &bytes.Buffer{}
	err := dockerTo(ctx, in, out, stderr, args...)
	if err != nil {
		said := strings.TrimSpace(stderr.String())
		err = fmt.Errorf("docker %s: %w: %s", args[0], err, said[max(0, len(said)-maxSaid):])
	}
	return strings.TrimSpace(out.String()), err
}

func dockerTo(ctx context.Context, in io.Reader, out, stderr io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, stderr
	cmd.WaitDelay = time.Second
	return cmd.Run()
}

// Image is the image of a task.
type Image struct {
	Name string `json:"image"`
	// Workdir is where commands start.
	Workdir string `json:"workdir"`
	// Volumes are the directories of its volumes, separated by spaces. A commit lacks what is there.
	Volumes string `json:"volumes"`
}

// Prepare pulls or builds the image of a task. digest is the digest of the folder environment. An image with the same
// digest is not built again. judges is one of [Judges]: an image with volumes is refused if the tests could not see
// what an agent leaves there.
func Prepare(ctx context.Context, t *task.Task, digest, judges string) (_ Image, err error) {
	if t.BuildTimeout > 0 {
		var stop func()
		ctx, stop = context.WithTimeout(ctx, t.BuildTimeout.Of())
		defer stop()
	}
	image := t.Image
	if image == "" {
		image = "assay-suite-task:" + strings.TrimPrefix(digest, "sha256:")[:32]
	}
	inspect := []string{"image", "inspect", "--format", "{{json .Config}}", image}
	said, missing := docker(ctx, inspect...)
	if missing != nil {
		if t.Image != "" {
			_, err = docker(ctx, "pull", image)
		} else {
			_, err = docker(ctx, "build", "--quiet", "--label", labelImage+"="+t.Name, "--tag", image,
				filepath.Join(t.Dir, task.Environment))
		}
		if err != nil {
			return Image{}, fmt.Errorf("the image of %s: %w", t.Name, err)
		}
		said, err = docker(ctx, inspect...)
	}
	var is struct {
		WorkingDir string
		Volumes    map[string]any
	}
	if err == nil {
		err = json.Unmarshal([]byte(said), &is)
	}
	if err != nil {
		return Image{}, err
	}
	at, volumes := is.WorkingDir, strings.Join(slices.Sorted(maps.Keys(is.Volumes)), " ")
	if volumes != "" && judges == judgeFresh {
		return Image{}, fmt.Errorf("the image of %s has volumes (%s): a commit lacks what an agent leaves there, "+
			"so the tests could not judge it; use --judge place or both", t.Name, volumes)
	}
	switch {
	case t.Workdir != "":
		at = t.Workdir
	case at == "":
		at = "/"
	}
	return Image{image, at, volumes}, nil
}

// Remove removes the containers and commits of all attempts of a suite.
func Remove(ctx context.Context, suite string) error {
	filter := []string{"--filter", "label=" + labelSuite + "=" + suite}
	var errs []error
	for _, of := range []struct{ list, remove []string }{
		{[]string{"ps", "--all", "--quiet"}, []string{"rm", "--force", "--volumes"}},
		{[]string{"images", "--all", "--quiet"}, []string{"rmi", "--force"}},
	} {
		_, err := removeAll(ctx, append(of.list, filter...), of.remove)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Remove removes the containers and the commit of the attempt.
func (p *Plan) Remove(ctx context.Context) error {
	var errs []error
	for _, remove := range [][]string{{"rm", "--force", "--volumes", p.Name, p.judgeName()},
		{"rmi", "--force", p.commitName()}} {
		if _, err := docker(ctx, remove...); err != nil && !onlyMissing(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// onlyMissing reports whether an error of Docker's client says nothing but that something does not exist.
func onlyMissing(err error) bool {
	for line := range strings.Lines(err.Error()) {
		if !strings.Contains(line, "No such ") {
			return false
		}
	}
	return true
}

func (p *Plan) judgeName() string { return p.Name + "-judge" }

func (p *Plan) commitName() string { return strings.ToLower(p.Name) + ":left" }

// Prune removes the images that were built for tasks. It returns how many.
func Prune(ctx context.Context) (int, error) {
	return removeAll(ctx, []string{"images", "--quiet", "--filter", "label=" + labelImage}, []string{"rmi", "--force"})
}

// removeAll removes what a command lists, and returns how many things it removed.
func removeAll(ctx context.Context, list, remove []string) (int, error) {
	said, err := docker(ctx, list...)
	ids := strings.Fields(said)
	slices.Sort(ids)
	if ids = slices.Compact(ids); err == nil && len(ids) > 0 {
		_, err = docker(ctx, append(remove, ids...)...)
	}
	return len(ids), err
}

// create makes a container that waits, and starts it.
func (p *Plan) create(ctx context.Context, name, image string, more ...string) error {
	t := p.Task
	args := []string{"create", "--name", name, "--label", labelSuite + "=" + p.Suite}
	if !t.Network {
		args = append(args, "--network", "none")
	}
	if t.CPUs > 0 {
		args = append(args, "--cpus", strconv.FormatFloat(t.CPUs, 'f', -1, 64))
	}
	if t.Memory > 0 {
		args = append(args, "--memory", strconv.FormatInt(t.Memory, 10))
	}
	args = append(append(args, variables(t.Env)...), more...)
	if _, err := docker(ctx, append(args, image, "sh", "-c", "sleep infinity")...); err != nil {
		return err
	}
	_, err := docker(ctx, "start", name)
	return err
}

// variables are options that set the variables of env.
func variables(env map[string]string) (options []string) {
	for _, k := range slices.Sorted(maps.Keys(env)) {
		options = append(options, "--env", k+"="+env[k])
	}
	return options
}

// in are the arguments that execute a command in a container, as a user; empty means the image's.
func (p *Plan) in(name, user string, options []string, command ...string) []string {
	args := []string{"exec", "--workdir", p.Workdir}
	if user != "" {
		args = append(args, "--user", user)
	}
	return slices.Concat(args, options, []string{name}, command)
}

// healthy waits until the task's container is ready.
func (p *Plan) healthy(ctx context.Context, name string) error {
	h := p.Task.Health
	if h == nil {
		return nil
	}
	for began, failed := time.Now(), 0; ; {
		once, stop := context.WithTimeout(ctx, h.Timeout.Of())
		_, err := docker(once, p.in(name, "", nil, "sh", "-c", h.Command)...)
		stop()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		wait := h.StartInterval.Of()
		if time.Since(began) > h.StartPeriod.Of() {
			if failed++; failed > h.Retries {
				return fmt.Errorf("the healthcheck failed: %w", err)
			}
			wait = h.Interval.Of()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// Exit statuses of Agent, besides the agent's own.
const (
	exitFault   = 125
	exitTimeout = 124
	exitNotRun  = 126
	exitMissing = 127
)

// solves runs a task's solution with bash, as Harbor does, or with sh where there is no bash.
const solves = "if command -v bash >/dev/null; then exec bash /" + task.Solve + "; fi; exec sh /" + task.Solve

// FaultFile is the file in Plan.Dir that says why the agent did not start.
const FaultFile = "fault"

// Agent makes the agent's container, lets the agent work, and stops the container. If a server runs that the
// task asks for, the container goes on, and the recorder ends what else runs there. It returns the agent's exit status.
// If the agent could not be started, FaultFile says why.
func (p *Plan) Agent(ctx context.Context, stdout, stderr io.Writer) int {
	err := p.ready(ctx)
	var options, command []string
	if err == nil {
		options, command, err = p.command(ctx)
	}
	if err != nil {
		fmt.Fprintf(stderr, "assay-suite: error: %v\n", err)
		_ = os.WriteFile(filepath.Join(p.Dir, FaultFile), []byte(err.Error()), 0o600)
		return exitFault
	}
	working, stop := ctx, func() {}
	if p.Task.AgentTimeout > 0 {
		working, stop = context.WithTimeout(ctx, p.Task.AgentTimeout.Of())
	}
	err = dockerTo(working, nil, stdout, stderr, p.in(p.Name, p.Task.AgentUser, options, command...)...)
	late := working.Err() != nil && ctx.Err() == nil
	stop()
	pid, upper := p.state(ctx)
	if lacks := p.uncommitted(pid); lacks != "" {
		fmt.Fprintf(stderr, "assay-suite: a commit of the container lacks %s\n", lacks)
		_ = os.WriteFile(filepath.Join(p.Dir, lackFile), []byte(lacks), 0o600)
	}
	halt, resume := []string{"stop", "--time", "0", p.Name}, []string(nil)
	if p.serves(ctx) {
		halt, resume = []string{"pause", p.Name}, []string{"unpause", p.Name}
	}
	if _, err := docker(ctx, halt...); err != nil {
		fmt.Fprintf(stderr, "assay-suite: error: %v\n", err)
	}
	if p.Changes != "" {
		lacks, err := saveChanges(upper, p.Changes)
		switch {
		case err != nil:
			fmt.Fprintf(stderr, "assay-suite: what the agent changed is not kept: %v\n", err)
		case len(lacks) > 0:
			fmt.Fprintf(stderr, "assay-suite: what the agent changed is kept without %.200q and %d more\n", lacks[0],
				len(lacks)-1)
		}
	}
	if resume != nil {
		if _, err := docker(ctx, resume...); err != nil {
			fmt.Fprintf(stderr, "assay-suite: error: %v\n", err)
		}
	}
	var exit *exec.ExitError
	switch {
	case late:
		fmt.Fprintf(stderr, "assay-suite: the agent ran longer than %v, and was ended\n", p.Task.AgentTimeout.Of())
		return exitTimeout
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		return exitFault
	}
	return 0
}

// command returns the agent's command line, and options of docker exec for it.
func (p *Plan) command(ctx context.Context) (options, command []string, err error) {
	if p.Solve {
		return variables(p.Task.SolutionEnv), []string{"sh", "-c", solves}, nil
	}
	options = variables(p.Env)
	for _, name := range p.Pass {
		options = append(options, "--env", name)
	}
	if p.Recipe == "" {
		return options, []string{"sh", "-c", p.Command}, nil
	}
	return p.byRecipe(ctx, options)
}

// findsAgent prints the home and the PATH of the container's user, if the program is there and assay-run runs.
const findsAgent = `command -v "$1" >/dev/null || exit 127; "$2" --version >/dev/null || exit 126; ` +
	`echo "$HOME"; echo "$PATH"`

// byRecipe is command for an agent with a recipe. "assay-run hook" writes the recipe's files to the home of the
// container's user, and the arguments follow the program's name by a function of the shell.
func (p *Plan) byRecipe(ctx context.Context, options []string) (_, command []string, err error) {
	r, err := agents.ByName(p.Recipe)
	if err != nil {
		return nil, nil, err
	}
	program := r.Command[0]
	said, err := docker(ctx, p.in(p.Name, p.Task.AgentUser, options, "sh", "-c", findsAgent, "sh", program,
		ProgramAt)...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == exitMissing:
		return nil, nil, fmt.Errorf("the container has no program %s in its PATH: install it in the image, or with "+
			"--agent-setup", program)
	case errors.As(err, &exit) && exit.ExitCode() == exitNotRun:
		return nil, nil, fmt.Errorf("%s does not run in the container, where the agent's hooks need it: use a "+
			"release, or build it with CGO_ENABLED=0", p.Program)
	case err != nil:
		return nil, nil, err
	}
	home, search, _ := strings.Cut(said, "\n")
	env := map[string]string{"HOME": home, "PATH": search}
	variable := func(name string) (string, bool) {
		if v, set := env[name]; set {
			return v, true
		}
		return os.LookupEnv(name)
	}
	outfit := agents.Outfit{Recipe: r, Private: true}
	for _, route := range slices.Sorted(maps.Keys(p.Routes)) {
		if _, set := os.LookupEnv(p.Routes[route]); set {
			outfit.Routes = append(outfit.Routes, route)
		}
	}
	worn, err := outfit.Wear(variable)
	if err != nil {
		return nil, nil, err
	}
	text := p.Command
	if len(worn.Arguments) > 0 {
		text = fmt.Sprintf("%s() { command %s %s \"$@\"; }\n%s", program, program, quoted(worn.Arguments), text)
	}
	for _, kv := range append(worn.Env, "PATH="+search+":"+path.Dir(ProgramAt)) {
		options = append(options, "--env", kv)
	}
	for _, name := range []string{agents.EnvLog, agents.EnvLogSchema, agents.EnvRun} {
		options = append(options, "--env", name)
	}
	command = []string{"sh", "-c", text}
	if worn.Setup != "" {
		options = append(options, "--env", agents.EnvSetup+"="+worn.Setup)
		command = append([]string{ProgramAt, "hook", r.Name, "--"}, command...)
	}
	return options, command, nil
}

// quoted are words as sh reads them.
func quoted(words []string) string {
	var all []string
	for _, word := range words {
		all = append(all, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	return strings.Join(all, " ")
}

// A server may take serveTime to listen once the agent has ended.
const (
	serveTime     = 10 * time.Second
	serveInterval = 50 * time.Millisecond
)

// serves waits until something listens on each port that the task asks for. It reports whether something listens on
// one of them.
func (p *Plan) serves(ctx context.Context) bool {
	for began := time.Now(); len(p.Ports) > 0; {
		n := p.listens(ctx)
		if n == len(p.Ports) || time.Since(began) > serveTime || ctx.Err() != nil {
			return n > 0
		}
		time.Sleep(serveInterval)
	}
	return false
}

// listens returns on how many ports of the task something in the agent's container listens.
func (p *Plan) listens(ctx context.Context) int {
	pid, _ := p.state(ctx)
	n, err := strconv.Atoi(pid)
	if err != nil || n == 0 { // it does not run
		return 0
	}
	ports := slices.Collect(maps.Values(listening.Sockets(n, p.Ports)))
	slices.Sort(ports)
	return len(slices.Compact(ports))
}

// lackFile is the file in Plan.Dir that says what a commit of the agent's container lacks.
const lackFile = "lacks"

// memory is a file system of each container that a commit lacks.
const memory = "dev/shm"

// state is what Docker says of a container that runs: its first process, and the directory with what it changed in its
// root. The directory is empty if the engine does not keep it in an overlay file system.
func (p *Plan) state(ctx context.Context) (pid, upper string) {
	said, _ := docker(ctx, "inspect", "--format", "{{.State.Pid}} {{.GraphDriver.Data.UpperDir}}", p.Name)
	pid, upper, _ = strings.Cut(said, " ")
	return pid, upper
}

// uncommitted says what the agent left that a commit of its container lacks; empty for nothing. pid is the container's
// first process.
func (p *Plan) uncommitted(pid string) string {
	var lacks []string
	if p.Volumes != "" {
		lacks = append(lacks, "its volumes ("+p.Volumes+")")
	}
	if pid != "" && pid != "0" {
		// Names in it stay in the container, whatever links the agent made.
		if root, err := os.OpenRoot("/proc/" + pid + "/root"); err == nil {
			defer root.Close()
			if left, _ := fs.ReadDir(root.FS(), memory); len(left) > 0 { // without the directory, nothing is there
				lacks = append(lacks, fmt.Sprintf("what is in /%s (%.80q and %d more)", memory, left[0].Name(),
					len(left)-1))
			}
		}
	}
	return strings.Join(lacks, " and ")
}

// ready starts the container, and does what comes before the agent.
func (p *Plan) ready(ctx context.Context) error {
	var more []string
	if p.Files != "" {
		more = []string{"--mount", "type=bind,readonly,source=" + p.Files + ",target=" + FilesAt}
	}
	if p.Recipe != "" {
		more = append(more, "--mount", "type=bind,readonly,source="+p.Program+",target="+ProgramAt)
	}
	if p.Log != "" {
		more = append(more, "--mount", "type=bind,source="+p.Log+",target="+p.Log)
	}
	if p.Judges != judgeFresh {
		logs, err := p.rewards(InPlace)
		if err != nil {
			return err
		}
		more = append(more, mountRewards(logs)...)
	}
	if err := p.create(ctx, p.Name, p.Image.Name, more...); err != nil {
		return err
	}
	_, err := docker(ctx, p.in(p.Name, "0", nil, "sh", "-c",
		"mkdir -p /logs && cd /logs && mkdir -p agent artifacts verifier && chmod 777 agent artifacts verifier")...)
	if err == nil {
		err = p.healthy(ctx, p.Name)
	}
	if err == nil && p.Setup != "" {
		_, err = docker(ctx, p.in(p.Name, "0", variables(p.Env), "sh", "-c", p.Setup)...)
	}
	if err == nil && p.Solve {
		_, err = docker(ctx, "cp", filepath.Join(p.Task.Dir, task.Solution)+"/.", p.Name+":/"+task.Solution)
	}
	return err
}

// CheckName is the name of the check that Judge is. ExitUndecided is its exit status if there is no reward, and
// ExitInPlace if the tests pass in the agent's container alone.
const (
	CheckName     = "verifier"
	ExitUndecided = 3
	ExitInPlace   = 4
)

// maxReward limits the size of a file with a reward.
const maxReward = 1 << 20

// Judge runs the tests where Judges says, and returns an exit status: 0 if every reward is at least 1, 1 if one is
// less, or one of those above. It writes the rewards to out.
func (p *Plan) Judge(ctx context.Context, out io.Writer) int {
	if p.Judges == InPlace {
		return p.judge(ctx, out, p.inPlace)
	}
	code := p.judge(ctx, out, p.fresh)
	if p.Judges == judgeFresh || code == 0 {
		return code
	}
	fmt.Fprintln(out, "and in the agent's own container:")
	if p.judge(ctx, out, p.inPlace) == 0 {
		return ExitInPlace
	}
	return code
}

// starts makes a container for the tests, and a directory of the host for its rewards.
type starts func(ctx context.Context, out io.Writer) (name, logs string, err error)

// judge runs the tests in the container that ready makes, and returns an exit status.
func (p *Plan) judge(ctx context.Context, out io.Writer, ready starts) int {
	rewards, err := p.test(ctx, out, ready)
	if err != nil {
		fmt.Fprintf(out, "no reward: %v\n", err)
		return ExitUndecided
	}
	code := 0
	for _, name := range slices.Sorted(maps.Keys(rewards)) {
		fmt.Fprintf(out, "%s %v\n", name, rewards[name])
		if rewards[name] < 1 {
			code = 1
		}
	}
	return code
}

// rewards makes a directory of the host where a judge's container has /logs/verifier.
func (p *Plan) rewards(of string) (string, error) {
	logs := filepath.Join(p.Dir, "rewards-"+of)
	return logs, errors.Join(os.Mkdir(logs, 0o777), os.Chmod(logs, 0o777))
}

// mountRewards are the options of a container that has the directory logs of the host as /logs/verifier.
func mountRewards(logs string) []string {
	return []string{"--mount", "type=bind,source=" + logs + ",target=" + harbor.RewardsAt}
}

// fresh starts a new container from a commit of the agent's.
func (p *Plan) fresh(ctx context.Context, out io.Writer) (name, logs string, err error) {
	if logs, err = p.rewards(judgeFresh); err != nil {
		return "", "", err
	}
	if lacks, err := os.ReadFile(filepath.Join(p.Dir, lackFile)); err == nil {
		fmt.Fprintf(out, "this container lacks %s\n", lacks)
	}
	_, err = docker(ctx, "commit", "--change", "LABEL "+labelSuite+"="+p.Suite, p.Name, p.commitName())
	if err != nil {
		return "", "", err
	}
	return p.judgeName(), logs, p.create(ctx, p.judgeName(), p.commitName(), mountRewards(logs)...)
}

// inPlace starts the agent's container again, unless it still runs, without what the agent wrote as rewards.
func (p *Plan) inPlace(ctx context.Context, out io.Writer) (name, logs string, err error) {
	if len(p.Ports) > 0 {
		said := "the tests run in the agent's own container, which has no server that the task asks for"
		if p.listens(ctx) > 0 {
			said = "the tests run in the agent's own container, beside the servers that the task asks for"
		}
		fmt.Fprintln(out, said)
	}
	logs = filepath.Join(p.Dir, "rewards-"+InPlace)
	if err = empty(logs); err == nil {
		_, err = docker(ctx, "start", p.Name)
	}
	return p.Name, logs, err
}

// empty removes what is in a directory.
func empty(dir string) error {
	left, err := os.ReadDir(dir)
	for _, entry := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}

// JudgeAgain runs a task's tests on what an agent changed, in a new container of the image. file is the [ChangesFile],
// and digest is as for [Prepare]. It returns an exit status as [Plan.Judge] does.
func JudgeAgain(ctx context.Context, out io.Writer, t *task.Task, digest, file string) (code int, err error) {
	dir, err := os.MkdirTemp("", "assay-suite-judge-*")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	again := *t
	again.Artifacts = nil
	p := &Plan{Task: &again, Name: "assay-judge-" + strings.ToLower(rand.Text()), Judges: judgeFresh, Dir: dir}
	p.Suite = p.Name
	if p.Image, err = Prepare(ctx, t, digest, judgeFresh); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Remove(context.WithoutCancel(ctx))) }()
	return p.judge(ctx, out, func(ctx context.Context, _ io.Writer) (name, logs string, err error) {
		if logs, err = p.rewards(judgeFresh); err != nil {
			return "", "", err
		}
		err = p.create(ctx, p.Name, p.Image.Name, mountRewards(logs)...)
		if err == nil {
			err = errors.Join(restore(ctx, p.Name, file), empty(logs)) // the agent may have written a reward
		}
		return p.Name, logs, err
	}), nil
}

// test runs the tests in the container that ready makes.
func (p *Plan) test(ctx context.Context, out io.Writer, ready starts) (map[string]float64, error) {
	tests, err := os.MkdirTemp(p.Dir, "tests-")
	if err != nil {
		return nil, err
	}
	err = errors.Join(os.Chmod(tests, 0o755), os.CopyFS(tests, os.DirFS(filepath.Join(p.Task.Dir, task.Tests))),
		os.Chmod(filepath.Join(tests, filepath.Base(task.Test)), 0o755))
	if err != nil {
		return nil, err
	}
	name, logs, err := ready(ctx, out)
	if err == nil {
		err = p.healthy(ctx, name)
	}
	if err == nil {
		_, err = docker(ctx, "cp", tests+"/.", name+":"+harbor.TestsAt)
	}
	if err != nil {
		return nil, err
	}
	within, stop := ctx, func() {}
	if p.Task.VerifierTimeout > 0 {
		within, stop = context.WithTimeout(ctx, p.Task.VerifierTimeout.Of())
	}
	defer stop()
	_ = dockerTo(within, nil, out, out, p.in(name, p.Task.VerifierUser, variables(p.Task.VerifierEnv), "sh", "-c",
		"/"+task.Test)...)
	late := within.Err() != nil
	end := []string{"stop", "--time", "0", name}
	if name == p.judgeName() && len(p.Task.Artifacts) == 0 {
		end = []string{"rm", "--force", "--volumes", name}
	}
	if _, err := docker(ctx, end...); err != nil { // nothing writes a reward any more
		return nil, err
	}
	keepArtifacts(ctx, out, name, p.Task.Artifacts, p.Dir)
	if late {
		return nil, fmt.Errorf("the tests ran longer than %v", p.Task.VerifierTimeout.Of())
	}
	return read(logs)
}

// read reads rewards as Harbor does: reward.json, with a number for each name, or else reward.txt, with one.
func read(dir string) (map[string]float64, error) {
	for _, name := range []string{"reward.json", "reward.txt"} {
		file := filepath.Join(dir, name)
		info, err := os.Lstat(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() || info.Size() > maxReward {
			return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", name, maxReward)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		rewards := map[string]float64{}
		if name == "reward.json" {
			err = json.Unmarshal(data, &rewards)
		} else {
			rewards["reward"], err = strconv.ParseFloat(strings.TrimSpace(string(data)), 64)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(rewards) == 0 {
			return nil, fmt.Errorf("%s has no reward", name)
		}
		for of, n := range rewards {
			if math.IsNaN(n) {
				return nil, fmt.Errorf("%s: %s is not a number", name, of)
			}
		}
		return rewards, nil
	}
	return nil, errors.New("the tests wrote neither reward.json nor reward.txt")
}
