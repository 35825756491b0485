// Package store is the folder in which a host keeps its bundles: one file for
// each run, named by its id.
//
// It is a plain folder: what others put there or take away is seen at once. An index
// beside the bundles (package index) remembers what was read of them; it is rebuilt from
// the bundles where it is missing, and a bundle whose file has changed is read again.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// environment is the variable that makes the store the default place of
// bundles: "1" for the default folder, or an absolute path.
const environment = "ASSAY_RUN_STORE"

// DefaultDir is the folder that Environment names, or $XDG_STATE_HOME/assay-run/store,
// or the same below ~/.local/state.
func DefaultDir() (string, error) {
	switch v := os.Getenv(environment); {
	case filepath.IsAbs(v):
		return v, nil
	case v != "" && v != "0" && v != "1":
		return "", fmt.Errorf("%s is %q, want 1, 0 or an absolute path", environment, v)
	}
	spool, err := archive.DefaultSpoolDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(spool), "store"), nil
}

// IsDefault reports whether Environment asks for bundles to be stored.
func IsDefault() bool { v := os.Getenv(environment); return v != "" && v != "0" }

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

// Index remembers what was read of the bundles of one store. If it fails, answers take
// longer and stay the same.
type Index interface {
	// Entries is what it remembers, by the names of the files.
	Entries(ctx context.Context) (map[string]Indexed, error)
	// Update remembers what was read, and forgets files that are gone.
	Update(ctx context.Context, read map[string]Indexed, gone []string) error
}

// Indexed is an entry, and the Stamp of its file when it was read.
type Indexed struct {
	Stamp string
	Entry Entry
}

// Options say how a store is read. The zero value reads every bundle.
type Options struct {
	Index Index
	// Stage is called before bundle i of the n that the index lacks is read; nil for nobody.
	Stage func(i, n int, name string)
}

// Files lists the bundles of a store by the names of their files, sorted. A missing folder
// holds none. Files whose names are not those of bundles are passed over.
func Files(dir string) ([]os.FileInfo, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	var all []os.FileInfo
	for _, f := range files {
		if _, ok := idOf(f.Name()); !ok {
			continue
		}
		if info, err := f.Info(); err == nil && info.Mode().IsRegular() {
			all = append(all, info)
		}
	}
	return all, nil
}

// idOf is the run that the name of a bundle's file names.
func idOf(name string) (string, bool) {
	id, ok := strings.CutSuffix(name, ".tar.gz")
	if !ok {
		id, ok = strings.CutSuffix(name, ".tar.zst")
	}
	return id, ok
}

// List lists the bundles of the store, the newest run first.
func List(ctx context.Context, dir string, opt Options) ([]Entry, error) {
	files, err := Files(dir)
	if err != nil {
		return nil, err
	}
	known := map[string]Indexed{}
	if opt.Index != nil {
		if known, err = opt.Index.Entries(ctx); err != nil {
			known = nil
		}
	}
	all, missing := []Entry{}, []os.FileInfo{}
	for _, f := range files {
		k, ok := known[f.Name()]
		delete(known, f.Name())
		if !ok || k.Stamp != Stamp(f) {
			missing = append(missing, f)
			continue
		}
		k.Entry.Path = filepath.Join(dir, f.Name())
		all = append(all, k.Entry)
	}
	read := map[string]Indexed{}
	for i, f := range missing {
		if opt.Stage != nil {
			opt.Stage(i, len(missing), f.Name())
		}
		e := newEntry(dir, f)
		if err := e.read(ctx); err != nil {
			e.Damage = err.Error()
		}
		if ctx.Err() != nil {
			break
		}
		all = append(all, e)
		read[f.Name()] = Indexed{Stamp(f), e}
	}
	if opt.Index != nil && len(read)+len(known) > 0 {
		// What was read until an interrupt is remembered too.
		_ = opt.Index.Update(context.WithoutCancel(ctx), read, slices.Collect(maps.Keys(known)))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.RunID, b.RunID))
	})
	return all, nil
}

// newEntry is what a bundle's file tells without being read.
func newEntry(dir string, f os.FileInfo) Entry {
	id, _ := idOf(f.Name())
	return Entry{
		RunID: id, Path: filepath.Join(dir, f.Name()), Bytes: f.Size(), StartedAt: f.ModTime(),
		Command: []string{}, Labels: map[string]string{},
	}
}

func (e *Entry) read(ctx context.Context) error {
	r, err := archive.Open(e.Path)
	if err != nil {
		return err
	}
	d, err := r.Documents(ctx, schema.SurfacePath, schema.HealthPath, schema.CorrelationPath)
	if err != nil {
		return err
	}
	e.of(r, d)
	return nil
}

// of takes what the bundle's documents tell.
func (e *Entry) of(r *archive.Reader, d *archive.Documents) {
	e.RunID, e.Identity, e.Command, e.Outcome, e.ExitCode = r.RunID(), r.Identity(), d.Run.Command, d.Result.Outcome,
		d.Result.ExitCode
	if d.Run.Labels != nil {
		e.Labels = d.Run.Labels
	}
	if t, err := time.Parse(time.RFC3339Nano, d.Run.StartedAt); err == nil {
		e.StartedAt = t
	}
}

// EntryOf is the entry of a bundle that was opened already.
func EntryOf(dir string, f os.FileInfo, r *archive.Reader, d *archive.Documents) Entry {
	e := newEntry(dir, f)
	e.of(r, d)
	return e
}

// ErrNone is wrapped by the error of Find when no bundle, or more than one, has
// the id.
var ErrNone = errors.New("no such run in the store")

// Find returns the bundle of a run by its id, or by an unambiguous beginning of its id or of
// its identity.
func Find(all []Entry, id string) (*Entry, error) {
	var found []*Entry
	for i := range all {
		e := &all[i]
		if e.RunID == id {
			return e, nil
		}
		begins := func(s string) bool { return strings.HasPrefix(s, id) }
		if id != "" && (begins(e.RunID) || begins(e.Identity) || begins(strings.TrimPrefix(e.Identity, "sha256:"))) {
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
	// Older removes runs that began longer ago. When only Keep is set, everything beyond it goes.
	Older time.Duration
	// MaxBytes removes the oldest runs until no more than that is left.
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
