package view

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/assay-run/assay-run/schema"
	"github.com/go-json-experiment/json"
)

// Layers is what events are read from; *archive.Reader is one.
type Layers interface {
	// Lines iterates over a layer's lines, each valid until the next.
	Lines(ctx context.Context, layer string) iter.Seq2[[]byte, error]
}

// Event is one line of a bundle that matched. It and all it refers to are
// valid until the next one.
type Event struct {
	// Layer is the layer's name: kernel, lifecycle, ...
	Layer string
	// Line is the exact line of the bundle, without its newline.
	Line []byte
	// Kernel is the decoded line of the kernel layer, nil in all others.
	Kernel *schema.KernelEvent
	// Kind, TNS and ToolCall are the line's in any layer; TNS is 0 where the
	// layer has none.
	Kind     string
	TNS      int64
	ToolCall string
}

// Events iterates over the events of a bundle that f wants, layer by layer in
// the bundle's order and in the order of their lines. An error, of the filter
// (ErrFilter), of the bundle or of a line that isn't valid, is the last thing
// that comes.
func Events(ctx context.Context, b Layers, f Filter) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		m, err := f.compile()
		if err != nil {
			yield(nil, err)
			return
		}
		for _, path := range schema.Layers {
			name := schema.LayerName(path)
			if !slices.Contains(m.Layers, name) || m.kernel && path != schema.KernelPath {
				continue
			}
			ev := Event{Layer: name}
			if path == schema.KernelPath {
				ev.Kernel = new(schema.KernelEvent)
			}
			n := 0
			for line, err := range b.Lines(ctx, path) {
				n++
				if err != nil {
					yield(nil, err)
					return
				}
				ok, err := m.line(line, &ev)
				if err != nil {
					yield(nil, fmt.Errorf("%s: line %d: %w", path, n, err))
					return
				}
				if ok && !yield(&ev, nil) {
					return
				}
			}
		}
	}
}

// line reads a line into ev and reports whether it is wanted.
func (m *matcher) line(line []byte, ev *Event) (bool, error) {
	ev.Line = line
	if k := ev.Kernel; k != nil {
		if err := schema.DecodeKernelEvent(line, k); err != nil {
			return false, err
		}
		ev.Kind, ev.TNS, ev.ToolCall = "", k.TNS, k.ToolCallID
		if !m.kernelEvent(k) {
			return false, nil
		}
		ev.Kind = k.Kind.String()
		return true, nil
	}
	var head struct {
		Type       string `json:"type"`
		EventType  string `json:"event_type"`
		Decision   string `json:"decision"`
		Tool       string `json:"tool"`
		ToolID     string `json:"tool_id"`
		TNS        int64  `json:"t_ns"`
		TStartNS   int64  `json:"t_start_ns"`
		ToolCallID string `json:"tool_call_id"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return false, err
	}
	ev.TNS, ev.ToolCall = max(head.TNS, head.TStartNS), head.ToolCallID
	ev.Kind = head.Type
	for _, k := range []string{head.EventType, head.Decision, head.Tool, head.ToolID} {
		if ev.Kind == "" {
			ev.Kind = k
		}
	}
	return (m.names == nil || m.names[ev.Kind]) && (m.ToolCall == "" || ev.ToolCall == m.ToolCall) &&
		ev.TNS >= int64(m.Since) && (m.Until == 0 || ev.TNS <= int64(m.Until)), nil
}
