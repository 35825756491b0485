//go:build linux || darwin

package contract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/contractfile"
)

// PrepareOptions configure a Gate.
type PrepareOptions struct {
	// Path is the contract file. Read is what LoadValid returned for it; nil: Open reads it.
	Path string
	Read *contractfile.Loaded
	// Earlier is contract.json of an earlier evaluation, whose contract is evaluated instead of a file.
	Earlier *schema.Contract
	// RunID goes into contract.json; empty without a run.
	RunID string
	// Workdir is the run's working directory. The checks run in it, and the protected globs are relative to it.
	Workdir string
	// TempDir is the directory for the snapshot of the protected paths, an unnamed file: the spool's directory. Empty
	// means the system's.
	TempDir string
	// Baseline also evaluates the contract before the agent starts.
	Baseline bool
	// Executor runs the checks of both evaluations.
	Executor Executor
	// Options are used for both evaluations. Workdir is filled in if empty, and Output is only used for the final
	// one.
	Options Options
}

// Gate is a contract between the start and the end of a run. Its methods are not safe for concurrent use.
type Gate struct {
	opts      PrepareOptions
	contract  *contractfile.Contract
	digest    string
	baseline  *Evaluation
	protected []string      // absolute globs of the evaluation file
	except    []string      // absolute globs of paths that are never restored
	snapshots []*snapshot   // of what is protected in the working directory, and elsewhere
	restored  []restoration // the result of each restoration
}

// EvaluateFile evaluates a contract without an agent and returns contract.json. Nothing is restored; TempDir and
// Baseline are not used. The document is complete even with ctx's error.
func EvaluateFile(ctx context.Context, opts PrepareOptions) (*schema.Contract, error) {
	g, err := Open(opts)
	if err != nil {
		return nil, err
	}
	return g.Settle(ctx, "")
}

// Open reads the contract, which is evaluated as it is now even if the file changes. If it has problems, the error is
// an *[contractfile.InvalidError]. Open starts nothing and holds nothing.
func Open(opts PrepareOptions) (_ *Gate, err error) {
	// Both may be relative to the current directory, which may change before they are used again.
	if opts.Path, err = filepath.Abs(opts.Path); err != nil {
		return nil, fmt.Errorf("read contract: %w", err)
	}
	if opts.Workdir, err = filepath.Abs(opts.Workdir); err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	opts.Options.Workdir = cmp.Or(opts.Options.Workdir, opts.Workdir)
	g := &Gate{opts: opts}
	if opts.Earlier != nil {
		definition := contractfile.Contract(opts.Earlier.Contract)
		g.contract, g.digest = &definition, opts.Earlier.Digest
		if problems := g.contract.Validate(); len(problems) > 0 {
			return nil, fmt.Errorf("the earlier contract: %w", &contractfile.InvalidError{Problems: problems})
		}
		if opts.Earlier.Baseline != nil {
			g.baseline = &Evaluation{Results: opts.Earlier.Baseline}
		}
		return g, nil
	}
	read := opts.Read
	if read == nil {
		if read, err = contractfile.LoadValid(opts.Path); err != nil {
			return nil, err
		}
	}
	g.contract, g.digest = read.Contract, read.Digest
	return g, nil
}

// Prepare is called once, before the agent starts. It takes the snapshot of the protected paths. If asked, it
// evaluates the baseline and undoes what that changed in protected paths. After an error, the agent must not be
// started.
func (g *Gate) Prepare(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			g.Release()
		}
	}()
	inside, outside := g.globs()
	for _, of := range []struct {
		dir   string
		globs []string
	}{{g.opts.Workdir, inside}, {"/", outside}} {
		if len(of.globs) == 0 {
			continue
		}
		s, err := protect(ctx, of.dir, of.globs, g.except, g.opts.TempDir)
		if err != nil {
			return err
		}
		g.snapshots = append(g.snapshots, s)
	}
	if !g.opts.Baseline {
		return nil
	}
	o := g.opts.Options
	o.phase, o.Output, o.after = Baseline, nil, g.restore
	baseline, err := Evaluate(ctx, g.contract, g.opts.Executor, o)
	if err != nil {
		return fmt.Errorf("evaluate the baseline: %w", err)
	}
	g.baseline = baseline
	return nil
}

// Definition is the contract that is evaluated.
func (g *Gate) Definition() *schema.ContractDefinition {
	return (*schema.ContractDefinition)(g.contract)
}

// Protect adds the protected globs of an evaluation file, which are absolute, and globs of paths that are never
// restored, such as the reward. It is called before Prepare.
func (g *Gate) Protect(globs, except []string) { g.protected, g.except = globs, except }

// globs are the protected globs in the working directory, relative to it, and those elsewhere, relative to the root.
func (g *Gate) globs() (inside, outside []string) {
	for _, glob := range slices.Concat(g.contract.Protected, g.protected) {
		rest, in := strings.CutPrefix(glob, schema.EscapeGlob(g.opts.Workdir)+"/")
		if !in { // the checks may run in a copy of the working directory
			rest, in = strings.CutPrefix(glob, schema.EscapeGlob(g.opts.Options.Workdir)+"/")
		}
		switch {
		case !path.IsAbs(glob):
			inside = append(inside, glob)
		case in:
			inside = append(inside, rest)
		default:
			outside = append(outside, strings.TrimPrefix(glob, "/"))
		}
	}
	return inside, outside
}

