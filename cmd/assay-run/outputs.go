package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// outputs are the places of what a run leaves, opened before its command runs.
type outputs struct {
	bundle *archive.Output
	result *archive.Output // nil without --result
}

// openOutputs opens the places. The error says what to do.
func (a *app) openOutputs(ctx context.Context, f *runFlags, bundle string) (_ *outputs, err error) {
	o := &outputs{}
	again := false
	if f.force {
		o.bundle, err = archive.OpenOutput(bundle, true)
	} else {
		o.bundle, again, err = archive.OpenOutputAgain(ctx, bundle)
	}
	if again {
		a.say.Info("%s is the bundle of a run whose command was not run: this run replaces it",
			console.Printable(bundle))
	}
	if err == nil && f.result != "" {
		o.result, err = archive.OpenOutput(archive.Follow(f.result), true)
	}
	switch {
	case err == nil:
		return o, nil
	case errors.Is(err, archive.ErrOutputExists):
		err = console.WithHint(err, "choose another name with -o, or replace it with --force")
	default:
		err = console.WithHint(err, "name a file that can be written, in a directory that exists")
	}
	o.close()
	return nil, err
}

func (o *outputs) close() {
	for _, out := range []*archive.Output{o.bundle, o.result} {
		if out != nil {
			out.Close()
		}
	}
}

// write puts result.json where a harness wants it, if anywhere.
func (o *outputs) write(result *schema.Result, r *redact.Redactor) error {
	if o.result == nil {
		return nil
	}
	data, err := schema.Document(result)
	if err != nil {
		return err
	}
	if err := o.result.WriteFile(r.JSON(schema.ResultPath, data)); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
