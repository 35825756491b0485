// Package task reads tasks in the format of Harbor: a folder with task.toml, instruction.md, an environment and tests.
// [Read] takes a folder as it is, in the schemas 1.0 to 1.4, or refuses it and names all causes at once. It never
// ignores what a task asks for.
package task

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/assay-run/assay-run/runner/harbor"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
)

// Task is a task of a folder.
type Task struct {
	// Name is the name of the folder, and Dir its absolute path.
	Name, Dir string
	// Instruction is the text for the agent.
	Instruction string
	// Image is pulled; if it is empty, Dockerfile of the folder environment is built.
	Image string
	// Workdir is where commands start in the container; empty means where the image says.
	Workdir string
	// AgentUser and VerifierUser are names or numbers; empty means the user of the image.
	AgentUser, VerifierUser string
	// Zero means no limit.
	BuildTimeout, AgentTimeout, VerifierTimeout Duration
	// Env is set in the container, the others for their command alone.
	Env, VerifierEnv, SolutionEnv map[string]string
	// CPUs and Memory (bytes) limit the container; zero means no limit.
	CPUs   float64
	Memory int64
	// Network says that the container reaches other hosts.
	Network bool
	// Health is run until it succeeds, before the agent starts; nil for none.
	Health *Health
	// Artifacts are what is kept of the container when the tests have run.
	Artifacts []Artifact
	// Own is the table metadata.assay, which is not Harbor's; nil if there is none.
	Own map[string]any `json:"-"`
}

// Health says when a container is ready.
type Health struct {
	Command                                       string
	Interval, Timeout, StartPeriod, StartInterval Duration
	Retries                                       int
}

// Artifact is a file or directory of the container that is kept.
type Artifact struct {
	// Source is its absolute path, and Destination its name among all that is kept, such as "results/a.txt".
	Source, Destination string
	// Exclude are patterns of names below a directory that are not kept.
	Exclude []string
}

// Duration is a number of nanoseconds, in JSON too.
type Duration int64

// Of returns the duration.
func (d Duration) Of() time.Duration { return time.Duration(d) }

// Directories and files of a folder.
const (
	Environment = "environment"
	Tests       = harbor.Tests
	Solution    = harbor.Solution
	Test        = "tests/test.sh"
	Solve       = "solution/solve.sh"
)

// Solvable reports whether the task has a solution.
func (t *Task) Solvable() bool {
	info, err := os.Stat(filepath.Join(t.Dir, Solve))
	return err == nil && info.Mode().IsRegular()
}

// maxInstruction is how long an instruction may be: it is a variable of the agent's command.
const maxInstruction = 100_000

const maxFile = 1 << 20

// ErrRefused is wrapped by the errors of Read for a folder that is a task, but asks for something
// unsupported.
var ErrRefused = errors.New("refused")

// file is task.toml. Of what is refused, it is only read whether it is there.
type file struct {
	Version       string         `toml:"version"`
	SchemaVersion string         `toml:"schema_version"`
	Task          map[string]any `toml:"task"`
	Metadata      map[string]any `toml:"metadata"`
	Source        string         `toml:"source"`
	Agent         struct {
		Timeout *float64 `toml:"timeout_sec"`
		User    any      `toml:"user"`
		network
	} `toml:"agent"`
	Verifier struct {
		Timeout *float64          `toml:"timeout_sec"`
		Env     map[string]string `toml:"env"`
		User    any               `toml:"user"`
		Mode    string            `toml:"environment_mode"`
		Own     map[string]any    `toml:"environment"`
		Collect []any             `toml:"collect"`
		network
	} `toml:"verifier"`
	Environment struct {
		BuildTimeout *float64          `toml:"build_timeout_sec"`
		Image        string            `toml:"docker_image"`
		OS           string            `toml:"os"`
		Workdir      string            `toml:"workdir"`
		CPUs         *float64          `toml:"cpus"`
		MemoryMB     *int64            `toml:"memory_mb"`
		StorageMB    *int64            `toml:"storage_mb"`
		Memory       string            `toml:"memory"`
		Storage      string            `toml:"storage"`
		GPUs         int               `toml:"gpus"`
		GPUTypes     []any             `toml:"gpu_types"`
		Internet     *bool             `toml:"allow_internet"`
		Servers      []any             `toml:"mcp_servers"`
		Env          map[string]string `toml:"env"`
		Skills       string            `toml:"skills_dir"`
		Health       *struct {
			Command       string   `toml:"command"`
			Interval      *float64 `toml:"interval_sec"`
			Timeout       *float64 `toml:"timeout_sec"`
			StartPeriod   *float64 `toml:"start_period_sec"`
			StartInterval *float64 `toml:"start_interval_sec"`
			Retries       *int     `toml:"retries"`
		} `toml:"healthcheck"`
		network
	} `toml:"environment"`
	SolutionOf struct {
		Env map[string]string `toml:"env"`
	} `toml:"solution"`
	Steps     []any `toml:"steps"`
	Artifacts []any `toml:"artifacts"`
}

