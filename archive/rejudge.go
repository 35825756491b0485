package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// JudgeOptions say how [Judge] makes a bundle.
type JudgeOptions struct {
	// By names the program.
	By string
	// Redactor removes secrets from the new documents and outputs; nil keeps them.
	Redactor *redact.Redactor
	// Replace allows a file at the output's path.
	Replace bool
}

// Judge writes a copy of a bundle to output with another verdict of its contract: judge returns contract.json, changes
// the result accordingly, and writes the outputs of the checks. The new health names the old identity. The old bundle
// is not changed, and its signatures do not cover the new one. On an error nothing is left at the output.
func Judge(ctx context.Context, bundle, output string, opt JudgeOptions, judge func(*Judged) (*schema.Contract, error),
) (Sealed, error) {
	return rewrite(ctx, bundle, output, opt.Replace, func(old *unpacked) ([]source, error) {
		j := &Judged{Identity: old.identity, sources: old.sources, room: old.room, redactor: opt.Redactor}
		if err := j.read(); err != nil {
			return nil, fmt.Errorf("%s: %w", bundle, err)
		}
		contract, err := judge(j)
		if err != nil {
			return nil, err
		}
		if err := j.put(contract, opt.By); err != nil {
			return nil, err
		}
		return j.sources, nil
	})
}

// Judged is a bundle whose contract is judged again.
type Judged struct {
	Identity string
	Run      schema.Run
	Result   schema.Result // changed by the judge function
	Health   schema.ObservationHealth
	Contract *schema.Contract // nil if the run had none
	// Evaluation is nil if the run had no evaluation file.
	Evaluation *schema.Evaluation

	room     *scratch
	redactor *redact.Redactor
	sources  []source
	outputs  []source // of the checks
}

func (j *Judged) read() error {
	documents := map[string]any{schema.RunPath: &j.Run, schema.ResultPath: &j.Result, schema.HealthPath: &j.Health}
	if slices.ContainsFunc(j.sources, func(src source) bool { return src.path == schema.ContractPath }) {
		j.Contract = &schema.Contract{}
		documents[schema.ContractPath] = j.Contract
	}
	if slices.ContainsFunc(j.sources, func(src source) bool { return src.path == schema.EvaluationPath }) {
		j.Evaluation = &schema.Evaluation{}
		documents[schema.EvaluationPath] = j.Evaluation
	}
	for path, into := range documents {
		in, err := j.Open(path)
		if err == nil {
			err = json.UnmarshalRead(in, into)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
	return nil
}

// Open opens a member. The error is fs.ErrNotExist if there is none of that path.
func (j *Judged) Open(path string) (io.ReadCloser, error) {
	i := slices.IndexFunc(j.sources, func(src source) bool { return src.path == path })
	if i < 0 {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return j.sources[i].open()
}

// Create opens the member for the output of a check. Only one may be open at a time. Secrets are removed.
func (j *Judged) Create(path string) (io.WriteCloser, error) {
	o := &judgedOutput{j: j, path: path, at: j.room.end}
	if j.redactor == nil {
		return o, nil
	}
	return j.redactor.Writer(path, o), nil
}

// judgedOutput is the output of a check that is being written.
type judgedOutput struct {
	j    *Judged
	path string
	at   int64
}

func (o *judgedOutput) Write(b []byte) (int, error) { return (&scratchEnd{o.j.room}).Write(b) }

func (o *judgedOutput) Close() error {
	if !slices.ContainsFunc(o.j.outputs, func(src source) bool { return src.path == o.path }) {
		room := o.j.room
		o.j.outputs = append(o.j.outputs, source{path: o.path, size: room.end - o.at, held: room.f, offset: o.at})
	}
	return nil
}

// put replaces the documents with the verdict.
func (j *Judged) put(contract *schema.Contract, by string) error {
	sources := slices.DeleteFunc(j.sources, func(src source) bool {
		return src.path == schema.ContractPath || src.path == schema.ResultPath ||
			strings.HasPrefix(src.path, schema.ChecksDir)
	})
	j.sources = append(sources, j.outputs...)
	for path, doc := range map[string]any{schema.ContractPath: contract, schema.ResultPath: &j.Result} {
		data, err := schema.Document(doc)
		if err != nil {
			return err
		}
		if j.redactor != nil {
			data = j.redactor.JSON(path, data)
		}
		if err := schema.Validate(documentSchema(path), data); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		j.sources = append(j.sources, source{path: path, size: int64(len(data)), data: data})
	}
	return amend(j.sources, schema.HealthPath, func(h *schema.ObservationHealth) {
		h.Judgements = append(h.Judgements,
			schema.Judgement{From: j.Identity, By: by, JudgedAt: schema.Wall(time.Now())})
		if h.Redaction == nil || j.redactor == nil {
			return
		}
		total, rules, fields := j.redactor.Counts()
		h.Redaction.RedactedCount += total
		for rule, n := range rules {
			h.Redaction.ByRule[rule] += n
		}
		for field, n := range fields {
			h.Redaction.ByField[field] += n
		}
	})
}

var errNoChanges = errors.New("the bundle does not have what the run left in its workspace")

// Changes reads workspace/changes.json. It is an error if the run did not record changes.
func (j *Judged) Changes() (*schema.WorkspaceChanges, error) {
	in, err := j.Open(schema.ChangesPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoChanges
	}
	if err != nil {
		return nil, err
	}
	doc, err := schema.ReadWorkspaceChanges(in, nil)
	if err == nil && doc.Workspace == "" { // it recorded only artifacts
		err = errNoChanges
	}
	return doc, err
}

// Files calls f with each path that the command or a check used, by the kernel layer.
func (j *Judged) Files(ctx context.Context, f func(path string, how schema.Access, check bool)) error {
	i := slices.IndexFunc(j.sources, func(src source) bool { return src.path == schema.KernelPath })
	decoder := schema.NewLineDecoder(schema.KernelPath)
	in := &memberReader{ctx: ctx}
	return in.lines(j.sources[i], func(line []byte, _ bool) error {
		l, err := decoder.Decode(line)
		if err != nil {
			return err
		}
		e := l.Kernel
		if e == nil || e.Failed() || e.Class == schema.ClassRunner {
			return nil
		}
		for path, how := range e.Touches() {
			f(path, how, e.Class == schema.ClassCheck)
		}
		return nil
	})
}
