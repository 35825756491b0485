package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/assay-run/assay-run/schema"
)

// ErrNotVerified is wrapped by the errors of [Redact] and [Judge] for a bundle that does not verify.
var ErrNotVerified = errors.New("the bundle does not verify")

// unpacked is a bundle from which another one is made.
type unpacked struct {
	runID, identity string
	sources         []source
	room            *scratch // holds the sources, and new ones
}

// rewrite verifies a bundle, and seals the members that change returns to output. replace allows a file there. On an
// error nothing is left at the output.
func rewrite(ctx context.Context, bundle, output string, replace bool, change func(*unpacked) ([]source, error),
) (Sealed, error) {
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
	out, err := OpenOutput(output, replace)
	if err != nil {
		return Sealed{}, err
	}
	defer out.Close()
	room, err := newScratch(filepath.Dir(output))
	if err != nil {
		return Sealed{}, err
	}
	defer room.Close()
	old := &unpacked{runID: report.RunID, identity: report.Identity, room: room}
	if old.sources, err = unpack(ctx, bundle, report.Identity, room); err != nil {
		return Sealed{}, err
	}
	members, err := change(old)
	if err != nil {
		return Sealed{}, err
	}
	return writeBundle(ctx, schema.Run{RunID: report.RunID, Output: output}, out, members, nil)
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
