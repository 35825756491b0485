package runner

import (
	"cmp"
	"context"
	"fmt"

	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
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

	deliverables func() []string // absolute globs of files outside that are kept, too

	comparison *workspace.Comparison // nil until just before the command
	kept       bool
	err        error
}

func newWorkspace(log *evidence.Log, opt Options, spec *specfile.Spec, wrote func(path string) string,
	deliverables func() []string, attended func(context.Context, func(context.Context) error) error,
) *workspacePart {
	return &workspacePart{log: log, dir: spec.Dir, attended: attended, wrote: wrote,
		deliverables: deliverables,
		options: workspace.Options{Changes: spec.WorkspaceChanges, Artifacts: spec.Artifacts,
			Clean: spec.Contract == "" || !spec.ContractBaseline,
			Limit: int64(cmp.Or(spec.WorkspaceChangesBytes, specfile.DefaultWorkspaceChangesBytes)),
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
	if p.options.Changes {
		p.options.Deliverables = p.deliverables()
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

// longestProgram limits the program paths that are recorded, in bytes.
const longestProgram = 512
