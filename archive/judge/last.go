package judge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// ErrNoBase is wrapped by the error of [LastGood] if there is no such bundle.
var ErrNoBase = errors.New("no earlier good run with the same labels")

// LastGood returns the path of a bundle directly in dir: of the last good run that began before head and has the same
// labels. Good means that the bundle verifies, the command exited with 0, and the contract passed if there was one.
// Files that cannot be read are ignored.
func LastGood(ctx context.Context, dir string, head *view.Bundle) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	type candidate struct{ path, started string }
	var found []candidate
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".tar.gz") && !strings.HasSuffix(e.Name(), ".tar.zst") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		r, err := archive.Open(path)
		if err != nil || r.Identity() == head.Identity() {
			continue
		}
		docs, err := r.Documents(ctx)
		if err != nil || !good(docs) || !maps.Equal(docs.Run.Labels, head.Docs.Run.Labels) ||
			docs.Run.StartedAt >= head.Docs.Run.StartedAt {
			continue
		}
		found = append(found, candidate{path, docs.Run.StartedAt})
	}
	for len(found) > 0 {
		last := 0
		for i, c := range found {
			if c.started > found[last].started {
				last = i
			}
		}
		report, err := archive.Verify(ctx, found[last].path)
		if err != nil {
			return "", err
		}
		if report.OK() {
			return found[last].path, nil
		}
		found = append(found[:last], found[last+1:]...)
	}
	return "", fmt.Errorf("%s: %w", dir, ErrNoBase)
}

func good(d *archive.Documents) bool {
	r := &d.Result
	return r.Outcome == schema.OutcomeExited && r.ExitCode != nil && *r.ExitCode == 0 &&
		(r.Contract == nil || *r.Contract == "passed")
}