// restore restores the protected paths as they were before the agent started. check is the check that has just run;
// "" means the agent.
func (g *Gate) restore(phase Phase, check string) {
	during := schema.DuringAgent
	switch {
	case check != "" && phase == Baseline:
		during = schema.DuringBaseline
	case check != "":
		during = schema.DuringCheck
	}
	for _, s := range g.snapshots {
		r := s.Restore(during, check)
		if check != "" {
			r.forget(g.restored) // earlier failures are not reported again
		}
		if len(r.Changes) > 0 {
			g.restored = append(g.restored, r)
		}
	}
}

// Pending is contract.json until Settle has returned: nothing has been found yet, for the given reason.
func (g *Gate) Pending(reason string) *schema.Contract {
	doc := g.document(notEvaluated(g.contract, g.opts.Options.Workdir, reason))
	doc.FileAfter = "unknown"
	g.noteProtected(doc)
	g.noteBaseline(doc)
	return doc
}

func (g *Gate) document(e *Evaluation) *schema.Contract {
	return &schema.Contract{
		Schema:           schema.ContractV0,
		RunID:            g.opts.RunID,
		Digest:           g.digest,
		Contract:         schema.ContractDefinition(*g.contract),
		Verdict:          e.Verdict,
		Reasons:          e.Reasons,
		Results:          e.Results,
		ProtectedChanges: []schema.ProtectedChange{},
	}
}

// Settle is called once the agent and everything that it started has ended. notRun is empty, or says why there is
// nothing to evaluate, such as that the agent never ran: then no check runs, and the verdict is inconclusive. Settle
// restores the protected paths, runs every check, and returns contract.json. The document is complete even with an
// error, which is ctx's if ctx ended the evaluation early.
func (g *Gate) Settle(ctx context.Context, notRun string) (*schema.Contract, error) {
	fileAfter := g.fileAfter() // before a check can touch it
	var e *Evaluation
	var err error
	if notRun != "" {
		e = notEvaluated(g.contract, g.opts.Options.Workdir, notRun)
	} else {
		g.restore(Final, "")
		o := g.opts.Options
		o.after = g.restore
		if g.baseline != nil {
			o.firstIndex = len(g.contract.Checks)
		}
		e, err = Evaluate(ctx, g.contract, g.opts.Executor, o)
	}
	doc := g.document(e)
	doc.FileAfter = fileAfter
	g.noteFile(doc)
	g.noteProtected(doc)
	g.noteBaseline(doc)
	return doc, err
}

// Protects reports whether an absolute path is protected.
func (g *Gate) Protects(path string) bool {
	return slices.ContainsFunc(g.snapshots, func(s *snapshot) bool {
		rel, err := filepath.Rel(s.dir, path)
		return err == nil && s.covers(filepath.ToSlash(rel))
	})
}

// Release frees the snapshot. It may be called twice.
func (g *Gate) Release() {
	for _, s := range g.snapshots {
		s.Release()
	}
}

func (g *Gate) fileAfter() string {
	if g.opts.Earlier != nil {
		return g.opts.Earlier.FileAfter
	}
	switch digest, err := contractfile.Digest(g.opts.Path); {
	case errors.Is(err, fs.ErrNotExist):
		return "missing"
	case err != nil:
		return "unreadable"
	case digest != g.digest:
		return "changed"
	}
	return "unchanged"
}

func (g *Gate) noteFile(doc *schema.Contract) {
	if doc.FileAfter != "unchanged" && doc.FileAfter != "unknown" {
		doc.Reasons = append(
			doc.Reasons,
			"the contract file was edited during the run (now "+doc.FileAfter+
				"); the one read at the start was evaluated",
		)
	}
}

// noteProtected lists the changed protected paths in the document, and adjusts the verdict.
func (g *Gate) noteProtected(doc *schema.Contract) {
	for _, s := range g.snapshots {
		for _, glob := range s.Unmatched() {
			doc.Reasons = append(doc.Reasons, fmt.Sprintf("protected: %q matched nothing at the start", glob))
		}
	}
	for _, r := range g.restored {
		doc.ProtectedChanges = append(doc.ProtectedChanges, r.Changes...)
		doc.Reasons = append(doc.Reasons, r.reasons()...)
	}
	doc.Verdict = doc.Weighed(doc.Verdict)
}

// protectedPaths starts a sentence about n protected paths.
func protectedPaths(n int) string {
	if n == 1 {
		return "1 protected path was"
	}
	return fmt.Sprintf("%d protected paths were", n)
}

func (g *Gate) noteBaseline(doc *schema.Contract) {
	if g.baseline == nil {
		return
	}
	doc.Baseline = g.baseline.Results
	for i := range doc.Results {
		passed := doc.Baseline[i].Passed
		doc.Results[i].GatesNothing = &passed
		if passed {
			doc.Reasons = append(
				doc.Reasons,
				fmt.Sprintf("check %s proves nothing: it already passed before the agent started", doc.Results[i].Name),
			)
		}
	}
}
