package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/model/tape"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
)

// loadPolicy reads a policy file and prints its warnings. If path is empty, there is no policy.
func loadPolicy(say *console.Messages, path string) (*policyfile.File, error) {
	if path == "" {
		return nil, nil
	}
	file, err := policyfile.Load(path)
	if err != nil {
		return nil, err
	}
	for _, w := range file.Warnings {
		say.Warning("%s: %s", path, w)
	}
	return file, nil
}

// modelReplay is the bundle of --model-replay. The zero value is none.
type modelReplay struct {
	answers  *tape.Cassette
	identity string
}

// loadReplay verifies a bundle, and reads the answers that its run got from models. If name is
// empty, there is none.
func loadReplay(ctx context.Context, name string) (modelReplay, error) {
	if name == "" {
		return modelReplay{}, nil
	}
	set, err := view.Open(ctx, []string{name}, view.Options{Without: []string{schema.SurfacePath}})
	if err != nil {
		if errors.Is(err, view.ErrUnverified) {
			err = console.WithHint(err, "assay-run verify lists what is wrong with it")
		}
		return modelReplay{}, fmt.Errorf("--model-replay: %w", err)
	}
	defer set.Close()
	b := set.Bundles[0]
	answers, err := tape.Load(b.Lines(ctx, schema.ModelPath), func(names map[string]bool) (map[string]string, error) {
		texts, room := map[string]string{}, int64(tape.MaxBytes)
		for m, err := range b.Members(ctx) {
			if err != nil {
				return nil, err
			}
			if !names[m.Path] {
				continue
			}
			if room -= m.Size; room < 0 {
				return nil, fmt.Errorf("the texts of its members: %w", tape.ErrTooLong)
			}
			text, err := io.ReadAll(m)
			if err != nil {
				return nil, err
			}
			texts[m.Path] = string(text)
		}
		return texts, nil
	})
	if err != nil {
		err = fmt.Errorf("--model-replay: %s: %w", name, err)
		if errors.Is(err, tape.ErrNoBodies) || errors.Is(err, tape.ErrNothing) {
			err = console.WithHint(err,
				"replay a bundle of a run with --model-gateway, and without --model-bodies none")
		}
		return modelReplay{}, err
	}
	return modelReplay{answers, b.Identity()}, nil
}