// network is who may be reached, which each section has.
type network struct {
	Mode  string `toml:"network_mode"`
	Hosts []any  `toml:"allowed_hosts"`
}

// reader collects why a task is refused.
type reader struct {
	task   *Task
	causes []error
	getenv func(string) (string, bool)
}

func (r *reader) refuse(format string, args ...any) {
	r.causes = append(r.causes, fmt.Errorf(format, args...))
}

// Read reads the task in a folder. getenv gives the variables of this host for ${NAME} in the task's variables. If
// lenient is true, it ignores unknown keys. The error lists all causes, one a line.
func Read(dir string, lenient bool, getenv func(string) (string, bool)) (*Task, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	t := &Task{Name: filepath.Base(dir), Dir: dir}
	r := &reader{task: t, getenv: getenv}
	f := &file{}
	if text := r.text("task.toml"); text != "" {
		if meta, err := config.TOML([]byte(text), f); err != nil {
			r.refuse("task.toml: %v", err)
		} else if !lenient {
			for _, key := range meta.Undecoded() {
				switch key[0] {
				case "metadata", "task": // whose tables may have any keys
				case "artifacts": // see reader.artifact
				default:
					r.refuse("task.toml: unknown key %s", key)
				}
			}
		}
	}
	r.fill(f)
	t.Instruction = r.text("instruction.md")
	if n := len(t.Instruction); n > maxInstruction {
		r.refuse("instruction.md: it has %d bytes, and at most %d are allowed", n, maxInstruction)
	}
	if strings.ContainsRune(t.Instruction, 0) {
		r.refuse("instruction.md: it contains a NUL byte")
	}
	r.folder(f)
	if len(r.causes) > 0 {
		return nil, fmt.Errorf("%s: %w:\n%w", t.Name, ErrRefused, errors.Join(r.causes...))
	}
	return t, nil
}

// text returns a file of the folder.
func (r *reader) text(name string) string {
	at := filepath.Join(r.task.Dir, name)
	switch info, err := os.Stat(at); {
	case errors.Is(err, fs.ErrNotExist):
		r.refuse("%s is missing", name)
		return ""
	case err != nil:
		r.refuse("%v", err)
		return ""
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		r.refuse("%s is not a regular file of at most %d bytes", name, maxFile)
		return ""
	}
	data, err := os.ReadFile(at)
	if err != nil {
		r.refuse("%v", err)
	} else if len(data) == 0 {
		r.refuse("%s is empty", name)
	}
	return string(data)
}

// folder checks what else is in the folder.
func (r *reader) folder(f *file) {
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(r.task.Dir, name))
		return err == nil
	}
	if !there(Test) {
		r.refuse("%s is missing", Test)
	}
	if f.Environment.Image == "" && !there(Environment+"/Dockerfile") {
		r.refuse("%s/Dockerfile and docker_image are both missing", Environment)
	}
	if compose := Environment + "/docker-compose.yaml"; there(compose) {
		r.refuse("%s: compose is not supported", compose)
	}
	if there(Tests + "/Dockerfile") {
		r.refuse("%s/Dockerfile: a verifier with an environment of its own is not supported", Tests)
	}
}

