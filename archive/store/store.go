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
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/assay-run/assay-run/archive"
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

// Entry is a bundle of the store. If the bundle does not verify, Damage says why, and what cannot be read of it comes
// from the file's name, size and time.
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

// Index caches what was read from the bundles of one store. If it fails, they are read instead.
type Index interface {
	// Known returns what is known, by file name, without Lists.
	Known(ctx context.Context) (map[string]Known, error)
	// Update adds or replaces what was read, and removes the files in gone.
	Update(ctx context.Context, read map[string]Known, gone []string) error
}

// Known is what was read from a bundle.
type Known struct {
	Stamp string // what Stamp returned of the file before it was read
	Entry Entry
	// Facts and Lists are those of Options.Facts, as JSON; nil if the bundle does not verify. Lists can be large, so
	// that only the index has them.
	Facts, Lists []byte
}

// Options say how a store is read. The zero value reads every bundle.
type Options struct {
	Index Index
	// Facts returns what else Known has of a bundle that verifies. It may be nil.
	Facts func(*archive.Documents) (facts, lists []byte, err error)
	// Stage is called when bundle i of the n that are not in the index was read. It may be nil.
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

const (
	// maxReaders limits the bundles that are read at the same time, as each large one takes memory.
	maxReaders = 4
	// updateAfter is how many bundles are read before the index is updated.
	updateAfter = 256
)

// Read returns what is in these bundles of a store, by file name. It verifies those that the index does not know as
// they are now, and has the index forget files that are not in the store any more.
func Read(ctx context.Context, dir string, files []os.FileInfo, opt Options) (map[string]Known, error) {
	all, known, missing := map[string]Known{}, map[string]Known{}, []os.FileInfo{}
	if opt.Index != nil {
		var err error
		if known, err = opt.Index.Known(ctx); err != nil {
			known = nil
		}
	}
	for _, f := range files {
		k, ok := known[f.Name()]
		delete(known, f.Name())
		if ok && k.Stamp == Stamp(f) {
			all[f.Name()] = k
		} else {
			missing = append(missing, f)
		}
	}
	var gone []string
	for name := range known {
		if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, os.ErrNotExist) {
			gone = append(gone, name)
		}
	}
	read := map[string]Known{}
	update := func(gone []string) {
		if opt.Index != nil && len(read)+len(gone) > 0 {
			// After an interrupt, keep what was read so far. What cannot be kept is read again next time.
			_ = opt.Index.Update(context.WithoutCancel(ctx), read, gone)
		}
		clear(read)
	}
	n := 0
	for name, k := range readEach(ctx, dir, missing, opt) {
		if ctx.Err() != nil {
			break
		}
		if opt.Stage != nil {
			opt.Stage(n, len(missing), name)
		}
		n++
		read[name] = k
		k.Lists = nil
		all[name] = k
		if len(read) >= updateAfter {
			update(nil)
		}
	}
	update(gone)
	return all, ctx.Err()
}

// readEach reads bundles on several cores, and yields each as it is read, with its file's name.
func readEach(ctx context.Context, dir string, files []os.FileInfo, opt Options) iter.Seq2[string, Known] {
	type result struct {
		name  string
		known Known
	}
	return func(yield func(string, Known) bool) {
		ctx, cancel := context.WithCancel(ctx)
		todo, done := make(chan os.FileInfo, len(files)), make(chan result, len(files))
		for _, f := range files {
			todo <- f
		}
		close(todo)
		var readers sync.WaitGroup
		defer readers.Wait()
		defer cancel()
		for range min(runtime.GOMAXPROCS(0), maxReaders, len(files)) {
			readers.Go(func() {
				for f := range todo {
					if ctx.Err() != nil {
						return
					}
					done <- result{f.Name(), read(ctx, dir, f, opt)}
				}
			})
		}
		for range files {
			select {
			case r := <-done:
				if !yield(r.name, r.known) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// read verifies a bundle.
func read(ctx context.Context, dir string, f os.FileInfo, opt Options) Known {
	k := Known{Stamp: Stamp(f), Entry: newEntry(dir, f)}
	e := &k.Entry
	in := archive.Input{Name: f.Name(), Path: e.Path}
	r, report, err := in.Verified(ctx)
	if err == nil && !report.OK() {
		e.Damage = report.Problems[0].Error()
	}
	if err == nil && r != nil {
		var d *archive.Documents
		if d, err = r.Documents(ctx); err == nil {
			e.of(r, d)
			if e.Damage == "" && opt.Facts != nil {
				k.Facts, k.Lists, err = opt.Facts(d)
			}
		}
	}
	if err != nil {
		e.Damage = err.Error()
	}
	return k
}

// newEntry returns an entry from a file's name, size and time.
func newEntry(dir string, f os.FileInfo) Entry {
	id, _ := idOf(f.Name())
	return Entry{
		RunID: id, Path: filepath.Join(dir, f.Name()), Bytes: f.Size(), StartedAt: f.ModTime(),
		Command: []string{}, Labels: map[string]string{},
	}
}

// of sets the fields that come from the bundle's documents.
func (e *Entry) of(r *archive.Reader, d *archive.Documents) {
	e.RunID, e.Identity, e.Command, e.Outcome, e.ExitCode = r.RunID(), r.Identity(), d.Run.Command, d.Result.Outcome,
		d.Result.ExitCode
	e.Labels = d.Labels()
	if t, err := time.Parse(time.RFC3339Nano, d.Run.StartedAt); err == nil {
		e.StartedAt = t
	}
}

// Newest returns the entries of what [Read] returned for the store in dir, the newest run first.
func Newest(dir string, known map[string]Known) []Entry {
	all := []Entry{}
	for name, k := range known {
		k.Entry.Path = filepath.Join(dir, name)
		all = append(all, k.Entry)
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.RunID, b.RunID), cmp.Compare(a.Path, b.Path))
	})
	return all
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
