package evaluation

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
)

// Judge judges a bundle by an evaluation file. If [Follow] has already done so, it returns those verdicts. The error
// comes from reading the bundle.
func Judge(ctx context.Context, b *view.Bundle, def *schema.EvaluationDefinition) ([]schema.EvaluationVerdict, error) {
	place := agents.Place{Workdir: b.Docs.Run.Workdir, Homes: b.Docs.Run.Homes}
	if f, ok := b.Followed.(*follower); ok && f.same(def, place) {
		return f.found, nil
	}
	var start *schema.EvaluationStart
	var sessions []schema.EvaluationSession
	if e := b.Docs.Evaluation; e != nil {
		start, sessions = e.Start, e.Sessions
	} else if c := b.Docs.Contract; c != nil {
		start = &schema.EvaluationStart{Protected: c.Contract.Absolute(place.Workdir)}
	}
	j := newJudge(def, place, start, sessions)
	decoded := func() func(*archive.Item) (none struct{}, err error) {
		return func(*archive.Item) (none struct{}, err error) { return none, nil }
	}
	for it, err := range archive.Scan(ctx, b.Reader, schema.KernelPath, decoded) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		j.event(it.Kernel)
	}
	for it, err := range b.Items(ctx, schema.EventsPath) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		j.lifecycle(it.Event)
	}
	return j.verdicts(b), nil
}

// Follow judges a bundle while it is verified, so that [Judge] need not read it again. It is for [view.Options].
// If file is nil, the bundle's own evaluation file counts.
func Follow(file *schema.EvaluationDefinition) func(*schema.Evaluation) view.Follower {
	return func(e *schema.Evaluation) view.Follower {
		f := &follower{def: e.Evaluation, place: agents.Place{Workdir: e.Workdir, Homes: e.Homes}}
		if file != nil {
			f.def = *file
		}
		f.judge = newJudge(&f.def, f.place, e.Start, e.Sessions)
		return f
	}
}

// follower judges a bundle while it is verified.
type follower struct {
	def   schema.EvaluationDefinition
	place agents.Place
	judge *judge // nil at the end
	found []schema.EvaluationVerdict
}

func (f *follower) Item(it *archive.Item) {
	if it.Kernel != nil {
		f.judge.event(it.Kernel)
	} else {
		f.judge.lifecycle(it.Event)
	}
}

func (f *follower) End(b *view.Bundle) {
	f.found, f.judge = f.judge.verdicts(b), nil
}

// same reports whether the follower judged by this definition and place. Both come from run.json, which follows the
// layers in the bundle.
func (f *follower) same(def *schema.EvaluationDefinition, place agents.Place) bool {
	return reflect.DeepEqual(f.def, *def) && f.place.Workdir == place.Workdir && maps.Equal(f.place.Homes, place.Homes)
}