// fill takes over task.toml.
func (r *reader) fill(f *file) {
	t, e := r.task, &f.Environment
	if v := f.SchemaVersion + f.Version; !slices.Contains([]string{"", "1.0", "1.1", "1.2", "1.3", "1.4"}, v) {
		r.refuse("task.toml: schema version %q is not one of 1.0 to 1.4", v)
	}
	for _, no := range []struct {
		has  bool
		what string
	}{
		{len(f.Steps) > 0, "steps"}, {len(e.Servers) > 0, "environment.mcp_servers"},
		{e.GPUs != 0 || len(e.GPUTypes) > 0, "environment.gpus"}, {e.Skills != "", "environment.skills_dir"},
		{e.OS != "" && e.OS != "linux", "environment.os = " + e.OS},
		{f.Verifier.Mode != "" && f.Verifier.Mode != "shared", "verifier.environment_mode = " + f.Verifier.Mode},
		{len(f.Verifier.Own) > 0, "verifier.environment"}, {len(f.Verifier.Collect) > 0, "verifier.collect"},
		{f.Agent.network.Mode != "" || len(f.Agent.Hosts) > 0, "a network policy of the agent"},
		{f.Verifier.network.Mode != "" || len(f.Verifier.Hosts) > 0, "a network policy of the verifier"},
		{len(e.Hosts) > 0, "environment.allowed_hosts"},
	} {
		if no.has {
			r.refuse("task.toml: %s is not supported", no.what)
		}
	}
	if own, given := f.Metadata["assay"]; given {
		var table bool
		if t.Own, table = own.(map[string]any); !table {
			r.refuse("task.toml: metadata.assay is not a table")
		}
	}
	t.Network = e.Internet == nil || *e.Internet
	switch e.network.Mode {
	case "":
	case "public":
		t.Network = true
	case "none", "no-network":
		t.Network = false
	default:
		r.refuse("task.toml: environment.network_mode %q is not supported: only public and none are", e.network.Mode)
	}
	t.Image, t.Workdir = e.Image, e.Workdir
	if t.Workdir != "" && !path.IsAbs(t.Workdir) {
		r.refuse("task.toml: environment.workdir %q is not absolute", t.Workdir)
	}
	t.AgentUser, t.VerifierUser = r.user("agent", f.Agent.User), r.user("verifier", f.Verifier.User)
	t.BuildTimeout = r.seconds("environment.build_timeout_sec", e.BuildTimeout, 600)
	t.AgentTimeout = r.seconds("agent.timeout_sec", f.Agent.Timeout, 0)
	t.VerifierTimeout = r.seconds("verifier.timeout_sec", f.Verifier.Timeout, 600)
	t.Env, t.VerifierEnv = r.variables("environment.env", e.Env), r.variables("verifier.env", f.Verifier.Env)
	t.SolutionEnv = r.variables("solution.env", f.SolutionOf.Env)
	for i, given := range f.Artifacts {
		t.Artifacts = append(t.Artifacts, r.artifact(i, given))
	}
	if e.CPUs != nil {
		if t.CPUs = *e.CPUs; t.CPUs <= 0 {
			r.refuse("task.toml: environment.cpus is %v", t.CPUs)
		}
	}
	switch {
	case e.MemoryMB != nil:
		t.Memory = *e.MemoryMB << 20
	case e.Memory != "":
		t.Memory = megabytes(e.Memory) << 20
	}
	if e.Memory != "" && t.Memory <= 0 || e.MemoryMB != nil && (*e.MemoryMB <= 0 || *e.MemoryMB > 1<<30) {
		r.refuse("task.toml: the memory of the environment is not a size")
	}
	if h := e.Health; h != nil {
		t.Health = &Health{Command: h.Command, Retries: 3,
			Interval:      r.seconds("environment.healthcheck.interval_sec", h.Interval, 5),
			Timeout:       r.seconds("environment.healthcheck.timeout_sec", h.Timeout, 30),
			StartPeriod:   r.seconds("environment.healthcheck.start_period_sec", h.StartPeriod, 0),
			StartInterval: r.seconds("environment.healthcheck.start_interval_sec", h.StartInterval, 5)}
		if h.Retries != nil {
			t.Health.Retries = *h.Retries
		}
		if h.Command == "" {
			r.refuse("task.toml: environment.healthcheck has no command")
		}
	}
}

