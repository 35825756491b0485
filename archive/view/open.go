package view

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// Bundle is a bundle that was opened for review.
type Bundle struct {
	*archive.Reader
	// Name is the name that the user gave; "-" is standard input.
	Name string
	Docs *archive.Documents
	// Report is what verification found.
	Report *archive.Report
	// Followed is the follower that Options.Follow made; nil if the bundle does not verify or was not followed.
	Followed Follower
}

// Follower reads the layers of a bundle while it is verified.
type Follower interface {
	// Item gets each line of the lifecycle and the kernel layer, in order. The item is valid until Item returns.
	Item(*archive.Item)
	// End is called once, if the bundle verifies.
	End(*Bundle)
}

// Verified reports whether the bundle is whole and valid.
func (b *Bundle) Verified() bool { return b.Report.OK() }

// ErrUnverified is wrapped by the error of [Open] for a bundle that does not verify, without Options.Unverified.
var ErrUnverified = errors.New("the bundle does not verify")

// UnverifiedHint is what to do about ErrUnverified.
const UnverifiedHint = "assay-run verify lists what is wrong with it; --unverified reads it anyway"

// ExitBundle is the exit status of every reader for a bundle that does not verify or cannot
// be read.
const ExitBundle = 4

var errUnreadable = errors.New("the bundle cannot be read")

// Options say how bundles are opened. With the zero value, only bundles that verify are opened, and none from
// standard input.
type Options struct {
	// Unverified also opens bundles that do not verify, as far as they can be read.
	Unverified bool
	// Without are the paths of documents that are not read. The surface of a large run takes 64 MiB and half a second.
	Without []string
	// Stdin is read for the name "-"; nil refuses that name.
	Stdin io.Reader
	// Follow makes a follower for a bundle with this evaluation.json. It may be nil.
	Follow func(*schema.Evaluation) Follower
	// Stage is called before bundle i of n is verified. It may be nil.
	Stage func(i, n int, name string)
}

// Opener opens the bundles of one review one after another.
type Opener struct {
	// Inputs are the bundles in the order of their names on the command line.
	Inputs []archive.Input

	inputs *archive.Inputs
	opt    Options
}

// NewOpener finds the bundles behind names. Close it.
func NewOpener(ctx context.Context, names []string, opt Options) (*Opener, error) {
	inputs, err := archive.OpenInputs(ctx, names, opt.Stdin)
	if err != nil {
		return nil, err
	}
	return &Opener{Inputs: inputs.All, inputs: inputs, opt: opt}, nil
}

// Close removes temporary files. The bundles cannot be read any more.
func (o *Opener) Close() error { return o.inputs.Close() }

// Open verifies and opens bundle i. The error names the bundle, and wraps ErrUnverified if it does not verify.
func (o *Opener) Open(ctx context.Context, i int) (*Bundle, error) {
	if o.opt.Stage != nil {
		o.opt.Stage(i, len(o.Inputs), o.Inputs[i].Name)
	}
	return open(ctx, o.Inputs[i], o.opt)
}

// Set is the bundles of one review, in the order of their names on the command
// line.
type Set struct {
	Bundles []*Bundle
	*Opener
}

// Open verifies and opens bundles, or none of them: then the error is that of [Opener.Open].
func Open(ctx context.Context, names []string, opt Options) (_ *Set, err error) {
	o, err := NewOpener(ctx, names, opt)
	if err != nil {
		return nil, err
	}
	s := &Set{Opener: o}
	for i := range o.Inputs {
		b, err := o.Open(ctx, i)
		if err != nil {
			o.Close()
			return nil, err
		}
		s.Bundles = append(s.Bundles, b)
	}
	return s, nil
}

func open(ctx context.Context, in archive.Input, opt Options) (*Bundle, error) {
	var follower Follower
	if opt.Follow != nil {
		in.Tap = func(e *schema.Evaluation) func(*archive.Item) {
			follower = opt.Follow(e)
			return follower.Item
		}
	}
	r, report, err := in.Verified(ctx)
	switch {
	case err == nil && r == nil:
		return nil, fmt.Errorf("%s: %w: %w", in.Name, errUnreadable, &report.Problems[0])
	case report != nil && !report.OK() && !opt.Unverified:
		return nil, fmt.Errorf("%s: %w: %w", in.Name, ErrUnverified, &report.Problems[0])
	case err != nil && report == nil:
		return nil, err
	}
	var docs *archive.Documents
	if err == nil {
		docs, err = r.Documents(ctx, opt.Without...)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", in.Name, errUnreadable, err)
	}
	b := &Bundle{Name: in.Name, Reader: r, Docs: docs, Report: report}
	if follower != nil && report.OK() {
		follower.End(b)
		b.Followed = follower
	}
	return b, nil
}
