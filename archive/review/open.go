package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/assay-run/assay-run/archive"
)

// Bundle is a bundle that was opened for review.
type Bundle struct {
	*archive.Reader
	// Name is what the user called it; "-" is standard input.
	Name string
	Docs *archive.Documents
	// Report is what verification found.
	Report *archive.Report
}

// Verified reports whether the bundle is whole and valid.
func (b *Bundle) Verified() bool { return b.Report.OK() }

// ErrUnverified is wrapped by the error of [Open] for a bundle that does not
// verify when only those that do are wanted.
var ErrUnverified = errors.New("the bundle does not verify")

// ErrUnreadable is wrapped by the error of [Open] for a bundle that cannot be
// read at all.
var ErrUnreadable = errors.New("the bundle cannot be read")

// Options say how bundles are opened. The zero value takes only bundles that
// verify, and none from standard input.
type Options struct {
	// Unverified also takes bundles that do not verify, as far as they can be
	// read.
	Unverified bool
	// Stdin is what the name "-" reads; nil refuses it.
	Stdin io.Reader
	// Stage is called before each bundle is verified; nil for nobody.
	Stage func(done, total int, name string)
}

// Set is the bundles of one review, in the order of their names on the command
// line.
type Set struct {
	Bundles []*Bundle
	temp    string // the copy of standard input
}

// Close removes what Open made.
func (s *Set) Close() error {
	if s.temp == "" {
		return nil
	}
	return os.Remove(s.temp)
}

// Open verifies and opens bundles. The error names the bundle and wraps
// ErrUnverified or ErrUnreadable; nothing is left open then.
func Open(ctx context.Context, names []string, opt Options) (_ *Set, err error) {
	s := &Set{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for i, name := range names {
		if opt.Stage != nil {
			opt.Stage(i, len(names), name)
		}
		path := name
		if name == "-" {
			if path, err = s.spool(opt.Stdin); err != nil {
				return nil, fmt.Errorf("read a bundle from standard input: %w", err)
			}
		}
		b, err := open(ctx, name, path, opt.Unverified)
		if err != nil {
			return nil, err
		}
		s.Bundles = append(s.Bundles, b)
	}
	if opt.Stage != nil {
		opt.Stage(len(names), len(names), "")
	}
	return s, nil
}

func open(ctx context.Context, name, path string, unverified bool) (*Bundle, error) {
	report, err := archive.Verify(ctx, path)
	if err != nil {
		return nil, err
	}
	if report.Class() == archive.Unreadable {
		return nil, fmt.Errorf("%s: %w: %w", name, ErrUnreadable, &report.Problems[0])
	}
	if !report.OK() && !unverified {
		return nil, fmt.Errorf("%s: %w: %w", name, ErrUnverified, &report.Problems[0])
	}
	r, err := archive.Open(path)
	if err == nil && r.Identity() != report.Identity {
		err = errors.New("it was replaced while it was read")
	}
	var docs *archive.Documents
	if err == nil {
		docs, err = r.Documents(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, ErrUnreadable, err)
	}
	return &Bundle{Name: name, Reader: r, Docs: docs, Report: report}, nil
}

// spool copies standard input to a file, since a bundle is read more than once.
func (s *Set) spool(stdin io.Reader) (string, error) {
	if stdin == nil {
		return "", errors.New("it is not read here")
	}
	if s.temp != "" {
		return "", errors.New(`"-" can be given once`)
	}
	f, err := os.CreateTemp("", "assay-review-*")
	if err != nil {
		return "", err
	}
	s.temp = f.Name()
	_, err = io.Copy(f, stdin)
	return s.temp, errors.Join(err, f.Close())
}
