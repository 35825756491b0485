package archive

import (
	"context"
	"errors"
	"slices"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// sealing makes a bundle of the members of a spool.
type sealing struct {
	run       schema.Run
	folder    *folder
	redactor  *redact.Redactor  // nil if nothing is secret
	found     func() []Tampered // looks for what others have changed in the folder
	scratch   *scratch          // members that removeSecrets cleaned
	projected *scratch          // members in the format of an earlier version
}

func newSealing(run schema.Run, folder *folder, redactor *redact.Redactor, found func() []Tampered) *sealing {
	return &sealing{run: run, folder: folder, redactor: redactor, found: found}
}

// close frees the scratch files.
func (s *sealing) close() {
	for _, f := range []*scratch{s.scratch, s.projected} {
		if f != nil {
			f.Close()
		}
	}
}

// removeSecrets is the last search before sealing. It returns the members to seal, what was removed from them (nil for
// nothing), and which of them somebody had changed.
func (s *sealing) removeSecrets(ctx context.Context, sources []source) ([]source, *schema.Removal, []Tampered, error) {
	found := false
	for _, src := range sources {
		held, err := holds(ctx, s.redactor, src)
		if err != nil {
			return nil, nil, nil, err
		}
		found = found || held
	}
	if !found {
		return sources, nil, nil, nil
	}
	out, err := s.folder.newScratch()
	if err != nil {
		return nil, nil, nil, err
	}
	s.scratch = out
	c := newCleaner(ctx, s.redactor, out, s.run.RunID)
	clean, removal, err := c.clean(sources)
	if err != nil || removal.RedactedCount == 0 && len(removal.Dropped) == 0 {
		return sources, nil, nil, err // what was found are words of the format itself
	}
	err = c.tell(clean, removal, func(receipt *schema.Redaction) {
		receipt.RedactedCount, receipt.ByRule, receipt.ByField = s.redactor.Counts()
	})
	return clean, &removal, c.tampered, err
}

// write seals the members. found are changes that are already known. It looks for others while it packs the members, so
// that nothing can change in between. If it finds any, it adds them to the documents and packs the members again.
func (s *sealing) write(ctx context.Context, out *Output, sources []source, found []Tampered) (Sealed, error) {
	const tries = 5 // if somebody changes members all the time
	found = append(found, s.found()...)
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

// project returns the members in the format that the run asked for. changed are members that it found to be changed by
// somebody.
func (s *sealing) project(ctx context.Context, sources []source) (members []source, changed []Tampered, notes []string,
	err error) {
	if s.run.Compat != CompatV0 {
		return sources, nil, nil, nil
	}
	if s.projected != nil {
		s.projected.Close()
	}
	if s.projected, err = s.folder.newScratch(); err != nil {
		return nil, nil, nil, err
	}
	v0, err := projectV0(ctx, sources, s.projected)
	if err != nil {
		return nil, nil, nil, err
	}
	return v0.members, v0.tampered, v0.notes, nil
}