// artifact reads an entry of artifacts: a path, or a table with source, destination and exclude.
func (r *reader) artifact(i int, given any) (a Artifact) {
	refuse := func(format string, args ...any) {
		r.refuse("task.toml: artifacts[%d]: %s", i, fmt.Sprintf(format, args...))
	}
	table, is := given.(map[string]any)
	if a.Source, _ = given.(string); is {
		a.Source, _ = table["source"].(string)
		a.Destination, _ = table["destination"].(string)
		exclude, _ := table["exclude"].([]any)
		for _, pattern := range exclude {
			text, is := pattern.(string)
			if _, err := path.Match(text, ""); !is || err != nil {
				refuse("%v is not a pattern", pattern)
			}
			a.Exclude = append(a.Exclude, text)
		}
		for key := range table {
			if !slices.Contains([]string{"source", "destination", "exclude"}, key) {
				refuse("unknown key %s", key)
			}
		}
	}
	if a.Source = path.Clean(a.Source); !path.IsAbs(a.Source) || a.Source == "/" {
		refuse("%q is not the absolute path of a file or directory", a.Source)
	}
	if a.Destination = path.Clean(cmp.Or(a.Destination, path.Base(a.Source))); !filepath.IsLocal(a.Destination) {
		refuse("the destination %q is not a relative path", a.Destination)
	}
	return a
}

// megabytes reads sizes as 2G and 512M; 0 if it is none.
func megabytes(size string) int64 {
	var n float64
	var unit string
	if k, err := fmt.Sscanf(strings.ToUpper(strings.TrimSpace(size)), "%f%s", &n, &unit); k != 2 || err != nil {
		return 0
	}
	return int64(n * map[string]float64{"G": 1024, "GB": 1024, "M": 1, "MB": 1, "K": 1. / 1024}[unit])
}

func (r *reader) user(of string, user any) string {
	switch u := user.(type) {
	case nil:
		return ""
	case string:
		return u
	case int64:
		return fmt.Sprint(u)
	}
	r.refuse("task.toml: %s.user is neither a name nor a number", of)
	return ""
}

func (r *reader) seconds(of string, given *float64, otherwise float64) Duration {
	n := otherwise
	if given != nil {
		if n = *given; !(n > 0) || math.IsInf(n, 0) || n > 1e7 {
			r.refuse("task.toml: %s is %v", of, n)
			return 0
		}
	}
	return Duration(n * float64(time.Second))
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}`)

// variables replaces ${NAME} and ${NAME:-default} in values by variables of this host.
func (r *reader) variables(of string, env map[string]string) map[string]string {
	all := map[string]string{}
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			r.refuse("task.toml: %s: %q is not the name of a variable", of, name)
			continue
		}
		all[name] = variable.ReplaceAllStringFunc(value, func(use string) string {
			part := variable.FindStringSubmatch(use)
			if is, set := r.getenv(part[1]); set && (is != "" || part[2] == "") {
				return is
			}
			if part[2] == "" {
				r.refuse("task.toml: %s.%s needs the variable %s, which is not set", of, name, part[1])
			}
			return part[3]
		})
	}
	return all
}

// Evaluation returns what follows from the folder. See [harbor.Evaluation].
func (t *Task) Evaluation(workdir string) schema.EvaluationDefinition {
	return harbor.Evaluation(t.Dir, t.Instruction, workdir)
}
