package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/store"
	"github.com/assay-run/assay-run/archive/store/index"
	"github.com/assay-run/assay-run/archive/view"
)

// rememberAfter is how many newly read bundles are put into an index at a time.
const rememberAfter = 256

// knownRuns are the runs of a query's bundles that an index knows. A bundle that no index knows
// is read.
type knownRuns struct {
	*finder
	stores map[string]*knownStore // by folder
	file   os.FileInfo            // of what find did not know, before it is read; nil: of no store
}

// knownStore is the index of one folder.
type knownStore struct {
	*index.Index
	known map[string]index.Verified // by the names of files
	read  map[string]index.Verified // which it does not know yet
}

// newKnownRuns opens the indexes of the folders that have one, or that have more than one of
// the bundles. Close it.
func newKnownRuns(ctx context.Context, f *finder, names []string) *knownRuns {
	k := &knownRuns{finder: f, stores: map[string]*knownStore{}}
	if f.subject != query.Runs {
		return k
	}
	bundles := map[string]int{}
	for _, name := range names {
		if name != "-" {
			bundles[filepath.Dir(name)]++
		}
	}
	for dir, n := range bundles {
		if _, err := os.Lstat(filepath.Join(dir, index.Name)); err != nil && n < 2 {
			continue
		}
		x, err := index.Open(ctx, dir)
		if err != nil {
			continue // it would only save time
		}
		known, err := x.Verified(ctx, f.p.Uses(query.ListVars...))
		if err != nil {
			known = map[string]index.Verified{}
		}
		k.stores[dir] = &knownStore{x, known, map[string]index.Verified{}}
	}
	return k
}

// find reports whether an index knows the bundle called name as it is now, and prints it if
// it matches.
func (k *knownRuns) find(name string) (bool, error) {
	k.file = nil
	s := k.stores[filepath.Dir(name)]
	if s == nil || name == "-" {
		return false, nil
	}
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return false, nil
	}
	k.file = info
	v, ok := s.known[info.Name()]
	if !ok || store.Stamp(info) != v.Stamp || v.Lists == nil && k.p.Uses(query.ListVars...) {
		return false, nil
	}
	run, err := query.Facts{Small: v.Facts, Lists: v.Lists}.Run(name, k.p)
	if err != nil {
		return false, nil // of another version
	}
	ok, err = k.p.Eval(run)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	if e := &v.Entry; ok {
		k.run(runRow{e.RunID, name, e.Identity, e.Outcome, e.ExitCode, e.Command})
	}
	return true, nil
}

// add remembers the bundle that find did not know and that was read since.
func (k *knownRuns) add(ctx context.Context, b *view.Bundle) {
	if k.file == nil || !b.Verified() {
		return
	}
	dir := filepath.Dir(b.Name)
	s := k.stores[dir]
	facts, err := query.FactsOf(b.Docs)
	if err != nil {
		return
	}
	s.read[k.file.Name()] = index.Verified{
		Indexed: store.Indexed{Stamp: store.Stamp(k.file), Entry: store.EntryOf(dir, k.file, b.Reader, b.Docs)},
		Facts:   facts.Small, Lists: facts.Lists,
	}
	if len(s.read) >= rememberAfter {
		s.remember(ctx)
	}
}

// remember adds what was read to the index. If that fails, it is read again next time.
func (s *knownStore) remember(ctx context.Context) {
	_ = s.Remember(context.WithoutCancel(ctx), s.read)
	clear(s.read)
}

func (k *knownRuns) close(ctx context.Context) {
	for _, s := range k.stores {
		if len(s.read) > 0 {
			s.remember(ctx)
		}
		s.Close()
	}
}
