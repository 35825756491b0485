package main

import (
	"context"
	"os"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/serve"
	"github.com/assay-run/assay-run/schema"
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

// recoverServed seals what a killed serve left.
func recoverServed(ctx context.Context, dir string, warn func(string, ...any)) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return console.WithHint(err, "choose another directory with --dir")
	}
	spools, err := archive.ListSpools(dir)
	if err != nil {
		return err
	}
	for _, info := range spools {
		if info.Alive {
			continue
		}
		sealed, err := archive.Recover(ctx, dir, info.RunID, archive.RecoverOptions{})
		if err != nil {
			warn("the interrupted run %s could not be sealed and stays in %s: %v", info.RunID, dir, err)
			continue
		}
		warn("sealed the interrupted run %s as incomplete: %s", info.RunID, sealed.Path)
	}
	return nil
}
