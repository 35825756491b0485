package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/store"
	"github.com/assay-run/assay-run/archive/store/index"
)

// knownRuns are the runs of a query's bundles that an index knows, by folder.
type knownRuns struct {
	*finder
	stores map[string]*knownStore
}

// knownStore is the index of one folder, and what it knows by the names of files.
type knownStore struct {
	*index.Index
	known map[string]store.Known
}

// newKnownRuns reads those of the bundles that are not in the index of their folder, where it has one, or more than one
// of the bundles. Close it.
func newKnownRuns(ctx context.Context, f *finder, names []string,
	stage func(i, n int, name string)) (*knownRuns, error) {
	k := &knownRuns{f, map[string]*knownStore{}}
	if f.subject != query.Runs {
		return k, nil
	}
	folders := map[string][]os.FileInfo{}
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && name != "-" {
			folders[filepath.Dir(name)] = append(folders[filepath.Dir(name)], info)
		}
	}
	for dir, files := range folders {
		if _, err := os.Lstat(filepath.Join(dir, index.Name)); err != nil && len(files) < 2 {
			continue
		}
		x, err := index.Open(ctx, dir, version())
		if err != nil {
			continue // it would only save time
		}
		k.stores[dir] = &knownStore{Index: x}
		if k.stores[dir].known, err = store.Read(ctx, dir, files,
			store.Options{Index: x, Facts: query.FactsOf, Stage: stage}); err != nil {
			k.close()
			return nil, err
		}
	}
	return k, nil
}

// find reports whether the bundle called name is known to verify as it is now, and prints it if it matches.
func (k *knownRuns) find(ctx context.Context, name string) (bool, error) {
	s := k.stores[filepath.Dir(name)]
	if s == nil || name == "-" {
		return false, nil
	}
	v := s.known[filepath.Base(name)]
	info, err := os.Lstat(name)
	if err != nil || v.Facts == nil || store.Stamp(info) != v.Stamp {
		return false, nil
	}
	var lists []byte
	if k.p.Uses(query.ListVars...) {
		if lists, err = s.Lists(ctx, info.Name(), v.Stamp); err != nil || lists == nil {
			return false, nil // they are too large for the index
		}
	}
	run, err := query.Stored(name, k.p, v.Facts, lists)
	if err != nil {
		return false, nil // somebody changed it
	}
	ok, err := k.p.Eval(run)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	if e := &v.Entry; ok {
		k.run(runRow{e.RunID, name, e.Identity, e.Outcome, e.ExitCode, e.Command})
	}
	return true, nil
}

func (k *knownRuns) close() {
	for _, s := range k.stores {
		s.Close()
	}
}
