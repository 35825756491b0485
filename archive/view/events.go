package view

import (
	"context"
	"iter"
	"slices"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// Items is the part of *archive.Reader that yields events.
type Items interface {
	// Items iterates over the items of the members at paths. Each item is valid until the next.
	Items(ctx context.Context, paths ...string) iter.Seq2[*archive.Item, error]
}

// Event is one line of a bundle that matched a filter. It and all it refers to are
// valid until the next one.
type Event struct {
	// Layer is the layer's name: kernel, lifecycle, ...
	Layer string
	// Line is the exact line of the bundle, without its newline.
	Line []byte
	// Kernel is the decoded line of the kernel layer, nil in all others.
	Kernel *schema.KernelEvent
	// Kind, TNS and ToolCall come from the line, whatever its layer. TNS is 0 if the layer has no times.
	Kind     string
	TNS      int64
	ToolCall string
}

// Events iterates over the events of a bundle that f matches, layer by layer and in the order of their lines. It ends
// after the first error, of the filter, of the bundle or of an invalid line.
func Events(ctx context.Context, b Items, f Filter) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		m, err := f.compile()
		if err != nil {
			yield(nil, err)
			return
		}
		for _, path := range schema.AllLayers {
			name := schema.LayerName(path)
			if !slices.Contains(m.Layers, name) || m.kernel && path != schema.KernelPath {
				continue
			}
			var ev Event
			for it, err := range b.Items(ctx, path) {
				if err != nil {
					yield(nil, err)
					return
				}
				if ev = event(name, it); m.wants(&ev) && !yield(&ev, nil) {
					return
				}
			}
		}
	}
}

func event(layer string, it *archive.Item) Event {
	ev := Event{Layer: layer, Line: it.Line, Kernel: it.Kernel}
	switch {
	case it.Kernel != nil:
		ev.Kind, ev.TNS, ev.ToolCall = it.Kernel.Kind.String(), it.Kernel.TNS, it.Kernel.ToolCallID
	case it.Event != nil:
		ev.Kind, ev.TNS = it.Event.Type, it.Event.TNS
	case it.Policy != nil:
		ev.Kind, ev.TNS, ev.ToolCall = it.Policy.Decision, it.Policy.TNS, it.Policy.ToolCallID
	case it.SDK != nil:
		ev.Kind, ev.TNS, ev.ToolCall = it.SDK.EventType, it.SDK.TNS, it.SDK.ToolCallID
	case it.Turn != nil:
		ev.Kind, ev.TNS, ev.ToolCall = it.Turn.Tool, it.Turn.TStartNS, it.Turn.ToolCallID
	case it.Call != nil:
		ev.Kind, ev.ToolCall = it.Call.ToolID, it.Call.ToolCallID
	case it.Model != nil:
		ev.TNS = it.Model.TNS
		if it.Model.API != nil {
			ev.Kind = *it.Model.API
		}
	}
	return ev
}
