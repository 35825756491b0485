package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/serve"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// servedSpool is a spool as package serve wants it.
type servedSpool struct{ *archive.Spool }

func (s servedSpool) Seal(ctx context.Context) (string, error) {
	sealed, err := s.Spool.Seal(ctx)
	return sealed.Path, err
}

// servedSpools makes the spools of served runs below a directory.
func servedSpools(dir string) func(schema.Run) (serve.Spool, error) {
	return func(run schema.Run) (serve.Spool, error) {
		spool, err := archive.CreateSpool(dir, run)
		if err != nil {
			return nil, err
		}
		return servedSpool{spool}, nil
	}
}

// servedRedactors make the redactors of served runs. Known are the secrets of serve's
// own environment, and those that its flags name.
func (a *app) servedRedactors(f *redactFlags) func(runID string) (*redact.Redactor, error) {
	return func(runID string) (*redact.Redactor, error) {
		if f.disabled {
			return nil, nil
		}
		r, err := f.open()
		if err != nil {
			return nil, err
		}
		r.Keep(runID)
		for _, file := range f.files {
			value, err := readSecret(file)
			if err != nil {
				return nil, err
			}
			r.Add(redact.RuleGiven, value)
		}
		r.AddEnv(os.Environ(), append(f.env, redact.DefaultEnv...))
		return r, nil
	}
}

// redactSinks keeps the secrets that r finds out of audit sinks.
func redactSinks(sinks []runner.AuditSink, r *redact.Redactor) []runner.AuditSink {
	for i := range sinks {
		sinks[i].Writer = redactedLines{sinks[i].Writer, r}
	}
	return sinks
}

// redactedLines takes the secrets out of JSON lines, each in one write.
type redactedLines struct {
	w io.Writer
	r *redact.Redactor
}

func (l redactedLines) Write(b []byte) (int, error) {
	if _, err := l.w.Write(l.r.JSON(schema.AuditPath, b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// journalName is the file in a serve's directory that tells the next one of
// idempotency keys and rate limits.
const journalName = ".journal"

// resumeServed goes on with the runs that an earlier serve left open, and seals those
// that cannot go on.
func resumeServed(ctx context.Context, dir string, runs *serve.Runs, g *gateway.Gateway,
	warn func(string, ...any)) error {
	spools, err := archive.ListSpools(dir)
	if err != nil {
		return err
	}
	for _, info := range spools {
		if info.Alive {
			continue
		}
		spool, err := archive.ResumeSpool(dir, info.RunID)
		if err == nil {
			err = runs.Resume(g, servedSpool{spool}, spool.Run())
		}
		if err == nil {
			warn("run %s was interrupted and is resumed", info.RunID)
			continue
		}
		sealed, rerr := archive.Recover(ctx, dir, info.RunID, archive.RecoverOptions{})
		if rerr != nil {
			warn("the interrupted run %s could not be sealed and stays in %s: %v", info.RunID, dir, rerr)
			continue
		}
		warn("sealed the interrupted run %s as incomplete: %s (%v)", info.RunID, sealed.Path, err)
	}
	return nil
}

// sealSuspended makes the bundles of the runs that a later serve may go on with. Their
// spools stay for that.
func sealSuspended(ctx context.Context, dir string, warn func(string, ...any)) error {
	spools, err := archive.ListSpools(dir)
	for _, info := range spools {
		if info.Alive {
			continue
		}
		sealed, rerr := archive.Recover(ctx, dir, info.RunID, archive.RecoverOptions{Keep: true})
		if rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		warn("sealed the open run %s as incomplete: %s; it resumes if serve is started again with the same --dir",
			info.RunID, sealed.Path)
	}
	return err
}
