package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// Sealed is a finished bundle.
type Sealed struct {
	Path     string // where it is
	Identity string // "sha256:" and 64 hex digits: the digest of its manifest
	Bytes    int64  // its size on disk
	// Notes say what a recovery cut, found bad, or had to make up.
	Notes []string
	// ResultOutput is where a recovered run's result.json was meant to go as well;
	// empty for nowhere else.
	ResultOutput string
	// Tampered is what was found changed by others; the bundle says so too.
	Tampered []Tampered
	// Removed is what the last search before sealing took out; nil: nothing.
	Removed *schema.Removal
	// Result is result.json as it was sealed, where Removed is not nil; else nil.
	Result []byte
}

// Seal ends the spool and writes the bundle to the run's output. The output
// appears under its name whole and synced, by way of <output>.tmp beside it; a
// regular file or symbolic link of that name is replaced, as tar would, and
// anything else there is an error. On success the spool is gone. On an error
// nothing is left at the output's name that was not there before, nor at the
// .tmp, and the spool stays for [Recover]. Layers and documents that were never
// written are sealed as empty layers and as what Recover would make of them.
//
// What is sealed is what the recorder wrote, by the descriptors that it has held
// since, whatever became of the names. Bytes that somebody else changed are sealed
// as they are, and Sealed.Tampered and the bundle tell.
func (s *Spool) Seal(ctx context.Context) (Sealed, error) {
	// A layer that broke has told so to its writers and in its counts; what is
	// in its file is whole lines and is sealed.
	if err := s.finish(); errors.Is(err, errEnded) {
		return Sealed{}, fmt.Errorf("seal run %s: %w", s.run.RunID, err)
	}
	defer s.lock.Close()
	defer s.release()
	var room sync.WaitGroup
	room.Go(func() { _ = os.Remove(filepath.Join(s.dir, reserveName)) }) // which can take longer than to pack a small run
	defer room.Wait()
	sources, err := s.sources()
	var notes []string
	if err == nil {
		sources, notes, err = complete(s.dir, s.run, sources, nil)
	}
	var removed *schema.Removal
	var found []Tampered
	if err == nil && s.redactor != nil {
		sources, removed, found, err = s.sweep(ctx, sources)
	}
	defer func() {
		for _, f := range []*scratch{s.scratch, s.projected} {
			if f != nil {
				f.Close()
			}
		}
	}()
	var sealed Sealed
	out := s.out
	if err == nil && out == nil {
		if out, err = OpenOutput(s.run.Output, true); err == nil {
			defer out.Close()
		}
	}
	if err == nil {
		sealed, err = s.write(ctx, out, sources, found)
	}
	if err != nil {
		return Sealed{}, fmt.Errorf("seal run %s: %w (its spool %s is kept: \"assay-run recover --spool-dir %s %s\" seals it)", s.run.RunID, err, s.dir, filepath.Dir(s.dir), s.run.RunID)
	}
	sealed.Notes, sealed.Removed = append(notes, sealed.Notes...), removed
	if removed != nil {
		sealed.Result = documentOf(sources, schema.ResultPath)
	}
	room.Wait()
	s.release() // first: the last close of a file without a name costs more
	return sealed, s.remove()
}

// SealTo says where Seal writes the bundle: to the place of the run's output that
// was opened before, which stays the caller's to close.
func (s *Spool) SealTo(out *Output) { s.out = out }

// documentOf is a document's bytes, nil where they are not in memory.
func documentOf(sources []source, path string) []byte {
	for _, src := range sources {
		if src.path == path {
			return src.data
		}
	}
	return nil
}

func isThere(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir()
}

// write seals the members, of which those that were found are changed already. What was
// tampered with is found while they are packed, so that nothing can change in between;
// then they are packed again, with what was found in the documents.
func (s *Spool) write(ctx context.Context, out *Output, sources []source, found []Tampered) (Sealed, error) {
	const tries = 5 // for somebody who goes on changing them
	found = append(found, s.strange()...)
	for try := 1; ; try++ {
		if len(found) > 0 {
			if err := markTampered(sources, found); err != nil {
				return Sealed{}, err
			}
		}
		members, changed, notes, err := s.project(ctx, slices.Clone(sources))
		if err != nil {
			return Sealed{}, err
		}
		var sealed Sealed
		if len(changed) == 0 || try == tries {
			sealed, err = writeBundle(ctx, s.run, out, members, func(path string, at int64) bool {
				changed = append(changed, wasChanged(path, at))
				return try < tries
			})
			if !errors.Is(err, errChanged) {
				sealed.Tampered, sealed.Notes = found, notes
				return sealed, err
			}
		}
		for _, t := range changed {
			i := slices.IndexFunc(sources, func(src source) bool { return src.path == t.Path })
			found = append(found, t)
			sources[i].wrote = nil
			if err := sources[i].take(); err != nil {
				return Sealed{}, err
			}
		}
	}
}

