package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Sealed is a finished bundle.
type Sealed struct {
	Path     string // where it is
	Identity string // "sha256:" and 64 hex digits: the digest of its manifest
	Bytes    int64  // its size on disk
	// Notes say what a recovery cut, found bad, or had to make up.
	Notes []string
}

// Seal ends the spool and writes the bundle to the run's output. The output
// appears under its name whole and synced, by way of <output>.tmp beside it; a
// regular file or symbolic link of that name is replaced, as tar would, and
// anything else there is an error. On success the spool is gone. On an error
// nothing is left at the output's name that was not there before, nor at the
// .tmp, and the spool stays for [Recover]. Layers and documents that were never
// written are sealed as empty layers and as what Recover would make of them.
func (s *Spool) Seal(ctx context.Context) (Sealed, error) {
	// A layer that broke has told so to its writers and in its counts; what is
	// in its file is whole lines and is sealed.
	if err := s.finish(); errors.Is(err, errEnded) {
		return Sealed{}, fmt.Errorf("seal run %s: %w", s.run.RunID, err)
	}
	defer s.lock.Close()
	sizes := map[string]int64{}
	for p, l := range s.layers {
		sizes[p] = l.size
	}
	sources, err := spoolSources(s.dir, sizes)
	var notes []string
	if err == nil {
		sources, notes, err = complete(s.dir, s.run, sources, nil)
	}
	var sealed Sealed
	if err == nil {
		sealed, err = writeBundle(ctx, s.run, sources)
	}
	if err != nil {
		return Sealed{}, fmt.Errorf("seal run %s: %w (its spool %s is kept: \"assay-run recover --spool-dir %s %s\" seals it)", s.run.RunID, err, s.dir, filepath.Dir(s.dir), s.run.RunID)
	}
	sealed.Notes = notes
	return sealed, removeSpool(s.dir)
}

// removeSpool takes the spool's name away before its files, so that a half
// removed spool is never taken for an interrupted run.
func removeSpool(dir string) error {
	away := filepath.Join(filepath.Dir(dir), donePrefix+filepath.Base(dir))
	os.RemoveAll(away)
	err := os.Rename(dir, away)
	if err == nil {
		err = os.RemoveAll(away)
	}
	if err != nil {
		return fmt.Errorf("the bundle is sealed, but its spool could not be removed: %w", err)
	}
	return nil
}

// spoolSources lists the members in a spool: every regular file with a
// member's path, except run.json. sizes says how much of a layer to take.
func spoolSources(dir string, sizes map[string]int64) ([]source, error) {
	var sources []source
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		path := filepath.ToSlash(rel)
		if !d.Type().IsRegular() || !safePath(path) || path == schema.RunPath || path == schema.ManifestPath {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		src := source{path: path, size: info.Size(), file: name}
		if size, ok := sizes[path]; ok {
			if size > src.size {
				return fmt.Errorf("%s is %d bytes, %d were written to it", name, src.size, size)
			}
			src.size = size
		}
		sources = append(sources, src)
		return nil
	})
	return sources, err
}

// sweep removes what died while it was created or removed.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), donePrefix):
			os.RemoveAll(name)
		case strings.HasPrefix(e.Name(), newPrefix):
			if info, err := e.Info(); err == nil && isOld(info) && !isLocked(filepath.Join(name, schema.RunPath)) {
				os.RemoveAll(name)
			}
		}
	}
}
