package runner

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
)

// workspacePart records what the command changed in its workspace. It compares the workspace before the command with
// the workspace after it, before the checks, and writes the document when it is known which program wrote what. If
// nothing was asked for, it does nothing.
type workspacePart struct {
	log      *evidence.Log
	options  workspace.Options
	dir      func() (string, error)
	attended func(context.Context, func(context.Context) error) error
	wrote    func(path string) string // the program that wrote a path last; empty: not known

	comparison *workspace.Comparison // nil until just before the command
	kept       bool
	err        error
}

func newWorkspace(log *evidence.Log, opt Options, spec *Spec, wrote func(path string) string,
	attended func(context.Context, func(context.Context) error) error,
) *workspacePart {
	return &workspacePart{log: log, dir: spec.workdir, attended: attended, wrote: wrote,
		options: workspace.Options{Changes: spec.WorkspaceChanges, Artifacts: spec.Artifacts,
			Clean: spec.Contract == "" || !spec.ContractBaseline,
			Limit: int64(cmp.Or(spec.WorkspaceChangesBytes, DefaultWorkspaceChangesBytes)),
			Skip:  append([]string{opt.ScratchDir}, opt.Evidence...)}}
}

// begin scans the workspace, as late as possible before the command.
func (p *workspacePart) begin(ctx context.Context) (err error) {
	if !p.options.Changes && len(p.options.Artifacts) == 0 {
		return nil
	}
	if p.options.Dir, err = p.dir(); err != nil {
		return sandboxError("workdir_unusable", err)
	}
	p.comparison, err = workspace.Begin(ctx, p.options)
	if err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// keep scans it again once every process of the command has ended.
func (p *workspacePart) keep(ctx context.Context, e commandEnd) {
	if p.comparison == nil {
		return
	}
	p.kept = true
	if e.survived != "" {
		p.comparison.Gap(e.survived)
	}
	var failed error
	err := p.attended(ctx, func(ctx context.Context) error {
		failed = p.comparison.Keep(ctx, p.log.Exact())
		return nil
	})
	switch {
	case failed == nil:
	case err != nil:
		p.comparison.Gap("the comparison was interrupted, so that changes are missing")
	default:
		p.comparison.Gap(fmt.Sprintf("changes are missing: %v", failed))
		p.err = failed
	}
}

// close writes the document, once the kernel layer has its last event. The error means missing evidence.
func (p *workspacePart) close() error {
	if !p.kept {
		return nil
	}
	data, err := p.comparison.Document(p.log.RunID, p.wrote).Encode()
	if err == nil {
		err = p.log.Recorder.Put(schema.ChangesPath, data)
	}
	if p.err == nil {
		p.err = err
	}
	return p.err
}

// programs follows, in the kernel layer, which program last wrote or removed each path. The observation's goroutine
// feeds it; it is read after that has ended.
type programs struct {
	exe   map[uint64]string // of each process instance
	by    map[string]string // by path
	moved map[string]string // the earlier path of what is now at a path
}

// event handles a line of the kernel layer.
func (p *programs) event(e *schema.KernelEvent) {
	switch {
	case e.Kind == schema.KindFork:
		put(p.exe, e.ExecID, p.exe[e.ParentExecID])
		return
	case e.Kind == schema.KindExec, e.Kind == schema.KindJoin:
		put(p.exe, e.ExecID, cmp.Or(e.Exe, e.Value))
		return
	case e.Failed(), e.Class == schema.ClassCheck, e.Marks&schema.MarkMountNamespace != 0:
		return
	}
	exe := p.exe[e.ExecID]
	if e.Kind == schema.KindRename {
		if was, known := p.by[e.Value]; known {
			exe = was // that program wrote what has another name now
		}
		delete(p.by, e.Value)
		if len(p.moved) < maxPrograms {
			p.moved[e.Target] = e.Value
		}
		put(p.by, e.Target, exe)
		return
	}
	for path, access := range e.Touches() {
		_, known := p.by[path]
		const writes = schema.AccessWrite | schema.AccessCreate | schema.AccessRemove
		if strings.HasPrefix(path, "/") && (access&writes != 0 || access&schema.AccessChange != 0 && !known) {
			put(p.by, path, exe)
		}
	}
}

// of returns the program that last wrote a path; empty: not known. A file in a renamed directory has the program that
// wrote it at its old path.
func (p *programs) of(path string) string {
	for range 8 { // follow up to 8 renames
		if exe, known := p.by[path]; known {
			if len(exe) > longestProgram {
				return ""
			}
			return schema.Readable(exe)
		}
		dir, was := filepath.Dir(path), ""
		for was = p.moved[dir]; was == "" && dir != "/" && dir != "."; was = p.moved[dir] {
			dir = filepath.Dir(dir)
		}
		if was == "" {
			return ""
		}
		path = was + strings.TrimPrefix(path, dir)
	}
	return ""
}

// maxPrograms limits the entries of each map. Beyond it, no program is known.
const maxPrograms = 200_000

func newPrograms() *programs {
	return &programs{exe: map[uint64]string{}, by: map[string]string{}, moved: map[string]string{}}
}

func put[K comparable](m map[K]string, key K, exe string) {
	if _, known := m[key]; known || len(m) < maxPrograms {
		m[key] = exe
	}
}

// longestProgram limits the program paths that are recorded, in bytes.
const longestProgram = 512