func wasChanged(path string, at int64) Tampered {
	return Tampered{path, fmt.Sprintf("was changed after it was written, at byte %d or later", at)}
}

// project returns the members in the form that the run asked for, and which of those
// that it read for that somebody had changed.
func (s *Spool) project(ctx context.Context, sources []source) (members []source, changed []Tampered, notes []string, err error) {
	if s.run.Compat != CompatV0 {
		return sources, nil, nil, nil
	}
	dir := s.dir
	if !isThere(dir) {
		dir = "" // somebody deleted it: os.TempDir
	}
	if s.projected != nil {
		s.projected.Close()
	}
	if s.projected, err = newScratch(dir); err != nil {
		return nil, nil, nil, err
	}
	v0, err := projectV0(ctx, sources, s.projected)
	if err != nil {
		return nil, nil, nil, err
	}
	return v0.members, v0.tampered, v0.notes, nil
}

// sources lists what the recorder made. The spool is ended.
func (s *Spool) sources() ([]source, error) {
	var sources []source
	integrity := schema.Integrity{Schema: schema.IntegrityV0, RunID: s.run.RunID, Checkpoint: schema.Checkpoint{Layers: map[string]schema.LayerTree{}}}
	for p, l := range s.layers {
		integrity.Layers[schema.LayerName(p)] = l.tree.state()
		if l.file != nil {
			sources = append(sources, source{path: p, size: l.size, held: l.file, wrote: l.ledger})
		}
	}
	for p, m := range s.members {
		if isStream(p) {
			if integrity.Members == nil {
				integrity.Members = map[string]schema.MemberBytes{}
			}
			integrity.Members[p] = m.state()
		}
		sources = append(sources, source{path: p, size: m.ledger.size, held: m.file, wrote: m.ledger})
	}
	for p, d := range s.documents {
		src := source{path: p, size: d.ledger.size, data: d.data, held: d.file}
		if d.data == nil {
			src.wrote = d.ledger
		}
		if d.data == nil && d.file == nil {
			src.file = layerFile(s.dir, p)
		}
		sources = append(sources, src)
	}
	doc, err := schema.Document(integrity)
	if err != nil {
		return nil, err
	}
	return append(sources, source{path: schema.IntegrityPath, size: int64(len(doc)), data: doc}), nil
}

// strange finds what became of the spool while the run lived: files that are gone
// or are others, and files that the recorder did not make.
func (s *Spool) strange() (found []Tampered) {
	if !isThere(s.dir) {
		return []Tampered{{What: "was deleted; the bundle has what the recorder still held"}}
	}
	s.foundMu.Lock()
	found = slices.Clone(s.found)
	s.foundMu.Unlock()
	ours := map[string]*os.File{}
	for p, l := range s.layers {
		if l.file != nil {
			ours[p] = l.file
		}
	}
	for p, m := range s.members {
		ours[p] = m.file
	}
	for p, f := range ours {
		if !sameFile(f, layerFile(s.dir, p)) {
			found = append(found, Tampered{p, "was deleted or replaced; the bundle has what the recorder wrote"})
		}
	}
	filepath.WalkDir(s.dir, func(name string, d os.DirEntry, err error) error {
		rel, rerr := filepath.Rel(s.dir, name)
		path := filepath.ToSlash(rel)
		if err != nil || rerr != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") || path == schema.RunPath {
			return nil
		}
		if d := s.documents[path]; ours[path] == nil && (d == nil || !d.named) {
			found = append(found, notMade(path))
		}
		return nil
	})
	slices.SortFunc(found, func(a, b Tampered) int { return strings.Compare(a.String(), b.String()) })
	return bounded(found)
}

func notMade(path string) Tampered {
	return Tampered{What: fmt.Sprintf("has a file %.100q that the recorder did not make; it is not in the bundle", path)}
}

func bounded(found []Tampered) []Tampered {
	if more := len(found) - maxTampered; more > 0 {
		found = append(found[:maxTampered], Tampered{What: fmt.Sprintf("has %d more files that the recorder did not make", more)})
	}
	return found
}

// maxTampered bounds how much of what was found is listed.
const maxTampered = 32

// spoolSources lists the members in a spool: every regular file with a
// member's path, except run.json, and the documents in its journal. sizes says how much of a layer to take.
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
		if !d.Type().IsRegular() || !safePath(path) || path == schema.RunPath || path == schema.ManifestPath || path == schema.IntegrityPath {
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
	for path, data := range readJournal(dir) {
		sources = append(sources, source{path: path, size: int64(len(data)), data: data})
	}
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
