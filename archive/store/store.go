// Package store is the folder in which a host keeps its bundles: one file for
// each run, named by its id.
//
// It is a plain folder: what others put there or take away is seen at once, and
// there is no index that could differ from it.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/assay-run/assay-run/archive"
)

// Environment is the variable that makes the store the default place of
// bundles: "1" for the default folder, or an absolute path.
const Environment = "ASSAY_RUN_STORE"

// DefaultDir is the folder that Environment names, or $XDG_STATE_HOME/assay-run/store,
// or the same below ~/.local/state.
func DefaultDir() (string, error) {
	switch v := os.Getenv(Environment); {
	case filepath.IsAbs(v):
		return v, nil
	case v != "" && v != "0" && v != "1":
		return "", fmt.Errorf("%s is %q, want 1, 0 or an absolute path", Environment, v)
	}
	spool, err := archive.DefaultSpoolDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(spool), "store"), nil
}

// IsDefault reports whether Environment asks for bundles to be stored.
func IsDefault() bool { v := os.Getenv(Environment); return v != "" && v != "0" }

// Path is where the bundle of a run is kept. It makes the folder (0700).
func Path(dir, runID string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the store: %w", err)
	}
	return filepath.Join(dir, runID+".tar.gz"), nil
}

// Entry is a bundle of the store. Of one that cannot be read, Damage says why and
// the rest is what its file tells.
type Entry struct {
	RunID     string            `json:"run_id"`
	Path      string            `json:"path"`
	Bytes     int64             `json:"bytes"`
	Identity  string            `json:"identity"`
	StartedAt time.Time         `json:"started_at"` // the file's time when damaged
	Command   []string          `json:"command"`
	Labels    map[string]string `json:"labels"`
	Outcome   string            `json:"outcome"`
	ExitCode  *int              `json:"exit_code"`
	Damage    string            `json:"damage,omitempty"`
}

// List reads the store, the newest run first. A missing folder holds none.
// Files that are not bundles are passed over.
func List(ctx context.Context, dir string) ([]Entry, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	all := []Entry{}
	for _, f := range files {
		name := f.Name()
		id, ok := strings.CutSuffix(name, ".tar.gz")
		if !ok {
			id, ok = strings.CutSuffix(name, ".tar.zst")
		}
		info, err := f.Info()
		if !ok || err != nil || !info.Mode().IsRegular() {
			continue
		}
		e := Entry{RunID: id, Path: filepath.Join(dir, name), Bytes: info.Size(), StartedAt: info.ModTime(),
			Command: []string{}, Labels: map[string]string{}}
		if err := e.read(ctx); err != nil {
			e.Damage = err.Error()
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.RunID, b.RunID))
	})
	return all, nil
}

func (e *Entry) read(ctx context.Context) error {
	r, err := archive.Open(e.Path)
	if err != nil {
		return err
	}
	d, err := r.Documents(ctx)
	if err != nil {
		return err
	}
	e.RunID, e.Identity, e.Command, e.Outcome, e.ExitCode = r.RunID(), r.Identity(), d.Run.Command, d.Result.Outcome,
		d.Result.ExitCode
	if d.Run.Labels != nil {
		e.Labels = d.Run.Labels
	}
	if t, err := time.Parse(time.RFC3339Nano, d.Run.StartedAt); err == nil {
		e.StartedAt = t
	}
	return nil
}

// ErrNone is wrapped by the error of Find when no bundle, or more than one, has
// the id.
var ErrNone = errors.New("no such run in the store")

// Find is the bundle of a run: by its id, or by the beginning of its id or of
// its identity where that is one bundle's alone.
func Find(ctx context.Context, dir, id string) (*Entry, error) {
	all, err := List(ctx, dir)
	if err != nil {
		return nil, err
	}
	var found []*Entry
	for i := range all {
		e := &all[i]
		if e.RunID == id {
			return e, nil
		}
		if id != "" && (strings.HasPrefix(e.RunID, id) || strings.HasPrefix(e.Identity, id) ||
			strings.HasPrefix(strings.TrimPrefix(e.Identity, "sha256:"), id)) {
			found = append(found, e)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%q is the beginning of %d runs: %w", id, len(found), ErrNone)
	}
	return nil, fmt.Errorf("%q: %w", id, ErrNone)
}

// Prune says what goes. A zero field asks for nothing.
type Prune struct {
	// Keep is how many of the newest stay, whatever the others say.
	Keep int
	// Older lets go what began longer ago. When only Keep is set, everything
	// beyond it goes.
	Older time.Duration
	// MaxBytes lets go the oldest until no more than that is left.
	MaxBytes int64
}

// Select is which of the entries, the newest first, go at the time now.
func (p Prune) Select(all []Entry, now time.Time) []Entry {
	var gone []Entry
	var total int64
	for i, e := range all {
		total += e.Bytes
		if i < p.Keep {
			continue
		}
		switch {
		case p.Older > 0 && now.Sub(e.StartedAt) > p.Older,
			p.MaxBytes > 0 && total > p.MaxBytes,
			p.Older == 0 && p.MaxBytes == 0 && p.Keep > 0:
			gone = append(gone, e)
			total -= e.Bytes
		}
	}
	return gone
}
