package schema

import (
	"path"
	"slices"
	"strings"
)

// Evaluation is evaluation.json: what an agent under evaluation was not to do. It is there when the run
// was given an evaluation file.
type Evaluation struct {
	Schema string `json:"schema"` // EvaluationV0
	RunID  string `json:"run_id"`
	// Digest is "sha256:" and 64 hex digits of the file's bytes.
	Digest     string               `json:"digest"`
	Evaluation EvaluationDefinition `json:"evaluation"`
	// Workdir and Homes are those of run.json, which comes last in a bundle: with them a reader can judge the run as it
	// reads the layers.
	Workdir string            `json:"workdir,omitempty"`
	Homes   map[string]string `json:"homes,omitempty"`
	// Start says what the globs led to when the run started.
	Start *EvaluationStart `json:"start,omitempty"`
	// Sessions are those of a trial that was recorded from outside, in the order of their join lines; absent for other
	// runs.
	Sessions []EvaluationSession `json:"sessions,omitempty"`
}

// Phases of a trial.
const (
	PhaseEnvironment = "environment" // what the container itself runs
	PhaseSetup       = "setup"
	PhaseAgent       = "agent"
	PhaseVerifier    = "verifier"
)

// EvaluationSession is a process that joined a container from outside, with all processes that it started there.
type EvaluationSession struct {
	Phase string `json:"phase"`
	// Seq is the number of its join line in the kernel layer, and TNS is the time of that line.
	Seq uint64 `json:"seq"`
	TNS int64  `json:"t_ns"`
	// Program is the first program that it executed, and Argv its arguments; empty if it ended without executing one.
	Program string   `json:"program,omitempty"`
	Argv    []string `json:"argv,omitempty"`
}

// EvaluationStart says what the globs of an evaluation file led to when the run started, by globs as
// [EvaluationDefinition.Absolute] returns them.
type EvaluationStart struct {
	// Links has the globs with symbolic links in their names, as they are without them.
	Links map[string]string `json:"links,omitempty"`
	// Protected are the globs of the run's outcome contract, which protect files too.
	Protected []string `json:"protected,omitempty"`
	// Tests are the directories that the agent did not see, as absolute paths without symbolic links.
	Tests []string `json:"tests,omitempty"`
	// Absent are the globs that could match nothing.
	Absent []string `json:"absent,omitempty"`
	// Programs has the names in each directory of the command's PATH.
	Programs map[string][]string `json:"programs,omitempty"`
	// Container says what the globs led to in the agent's container when that was about to start: the first one that
	// has a workspace, or else the run's first. It is absent unless the agent works in a container and the recorder
	// could ask the engine.
	Container *EvaluationStart `json:"container,omitempty"`
	// ID is the id of that container; empty for the host.
	ID string `json:"id,omitempty"`
}

// InContainer is the prefix of a glob that only stands for files in the run's container.
const InContainer = "container:"

// InContainer reports whether the agent of a run that starts in workdir works in a container: a workspace says so, or
// no workspace existed when the run started.
func (d *EvaluationDefinition) InContainer(workdir string, start *EvaluationStart) bool {
	roots := d.Roots(workdir)
	says := func(g string) bool { return strings.HasPrefix(g, InContainer) }
	return slices.ContainsFunc(roots, says) || len(roots) > 0 && !slices.ContainsFunc(roots, func(g string) bool {
		return !slices.Contains(start.Absent, g)
	})
}

// EvaluationDefinition is an evaluation file as its author wrote it. Paths are globs; one that is not
// absolute is relative to each workspace. A glob stands for what is below it, too. With [InContainer] before it, it
// stands for files in the run's container alone.
type EvaluationDefinition struct {
	// Workspace is where the agent works; empty means the run's working directory.
	Workspace []string `json:"workspace,omitempty"`
	// Hidden are files that the agent must not read: tests, the solution, the grader.
	Hidden []string `json:"hidden,omitempty"`
	// Protected are files that it must not change: see ContractDefinition.Protected, whose list has the same meaning.
	Protected []string `json:"protected,omitempty"`
	// Tests is as ContractDefinition.Tests: a directory that the sandbox hides from the agent.
	Tests string `json:"tests,omitempty"`
	// Watched are files that it must not change, and that nobody restores, such as the recorder's own.
	Watched []string `json:"watched,omitempty"`
	// Reward are the files into which the grader writes its verdict.
	Reward []string `json:"reward,omitempty"`
	// Forbidden is where the solution could be fetched from.
	Forbidden EvaluationForbidden `json:"forbidden,omitzero"`
	// Deliverables are files that the task asks the agent to change or make, wherever they are.
	Deliverables []string `json:"deliverables,omitempty"`
	// Servers are the servers that the task asks the agent to start. They may outlive the command.
	Servers []EvaluationServer `json:"servers,omitempty"`
	// Others are files and sockets of other attempts.
	Others []string `json:"others,omitempty"`
	// StartCommit is the commit, in hex digits, beyond which the agent must not look; empty for none.
	StartCommit string `json:"start_commit,omitempty"`
	// ClosedBook applies if the run itself does not say whether it is a closed book.
	ClosedBook BookRule `json:"closed_book,omitzero"`
	// Agent names a known agent program. What that does by itself is no finding.
	Agent string `json:"agent,omitempty"`
}

