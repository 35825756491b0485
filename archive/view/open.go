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
	// Name is what the user called it; "-" is standard input.
	Name string
	Docs *archive.Documents
	// Report is what verification found.
	Report *archive.Report
	// Followed is what Options.Follow made of the layers; nil if the bundle does not verify or was not followed.
	Followed Follower
}

// Follower reads the layers of a bundle along with its verification.
type Follower interface {
	// Item gets each line of the lifecycle and of the kernel layer, in their order. It is valid until Item returns.
	Item(*archive.Item)
	// End is called once, if the bundle verifies.
	End(*Bundle)
}

// Verified reports whether the bundle is whole and valid.
func (b *Bundle) Verified() bool { return b.Report.OK() }

// ErrUnverified is wrapped by the error of [Open] for a bundle that does not
// verify when only those that do are wanted.
var ErrUnverified = errors.New("the bundle does not verify")

// UnverifiedHint is what to do about ErrUnverified.
const UnverifiedHint = "assay-run verify lists what is wrong with it; --unverified reads it anyway"

// ExitBundle is the exit status of every reader for a bundle that does not verify or cannot
// be read.
const ExitBundle = 4

// ErrUnreadable is wrapped by the error of [Open] for a bundle that cannot be
// read at all.
var ErrUnreadable = errors.New("the bundle cannot be read")

// Options say how bundles are opened. The zero value takes only bundles that
// verify, and none from standard input.
type Options struct {
	// Unverified also takes bundles that do not verify, as far as they can be
	// read.
	Unverified bool
	// Without names documents by their paths that are left empty: the surface of a
	// large run takes 64 MiB and half a second.
	Without []string
	// Stdin is what the name "-" reads; nil refuses it.
	Stdin io.Reader
	// Follow makes what reads the layers of a bundle with this evaluation.json while they are verified; nil for nobody.
	Follow func(*schema.Evaluation) Follower
	// Stage is called before bundle i of n is verified; nil for nobody.
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

// Close removes what NewOpener made. The bundles cannot be read any more.
func (o *Opener) Close() error { return o.inputs.Close() }

// Open verifies and opens bundle i. The error names the bundle and wraps ErrUnverified or
// ErrUnreadable.
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

// Open verifies and opens bundles. The error names the bundle and wraps
// ErrUnverified or ErrUnreadable; nothing is left open then.
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
		return nil, fmt.Errorf("%s: %w: %w", in.Name, ErrUnreadable, &report.Problems[0])
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
		return nil, fmt.Errorf("%s: %w: %w", in.Name, ErrUnreadable, err)
	}
	b := &Bundle{Name: in.Name, Reader: r, Docs: docs, Report: report}
	if follower != nil && report.OK() {
		follower.End(b)
		b.Followed = follower
	}
	return b, nil
}
