package harbor

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// Labels of docker compose. Service is the label of the container that an agent works in, for an engine's events.
const (
	Service   = "com.docker.compose.service=main"
	project   = "com.docker.compose.project"
	directory = "com.docker.compose.project.working_dir"
	files     = "com.docker.compose.project.config_files" // separated by commas
)

// Trial is one trial of a job.
type Trial struct {
	// Name is that of Dir, the trial's directory, where Harbor writes result.json.
	Name, Dir string
	// Task is the folder of the task; empty if it is not known.
	Task string
}

// Find returns the trial that a container with these labels belongs to: Harbor names a compose project after the trial,
// and writes one of its files to the trial's directory. jobs is the directory of all jobs, or that of one job. Find
// returns nil if there is no such trial.
func Find(jobs string, labels map[string]string) *Trial {
	var t *Trial
	var latest time.Time
	for _, pattern := range []string{"*", "*/*"} {
		dirs, _ := filepath.Glob(filepath.Join(literal(jobs), pattern))
		for _, dir := range dirs {
			info, err := os.Lstat(dir)
			if err != nil || !info.IsDir() || projectOf(filepath.Base(dir)) != labels[project] {
				continue
			}
			if t == nil || info.ModTime().After(latest) { // an earlier job may have had a trial of that name
				t, latest = &Trial{Name: filepath.Base(dir), Dir: dir}, info.ModTime()
			}
		}
	}
	for file := range strings.SplitSeq(labels[files], ",") {
		dir := filepath.Dir(file)
		if up := filepath.Dir(dir); t == nil && (up == jobs || filepath.Dir(up) == jobs) {
			t = &Trial{Name: filepath.Base(dir), Dir: dir}
		}
	}
	if t == nil {
		return nil
	}
	if folder := filepath.Dir(labels[directory]); labels[directory] != "" {
		if _, err := os.Stat(filepath.Join(folder, "task.toml")); err == nil {
			t.Task = folder
		}
	}
	return t
}

// literal escapes what has a meaning in a pattern of filepath.Match.
func literal(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// notProject matches what compose does not take in the name of a project.
var notProject = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^a-z0-9_-]`) })

// projectOf is the name of compose's project for a trial.
func projectOf(trial string) string {
	name := notProject().ReplaceAllString(fmt.Sprintf("%s__env", strings.ToLower(trial)), "-")
	if c := name[0]; c == '_' || c == '-' {
		name = "0" + name
	}
	return name
}

// maxFile limits the files that are read, in bytes.
const maxFile = 4 << 20

// read reads a regular file of the trial's directory or the task's folder.
func read(file string) ([]byte, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// agent is what Harbor's files say of the agent of a trial.
type agent struct {
	Name  string `json:"name"`
	Model string `json:"model_name"`
}

// result is what is read of result.json. config.json is its member config.
type result struct {
	Task   string `json:"task_name"`
	Config struct {
		Agent agent `json:"agent"`
	} `json:"config"`
	Agent struct {
		Name  string `json:"name"`
		Model struct {
			Name string `json:"name"`
		} `json:"model_info"`
	} `json:"agent_info"`
	Verifier struct {
		Rewards map[string]jsontext.Value `json:"rewards"`
	} `json:"verifier_result"`
}

// Labels returns the labels of the trial's bundle, and whether Harbor has written the result: before that, they lack
// the reward.
func (t *Trial) Labels() (labels map[string]string, done bool) {
	r := &result{}
	data, err := read(filepath.Join(t.Dir, "result.json"))
	done = err == nil && json.Unmarshal(data, r) == nil
	if !done {
		if data, err := read(filepath.Join(t.Dir, "config.json")); err == nil {
			_ = json.Unmarshal(data, &r.Config) // what cannot be read is not known
		}
	}
	task := ""
	if t.Task != "" {
		task = filepath.Base(t.Task)
	}
	labels = map[string]string{"trial": t.Name, "task": cmp.Or(r.Task, task),
		"agent": cmp.Or(r.Agent.Name, r.Config.Agent.Name), "model": cmp.Or(r.Agent.Model.Name, r.Config.Agent.Model),
		"reward": rewards(r.Verifier.Rewards)}
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	for name, value := range labels {
		value = schema.OneLine(value)
		labels[name] = strings.ToValidUTF8(value[:min(len(value), maxLabel)], "")
	}
	return labels, done
}

// maxLabel limits a label, in bytes.
const maxLabel = 200

// rewards is the only reward, or all with their names.
func rewards(all map[string]jsontext.Value) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text := strings.Trim(string(all[name]), `"`)
		if len(all) > 1 {
			text = name + "=" + text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

// Evaluation is the definition that follows from the trial's task. workdir is where commands start in the container.
func (t *Trial) Evaluation(workdir string) schema.EvaluationDefinition {
	var instruction []byte
	if t.Task != "" {
		instruction, _ = read(filepath.Join(t.Task, "instruction.md")) // without it, no deliverable is known
	}
	return Evaluation(t.Task, string(instruction), cmp.Or(workdir, "/"))
}

// Phases sets the phase of each session that has none: those of the environment have theirs. The sessions are in the
// order in which they joined.
//
// The verifier begins with the last session that runs the tests, because Harbor starts no agent after them. Phases
// recognizes by their commands the sessions that prepare the tests just before, and those that install the agent.
func Phases(sessions []schema.EvaluationSession) {
	begins := len(sessions)
	for i := range sessions {
		if runsTests(sessions[i].Argv) && sessions[i].Phase == "" {
			begins = i
		}
	}
	for begins > 0 && begins < len(sessions) && preparesTests(sessions[begins-1].Argv) {
		begins--
	}
	working := false
	for i := range sessions {
		s := &sessions[i]
		if s.Phase == schema.PhaseEnvironment {
			continue
		}
		working = working || !preparesAgent(s.Argv)
		switch {
		case i >= begins:
			s.Phase = schema.PhaseVerifier
		case working:
			s.Phase = schema.PhaseAgent
		default:
			s.Phase = schema.PhaseSetup
		}
	}
}

// shellCommand returns the text of a command sh -c TEXT, or the words of another one.
func shellCommand(argv []string) string {
	if len(argv) == 3 && (argv[1] == "-c" || argv[1] == "-lc") {
		return argv[2]
	}
	return strings.Join(argv, " ")
}

func runsTests(argv []string) bool {
	text := strings.TrimPrefix(shellCommand(argv), "(")
	rest, ok := strings.CutPrefix(text, TestsAt+"/test.sh")
	return ok && (rest == "" || rest[0] == ')' || rest[0] == ' ')
}

func preparesTests(argv []string) bool {
	switch shellCommand(argv) {
	case "mkdir -p " + TestsAt, "chmod +x " + TestsAt + "/test.sh":
		return true
	}
	return false
}

// installer is where Harbor puts the script that installs an agent.
var installer = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(mkdir -p /installed-agent|(bash |sh )?/installed-agent/(install|setup)\.sh|` +
		`chmod 777( /logs/(agent|verifier|artifacts))+)$`)
})

func preparesAgent(argv []string) bool { return installer().MatchString(shellCommand(argv)) }
