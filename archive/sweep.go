package archive

import (
	"context"
	"path/filepath"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// Redact has Seal look for the secrets that r knows in all that it is about to seal:
// one may have become known when it was on disk already. What Seal finds is taken out,
// and the receipt tells; a member that it cannot be taken out of is dropped. Nil looks
// for nothing. It is called before Seal.
func (s *Spool) Redact(r *redact.Redactor) { s.redactor = r }

// sweep is the last search before sealing. It returns the members to seal, what was
// taken out of them, nil for nothing, and which of them somebody had changed.
func (s *Spool) sweep(ctx context.Context, sources []source) ([]source, *schema.Removal, []Tampered, error) {
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
	dir := s.dir
	if !isThere(dir) {
		dir = "" // somebody deleted it: os.TempDir
	}
	out, err := newScratch(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	s.scratch = out
	c := newCleaner(ctx, s.redactor, out, s.run.RunID)
	clean, removal, err := c.clean(sources)
	if err != nil || removal.RedactedCount == 0 && len(removal.Dropped) == 0 {
		return sources, nil, nil, err // words of the format itself
	}
	err = c.tell(clean, removal, func(receipt *schema.Redaction) {
		receipt.RedactedCount, receipt.ByRule, receipt.ByField = s.redactor.Counts()
	})
	return clean, &removal, c.tampered, err
}

// recoveredReceipt is what is known of the redaction of a run whose recorder ended
// before it wrote its own receipt.
func recoveredReceipt(run schema.Run) *schema.Redaction {
	receipt := &schema.Redaction{Mode: schema.RedactionRecovered, ByRule: map[string]uint64{}, ByField: map[string]uint64{}}
	if run.Redaction == schema.RedactionDisabled {
		receipt.Mode = schema.RedactionDisabled
		return receipt
	}
	receipt.NotSearched = append(redact.NotSearched(), "the values of known secrets: recover does not know them, and finds only credentials by their format and passwords in arguments and URLs")
	return receipt
}

// sweepRecovered takes out of a recovered run what has the shape of a credential,
// unless it was recorded with redaction disabled. out is nil where nothing was. It is
// beside the output: the spool's disk may be full.
func sweepRecovered(ctx context.Context, run schema.Run, sources []source) (_ []source, removal *schema.Removal, out *scratch, err error) {
	if run.Redaction == schema.RedactionDisabled {
		return sources, nil, nil, nil
	}
	r, err := redact.NewEphemeral()
	if err != nil {
		return nil, nil, nil, err
	}
	r.Keep(run.RunID)
	if out, err = newScratch(filepath.Dir(run.Output)); err != nil {
		return nil, nil, nil, err
	}
	c := newCleaner(ctx, r, out, run.RunID)
	clean, taken, err := c.clean(sources)
	if err != nil || taken.RedactedCount == 0 && len(taken.Dropped) == 0 {
		out.Close()
		return sources, nil, nil, err
	}
	return clean, &taken, out, c.tell(clean, taken, func(*schema.Redaction) {})
}
