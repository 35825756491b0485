package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// RedactOptions say how [Redact] makes a bundle.
type RedactOptions struct {
	// By names the program, for the receipt.
	By string
	// Rules names the rules that were given, for the receipt.
	Rules []string
	// Replace allows a file at the output's path.
	Replace bool
}

// ErrNotVerified is returned by [Redact], wrapped, for a bundle that does not verify.
var ErrNotVerified = errors.New("the bundle does not verify")

// Redact takes out of a bundle what r finds in it, and writes the rest as a new
// bundle to output. What the members say about each other holds in it as it did; its
// health names the old identity and says what was taken out. The old bundle is not
// changed, and signatures of it are none of the new one. On an error nothing is left
// at the output. r is to keep the run's id (redact.Redactor.Keep).
func Redact(ctx context.Context, bundle, output string, r *redact.Redactor, opt RedactOptions) (_ Sealed, err error) {
	report, err := Verify(ctx, bundle)
	if err != nil {
		return Sealed{}, err
	}
	if !report.OK() {
		return Sealed{}, fmt.Errorf("%s: %w: %w", bundle, ErrNotVerified, &report.Problems[0])
	}
	if output, err = filepath.Abs(output); err != nil {
		return Sealed{}, err
	}
	out, err := OpenOutput(output, opt.Replace)
	if err != nil {
		return Sealed{}, err
	}
	defer out.Close()
	room, err := newScratch(filepath.Dir(output))
	if err != nil {
		return Sealed{}, err
	}
	defer room.Close()
	sources, err := unpack(ctx, bundle, report.Identity, room)
	if err != nil {
		return Sealed{}, err
	}
	c := newCleaner(ctx, r, room, report.RunID)
	if err := c.learn(sources, learnPasses); err != nil {
		return Sealed{}, err
	}
	clean, removal, err := c.clean(sources)
	if err != nil {
		return Sealed{}, fmt.Errorf("%s: %w", bundle, err)
	}
	removal.From, removal.By, removal.Rules = report.Identity, opt.By, opt.Rules
	if err := c.tell(clean, removal, func(*schema.Redaction) {}); err != nil {
		return Sealed{}, err
	}
	run := schema.Run{RunID: report.RunID, Output: output}
	sealed, err := writeBundle(ctx, run, out, clean, nil)
	sealed.Removed = &removal
	return sealed, err
}

// unpack puts the members of a bundle into a scratch file.
func unpack(ctx context.Context, bundle, identity string, room *scratch) (sources []source, err error) {
	in, err := Open(bundle)
	if err != nil {
		return nil, err
	}
	if in.Identity() != identity {
		return nil, fmt.Errorf("%s: the file has changed since it was verified", bundle)
	}
	for m, err := range in.Members(ctx) {
		if err != nil {
			return nil, err
		}
		src, err := room.member(m.Path, func(w io.Writer) error { _, err := io.Copy(w, m); return err })
		if err != nil {
			return nil, err
		}
		sources = append(sources, src)
	}
	return sources, nil
}

// learnPasses bounds how often what was learned shows more.
const learnPasses = 4
