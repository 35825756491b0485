// Package store is the folder in which a host keeps its bundles, one file for each
// run, named by the run's id.
//
// Bundles may be added and removed with any tool. An index beside the bundles (package
// index) caches what was read from them. It is rebuilt if it is missing, and a bundle
// whose file has changed is read again.
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

// environment is the variable that makes the store the default place of bundles: "1" for the default folder, or an
// absolute path.
const environment = "ASSAY_RUN_STORE"

// DefaultDir returns the folder that ASSAY_RUN_STORE names, or else $XDG_STATE_HOME/assay-run/store, or
// ~/.local/state/assay-run/store.
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

// IsDefault reports whether ASSAY_RUN_STORE asks for bundles to be stored.
func IsDefault() bool { v := os.Getenv(environment); return v != "" && v != "0" }

// Path returns the path for the bundle of a run, and makes the folder (0700).
func Path(dir, runID string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the store: %w", err)
	}
	return filepath.Join(dir, runID+".tar.gz"), nil
}

// Entry is a bundle of the store. If the bundle cannot be read, Damage says why, and the other fields come from the
// file's name, size and time.
type Entry struct {
	RunID     string            `json:"run_id"`
	Path      string            `json:"path"`
	Bytes     int64             `json:"bytes"`
	Identity  string            `json:"identity"`
	StartedAt time.Time         `json:"started_at"` // if damaged, the time of the file
	Command   []string          `json:"command"`
	Labels    map[string]string `json:"labels"`
	Outcome   string            `json:"outcome"`
	ExitCode  *int              `json:"exit_code"`
	Damage    string            `json:"damage,omitempty"`
}

// Index caches the entries of one store. If it fails, the bundles are read instead.
type Index interface {
	// Entries returns all entries by file name.
	Entries(ctx context.Context) (map[string]Indexed, error)
	// Update adds or replaces the entries in read, and removes the files in gone.
	Update(ctx context.Context, read map[string]Indexed, gone []string) error
}

// Indexed is an entry with the Stamp that its file had when it was read.
type Indexed struct {
	Stamp string
	Entry Entry
}

// Options say how a store is read. The zero value reads every bundle.
type Options struct {
	Index Index
	// Stage is called before bundle i of the n that are not in the index is read. It may be nil.
	Stage func(i, n int, name string)
}

// Files lists the bundles' files in a store, sorted by name. A missing folder has none. Files with other extensions are
// ignored.
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

// idOf returns the run id in the name of a bundle's file.
func idOf(name string) (id string, ok bool) {
	if id, ok = strings.CutSuffix(name, ".tar.gz"); !ok {
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
		// After an interrupt, keep what was read so far.
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

// newEntry returns an entry from a file's name, size and time.
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

// of sets the fields that come from the bundle's documents.
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

// EntryOf returns the entry of a bundle that was opened already.
func EntryOf(dir string, f os.FileInfo, r *archive.Reader, d *archive.Documents) Entry {
	e := newEntry(dir, f)
	e.of(r, d)
	return e
}

// ErrNone is wrapped by the error of Find if no bundle has the id, or more than one.
var ErrNone = errors.New("no such run in the store")

// Find returns the bundle of a run by its id, or by a unique prefix of its id or identity.
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

// Prune says which bundles to remove. The zero value removes none.
type Prune struct {
	// Keep is the number of newest bundles that always stay. If only Keep is set, all others are removed.
	Keep int
	// Older removes runs that began longer ago; 0 means no limit.
	Older time.Duration
	// MaxBytes removes the oldest runs until the rest is not larger; 0 means no limit.
	MaxBytes int64
}

// Select returns the entries to remove at the time now. The newest entry must come first.
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