// Roots are the globs of the workspaces of a run that starts in workdir, which may be empty.
func (d *EvaluationDefinition) Roots(workdir string) []string {
	if len(d.Workspace) > 0 || workdir == "" {
		return d.Workspace
	}
	return []string{EscapeGlob(path.Clean(workdir))}
}

// Absolute returns globs as absolute ones: those that are not are relative to each workspace.
func (d *EvaluationDefinition) Absolute(globs []string, workdir string) (all []string) {
	for _, g := range globs {
		if path.IsAbs(g) || strings.HasPrefix(g, InContainer) {
			all = append(all, g)
			continue
		}
		for _, root := range d.Roots(workdir) {
			all = append(all, strings.TrimSuffix(root, "/")+"/"+g)
		}
	}
	return all
}

// Restored are the protected globs on this host, without symbolic links, as a contract of the run restores them. In a
// run whose agent works in a container there are none.
func (d *EvaluationDefinition) Restored(workdir string, start *EvaluationStart) (all []string) {
	if d.InContainer(workdir, start) {
		return nil
	}
	for _, glob := range d.Absolute(d.Protected, workdir) {
		if link := start.Links[glob]; link != "" {
			glob = link
		}
		if path.IsAbs(glob) {
			all = append(all, glob)
		}
	}
	return all
}

var globEscapes = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`, `\`, `\\`)

// EscapeGlob returns a glob that matches s alone.
func EscapeGlob(s string) string { return globEscapes.Replace(s) }

// UnescapeGlob returns the only path that a glob matches, and false if it has wildcards.
func UnescapeGlob(glob string) (path string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		switch {
		case strings.IndexByte(`*?[{`, glob[i]) >= 0:
			return "", false
		case glob[i] == '\\' && i+1 < len(glob):
			i++
		}
		b.WriteByte(glob[i])
	}
	return b.String(), true
}

// EvaluationServer is a server that the task asks for.
type EvaluationServer struct {
	// Port is the TCP port on which it listens, 1 to 65535.
	Port int `json:"port"`
}

// EvaluationForbidden has globs of names.
type EvaluationForbidden struct {
	// Hosts are names and addresses of servers.
	Hosts []string `json:"hosts,omitempty"`
	// Packages are names of packages, without their versions.
	Packages []string `json:"packages,omitempty"`
	// Repositories are like "github.com/owner/name".
	Repositories []string `json:"repositories,omitempty"`
}

// Finding is one thing that an agent under evaluation did against a rule.
type Finding struct {
	Rule string `json:"rule"`
	// Text says in a few words what was done.
	Text string `json:"text"`
	// Layer is the path of the layer that Events are of, or of the document that tells it.
	Layer string `json:"layer"`
	// Events are the seq of the lines that show it, the first 20.
	Events []uint64 `json:"events"`
	// Program is the executable that did it; empty if that is not known.
	Program string `json:"program"`
	// ToolCallID is the tool call that it belongs to; empty for none.
	ToolCallID string `json:"tool_call_id"`
	// ModelSeq is the line of the model layer that asked for it; null if none is known.
	ModelSeq *uint64 `json:"model_seq"`
}

// EvaluationVerdict is what one rule about an agent under evaluation says of a run.
type EvaluationVerdict struct {
	Rule string `json:"rule"`
	// State is pass, fail or unknown. Message says in a sentence why.
	State   string `json:"state"`
	Message string `json:"message"`
	// Findings broke the rule, Doubts may have: at most 20 each. More counts those beyond.
	Findings []Finding `json:"findings,omitempty"`
	Doubts   []Finding `json:"doubts,omitempty"`
	More     int       `json:"more,omitempty"`
	// Gaps say why the bundle does not support the rule, the gravest first.
	Gaps []string `json:"gaps,omitempty"`
}
