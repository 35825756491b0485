package render

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// Format writes bundles to w. It returns what the format leaves out, one sentence each.
type Format func(ctx context.Context, w io.Writer, version string, bundles []*view.Bundle) (left []string, err error)

// one returns the Format of a document with one bundle.
func one(write func(context.Context, io.Writer, string, *view.Bundle) ([]string, error)) Format {
	return func(ctx context.Context, w io.Writer, version string, bundles []*view.Bundle) ([]string, error) {
		if len(bundles) != 1 {
			return nil, errors.New("the format holds one bundle")
		}
		return write(ctx, w, version, bundles[0])
	}
}

// lines returns the Format of a document with a line for each bundle.
func lines(write func(context.Context, io.Writer, string, *view.Bundle) ([]string, error)) Format {
	return func(ctx context.Context, w io.Writer, version string, bundles []*view.Bundle) (left []string, err error) {
		for _, b := range bundles {
			l, err := write(ctx, w, version, b)
			if err != nil {
				return nil, err
			}
			left = append(left, l...)
		}
		return left, nil
	}
}

// Formats are all formats by name.
var Formats = map[string]Format{"otlp": lines(otlp), "perfetto": one(perfetto), "junit": junit, "ctrf": ctrf,
	"sarif": sarif, "in-toto": one(inToto)}

// Names lists the names of all formats.
func Names() []string { return slices.Sorted(maps.Keys(Formats)) }

// trace is what trace formats hold: the processes, the calls, and the important events.
type trace struct {
	*view.Bundle
	start  time.Time // of the run
	end    int64     // of the run, in nanoseconds since start
	table  *facts.Table
	events []traceEvent
	models []schema.ModelEvent // without bodies

	// Counts of what is left out.
	files        uint64   // events of files
	noise        uint64   // events of other classes than agent
	beyond       uint64   // events beyond maxTraceEvents
	beyondModels uint64   // requests beyond maxTraceModels
	outputs      []string // members with output
}

// traceEvent is an event of a trace.
type traceEvent struct {
	tns     int64
	process int // -1: none
	kind    string
	value   string
	failed  bool
	denied  bool
	names   []string
	call    string
}

// Limits of a trace.
const (
	maxTraceEvents = 200_000
	maxTraceModels = 20_000 // requests to models
)

func readTrace(ctx context.Context, b *view.Bundle) (*trace, error) {
	t := &trace{Bundle: b, table: facts.NewTable()}
	var err error
	if t.start, err = time.Parse(time.RFC3339Nano, b.Docs.Run.StartedAt); err != nil {
		return nil, fmt.Errorf("%s: run.json: started_at: %w", b.Name, err)
	}
	if ns := b.Docs.Result.Timings.ChildNS; ns != nil {
		t.end = *ns
	}
	for it, err := range b.Items(ctx, schema.KernelPath, schema.ModelPath, schema.StdoutPath, schema.StderrPath,
		schema.TerminalPath) {
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		case it.Kernel != nil:
			t.event(it.Kernel)
		case it.Model != nil:
			t.model(it.Model)
		case it.Member.Size > 0:
			t.outputs = append(t.outputs, it.Path)
		}
	}
	return t, nil
}

// model adds a request to a model, without its texts.
func (t *trace) model(e *schema.ModelEvent) {
	t.end = max(t.end, e.Timings.EndNS)
	if e.Refused != nil || e.API == nil {
		return
	}
	if len(t.models) >= maxTraceModels {
		t.beyondModels++
		return
	}
	kept := *e
	kept.Request, kept.Response, kept.ToolCalls, kept.UsageRaw = schema.ModelBody{}, schema.ModelBody{}, nil, nil
	t.models = append(t.models, kept)
}

// event adds an event if it is about the network or privilege, or was denied.
func (t *trace) event(k *schema.KernelEvent) {
	t.table.Add(k)
	t.end = max(t.end, k.TNS)
	denied := k.Blocked() || k.Errno() == "EACCES" || k.Errno() == "EPERM"
	_, network := query.Endpoint(k)
	switch {
	case k.Kind == schema.KindFork, k.Kind == schema.KindExec, k.Kind == schema.KindExit, k.Kind == schema.KindJoin:
		return // in the table
	case k.Class != schema.ClassAgent:
		t.noise += k.Times()
		return
	case denied, network, k.Kind >= schema.KindSetID && k.Kind <= schema.KindCompatSyscall:
	default:
		t.files += k.Times()
		return
	}
	if len(t.events) >= maxTraceEvents {
		t.beyond += k.Times()
		return
	}
	t.events = append(t.events, traceEvent{
		tns: k.TNS, process: t.table.Of(k.ExecID), kind: k.Kind.String(), value: view.Cut(view.What(k), 400),
		failed: k.Failed(), denied: denied,
		names: k.Names, call: k.ToolCallID,
	})
}

// left returns what a trace format leaves out.
func (t *trace) left() []string {
	var left []string
	add := func(n uint64, what string) {
		if n > 0 {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(t.files, "file events (opens, writes, removals)")
	add(t.noise, "events of loaders, locales, runtimes and the runner")
	add(t.beyond, fmt.Sprintf("events beyond the first %d", maxTraceEvents))
	add(t.beyondModels, fmt.Sprintf("requests to models beyond the first %d", maxTraceModels))
	add(t.table.Beyond, fmt.Sprintf("processes beyond the first %d", facts.MaxProcesses))
	for _, m := range t.outputs {
		left = append(left, "the output in "+m)
	}
	return append(left, "the coverage and the account of the kernel layer (observation-health.json)",
		"the digests by which the bundle is verified")
}

// at converts a time of the run to nanoseconds since 1970.
func (t *trace) at(tns int64) uint64 { return uint64(t.start.UnixNano() + tns) }

// ended returns the end of a process; if it was not recorded, the end of the run.
func (t *trace) ended(p *facts.Process) int64 {
	if p.Ended {
		return p.EndNS
	}
	return max(t.end, p.StartNS)
}

// id returns the number of a thing in this bundle. It is the same in each export and never 0.
func (t *trace) id(kind string, key any) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%v", t.Identity(), kind, key))
	return binary.BigEndian.Uint64(sum[:8]) | 1
}
