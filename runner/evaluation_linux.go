package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/assay-run/assay-run/runner/engine"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/evalfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// evaluationPart keeps the evaluation file of a run in its bundle. Without one it does nothing.
type evaluationPart struct {
	log  *evidence.Log
	spec *specfile.Spec
	file *schema.Evaluation // nil: it cannot be used
	// unusable is why the file cannot be used.
	unusable error
	ours     []string // the recorder's own files

	contract func() schema.ContractDefinition // the run's contract; zero for none

	mu  sync.Mutex         // guards what follows: containers start in any goroutine
	doc *schema.Evaluation // nil until it was read
	in  bool               // the agent's container was found
}

// keep copies the evaluation file into the bundle before anything starts.
func (p *evaluationPart) keep(context.Context) error {
	if p.spec.Evaluation == "" {
		return nil
	}
	at, err := p.spec.Absolute()
	if err != nil {
		return err
	}
	if err := p.unusable; err != nil {
		e := schema.ResultError{Code: "evaluation_unusable", Message: err.Error(),
			Hint: "docs/evaluation.md describes the file"}
		return &runError{source: schema.SourceRunner, exit: schema.ExitRunner, ResultError: e}
	}
	doc := new(*p.file)
	doc.RunID, doc.Workdir, doc.Homes = p.log.RunID, at.Workdir, homesOf(p.spec)
	agreed := p.contract()
	search, _ := lookupEnv(environ(p.spec), "PATH")
	doc.Start = evalfile.Start(&doc.Evaluation, at.Workdir, search, agreed.Absolute(at.Workdir))
	if doc.Start.Tests, err = p.testsOf(doc.Evaluation.Tests, agreed.Tests); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doc = doc
	return p.log.Put(schema.EvaluationPath, doc)
}

// tests are the directories that the command must not see.
func (p *evaluationPart) tests() ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doc != nil {
		return p.doc.Start.Tests, nil
	}
	return p.testsOf(p.contract().Tests)
}

func (p *evaluationPart) testsOf(dirs ...string) (tests []string, err error) {
	at, err := p.spec.Absolute()
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		if !path.IsAbs(dir) {
			dir = path.Join(at.Workdir, dir)
		}
		real, err := filepath.EvalSymlinks(dir)
		if info, serr := os.Stat(dir); err == nil && (serr != nil || !info.IsDir()) {
			err = errors.Join(serr, fmt.Errorf("%s is not a directory", dir))
		}
		if err != nil {
			return nil, &runError{source: schema.SourceRunner, exit: schema.ExitRunner, ResultError: schema.ResultError{
				Code: "tests_unusable", Message: "tests: " + err.Error(), Hint: "name a directory that exists"}}
		}
		if !slices.Contains(tests, real) {
			tests = append(tests, real)
		}
	}
	return tests, nil
}

// protected are the globs of files on this host that a contract restores, and of those that it never does.
func (p *evaluationPart) protected() (globs, except []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doc == nil {
		return nil, nil
	}
	except = p.doc.Evaluation.Absolute(p.doc.Evaluation.Reward, p.doc.Workdir)
	for _, path := range p.ours {
		except = append(except, schema.EscapeGlob(path))
	}
	return p.doc.Evaluation.Restored(p.doc.Workdir, p.doc.Start), except
}

// ports are those on which the task asks for a server.
func (p *evaluationPart) ports() (list []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doc != nil {
		for _, s := range p.doc.Evaluation.Servers {
			list = append(list, s.Port)
		}
	}
	return list
}

// outside are the globs of deliverables on this host outside of the run's working directory.
func (p *evaluationPart) outside() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doc == nil {
		return nil
	}
	for _, glob := range p.doc.Evaluation.Absolute(p.doc.Evaluation.Deliverables, p.doc.Workdir) {
		if path.IsAbs(glob) && !schema.Below(glob, schema.EscapeGlob(p.doc.Workdir)) {
			list = append(list, glob)
		}
	}
	return list
}

// lookInside limits how long a container waits until its files were looked for.
const lookInside = 20 * time.Second

// starting looks for the files that the evaluation file names in a container, before it starts, if the agent works in
// one: in the first that has a workspace, or else in the run's first. If the engine does not answer, it is not known
// what is there, and the rules say so.
func (p *evaluationPart) starting(socket, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doc == nil || p.in || !p.doc.Evaluation.InContainer(p.doc.Workdir, p.doc.Start) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookInside)
	defer cancel()
	docker := engine.New(engine.Docker, socket)
	defer docker.Close()
	found, err := evalfile.InContainer(&p.doc.Evaluation, p.doc.Workdir, func(file string) (string, bool, error) {
		return docker.File(ctx, id, file)
	})
	roots := p.doc.Evaluation.Roots(p.doc.Workdir)
	has := slices.ContainsFunc(roots, func(root string) bool { return !slices.Contains(found.Absent, root) })
	if err == nil && (has || p.doc.Start.Container == nil) {
		p.in, found.ID = has, id
		found.Programs, _ = docker.Programs(ctx, id) // without, a program that replaces one is in doubt
		p.doc.Start.Container = found
		_ = p.log.Put(schema.EvaluationPath, p.doc) // an error leaves the earlier document, which knows less
	}
}
