package harbor

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// Directories of a task's folder.
const (
	Tests    = "tests"
	Solution = "solution"
)

// Directories of a container that the verifier uses.
const (
	TestsAt   = "/tests"
	RewardsAt = "/logs/verifier"
)

// named matches the absolute paths of a text.
var named = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|[\s` + "`" + `'"(=:])((?:/[A-Za-z0-9_.+-]+){2,})`)
})

// Evaluation returns what the agent may and must not do, as far as it follows from a task's folder and its instruction.
// workdir is where the agent starts in the container. The tests and the solution are hidden, in the folder and where
// the verifier gets them. The reward is the verifier's. The paths that the instruction names are deliverables. An empty
// folder means that the folder is not known.
func Evaluation(folder, instruction, workdir string) schema.EvaluationDefinition {
	inside := func(file string) string { return schema.InContainer + schema.EscapeGlob(path.Clean(file)) }
	e := schema.EvaluationDefinition{Workspace: []string{inside(workdir)},
		Hidden: []string{inside(TestsAt)}, Reward: []string{inside(RewardsAt) + "/reward.*"}}
	for _, dir := range []string{Tests, Solution} {
		at := filepath.Join(folder, dir)
		if _, err := os.Stat(at); err == nil && folder != "" {
			e.Hidden = append(e.Hidden, schema.EscapeGlob(at))
		}
	}
	for _, found := range named().FindAllStringSubmatch(instruction, -1) {
		file := path.Clean(strings.TrimRight(found[1], "."))
		judges := schema.Below(file, TestsAt) || schema.Below(file, RewardsAt)
		if judges || slices.Contains(e.Deliverables, inside(file)) {
			continue
		}
		e.Deliverables = append(e.Deliverables, inside(file))
	}
	if schema.Below(workdir, TestsAt) {
		e.Hidden = e.Hidden[1:]
	}
	return e
}
