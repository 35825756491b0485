package render

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/assay-run/assay-run/archive/view"
)

// Field numbers of Perfetto's trace format (google/perfetto,
// protos/perfetto/trace: trace.proto, trace_packet.proto and track_event/).
const (
	tracePacket = 1 // Trace

	packetTimestamp  = 8 // TracePacket
	packetSequence   = 10
	packetTrackEvent = 11
	packetFlags      = 13
	packetDescriptor = 60

	trackUUID    = 1 // TrackDescriptor
	trackName    = 2
	trackProcess = 3
	trackParent  = 5

	processPID     = 1 // ProcessDescriptor
	processCmdline = 2
	processName    = 6

	eventAnnotation = 4 // TrackEvent
	eventType       = 9
	eventTrack      = 11
	eventCategory   = 22
	eventName       = 23

	annotationString = 6 // DebugAnnotation
	annotationName   = 10
)

// Types of a TrackEvent.
const (
	sliceBegin = 1
	sliceEnd   = 2
	instant    = 3
)

// The trace has one packet sequence, whose first packet clears the reader's state.
const (
	writerSequence = 1
	stateIsCleared = 1
)

// perfetto writes a trace for ui.perfetto.dev and trace_processor: a track for each process with its lifetime and
// events, and tracks for the tool calls. Times are nanoseconds since the start of the run.
func perfetto(ctx context.Context, w io.Writer, _ string, b *view.Bundle) ([]string, error) {
	t, err := readTrace(ctx, b)
	if err != nil {
		return nil, err
	}
	p := &perfettoTrace{trace: t, out: bufio.NewWriterSize(w, 256<<10)}
	p.tracks()
	p.slices()
	if err := p.out.Flush(); err != nil {
		return nil, err
	}
	return append(t.left(), "the wall clock: times count from the start of the run, "+b.Docs.Run.StartedAt), nil
}

type perfettoTrace struct {
	*trace
	out   *bufio.Writer
	begun bool
}

// message is a protobuf message under construction.
type message []byte

func (m *message) number(field protowire.Number, v uint64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), v)
}

func (m *message) text(field protowire.Number, s string) { m.message(field, message(validUTF8(s))) }

func (m *message) message(field protowire.Number, v message) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), v)
}

// packet writes a TracePacket. A write error is returned by out.Flush.
func (p *perfettoTrace) packet(m message) {
	m.number(packetSequence, writerSequence)
	if !p.begun {
		m.number(packetFlags, stateIsCleared)
		p.begun = true
	}
	var whole message
	whole.message(tracePacket, m)
	_, _ = p.out.Write(whole)
}

// tracks describes the tracks: one for all calls with one for each below it, and one for each process.
func (p *perfettoTrace) tracks() {
	track := func(uuid, parent uint64, name string, process message) {
		var d, packet message
		d.number(trackUUID, uuid)
		if parent != 0 {
			d.number(trackParent, parent)
		}
		d.text(trackName, name)
		if process != nil {
			d.message(trackProcess, process)
		}
		packet.message(packetDescriptor, d)
		p.packet(packet)
	}
	if len(p.Docs.Correlation.Bindings) > 0 {
		track(p.id("track", "calls"), 0, "tool calls", nil)
		for i := range p.Docs.Correlation.Bindings {
			track(p.id("call", i), p.id("track", "calls"), p.Docs.Correlation.Bindings[i].Tool, nil)
		}
	}
	for i := range p.table.All {
		x := &p.table.All[i]
		var d message
		d.number(processPID, uint64(x.PID))
		for _, a := range x.Argv {
			d.text(processCmdline, a)
		}
		d.text(processName, path.Base(x.Exe))
		track(p.id("process", i), 0, path.Base(x.Exe), d)
	}
}

// slice is a TrackEvent with its time.
type slice struct {
	tns  int64
	kind uint64
	m    message
}

func (p *perfettoTrace) slices() {
	var all []slice
	add := func(tns int64, kind, track uint64, category, name string, annotations ...[2]string) {
		var m message
		for _, a := range annotations {
			var d message
			d.text(annotationName, a[0])
			d.text(annotationString, a[1])
			m.message(eventAnnotation, d)
		}
		m.number(eventType, kind)
		m.number(eventTrack, track)
		if kind != sliceEnd {
			m.text(eventCategory, category)
			m.text(eventName, name)
		}
		all = append(all, slice{tns, kind, m})
	}
	for i := range p.Docs.Correlation.Bindings {
		c := &p.Docs.Correlation.Bindings[i]
		if c.TStartNS == nil {
			continue
		}
		end := p.end
		if c.TEndNS != nil {
			end = *c.TEndNS
		}
		add(*c.TStartNS, sliceBegin, p.id("call", i), "call", strings.TrimSpace(c.Tool+" "+c.ToolCallID),
			[2]string{"decision", c.PolicyDecision}, [2]string{"bound_by", c.Method})
		add(max(end, *c.TStartNS), sliceEnd, p.id("call", i), "", "")
	}
	for i := range p.table.All {
		x := &p.table.All[i]
		add(x.StartNS, sliceBegin, p.id("process", i), "process", path.Base(x.Exe), [2]string{"exe", x.Exe},
			[2]string{"command", strings.Join(x.Argv, " ")}, [2]string{"signal", x.Signal})
		add(p.ended(x), sliceEnd, p.id("process", i), "", "")
	}
	for _, e := range p.events {
		track := p.id("process", e.process)
		if e.process < 0 {
			continue
		}
		category := "event"
		if e.denied {
			category = "denied"
		}
		add(e.tns, instant, track, category, e.kind, [2]string{"value", e.value}, [2]string{"tool_call_id", e.call})
	}
	slices.SortStableFunc(all, func(a, b slice) int {
		if a.tns != b.tns {
			return cmp.Compare(a.tns, b.tns)
		}
		return int(a.kind%3) - int(b.kind%3) // at the same time: instants, then begins, then ends
	})
	for _, s := range all {
		var m message
		m.number(packetTimestamp, uint64(max(s.tns, 0)))
		m.message(packetTrackEvent, s.m)
		p.packet(m)
	}
}
