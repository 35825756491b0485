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
)

// Format writes bundles to w and returns what the format does not hold, one
// sentence each.
type Format func(ctx context.Context, w io.Writer, version string, bundles []*view.Bundle) (left []string, err error)

// ErrOne is the error of a format that holds one bundle, when it is given more.
var ErrOne = errors.New("the format holds one bundle")

// one makes a Format from write, which takes one bundle.
func one(write func(context.Context, io.Writer, string, *view.Bundle) ([]string, error)) Format {
	return func(ctx context.Context, w io.Writer, version string, bundles []*view.Bundle) ([]string, error) {
		if len(bundles) != 1 {
			return nil, ErrOne
		}
		return write(ctx, w, version, bundles[0])
	}
}

// lines makes a Format from write, which writes a line for one bundle.
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

// Formats are the formats there are.
var Formats = map[string]Format{"otlp": lines(otlp), "perfetto": one(perfetto), "junit": junit, "ctrf": ctrf,
	"sarif": sarif, "in-toto": one(inToto)}

// Names lists the formats.
func Names() []string {
	return slices.Sorted(maps.Keys(Formats))
}

// trace is what trace formats are made of: the processes, the calls, and the
// events that matter.
type trace struct {
	*view.Bundle
	start  time.Time // when the run started
	end    int64     // its end, nanoseconds since then
	table  *view.Table
	events []traceEvent
	models []schema.ModelEvent // without bodies
	// files counts the file events, which trace formats leave out, and others
	// what else they leave out.
	files, noise, beyond, beyondModels uint64
	outputs                            []string // members that were not exported
}

// traceEvent is one event that a trace holds.
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

// maxTraceEvents bounds the events of a trace.
const maxTraceEvents = 200_000

// maxTraceModels bounds its requests to models.
const maxTraceModels = 20_000

// readTrace reads a bundle.
func readTrace(ctx context.Context, b *view.Bundle) (*trace, error) {
	t := &trace{Bundle: b, table: view.NewTable()}
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

// event keeps an event when it is one of the network's, of privilege, or a
// denial.
func (t *trace) event(k *schema.KernelEvent) {
	t.table.Add(k)
	t.end = max(t.end, k.TNS)
	denied := k.Blocked() || k.Errno() == "EACCES" || k.Errno() == "EPERM"
	_, network := query.Endpoint(k)
	switch {
	case k.Kind == schema.KindFork, k.Kind == schema.KindExec, k.Kind == schema.KindExit, k.Kind == schema.KindJoin:
		return // the processes have them
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

// left says what a trace format leaves out.
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
	add(t.table.Beyond, fmt.Sprintf("processes beyond the first %d", view.MaxProcesses))
	for _, m := range t.outputs {
		left = append(left, "the output in "+m)
	}
	return append(left, "the coverage and the account of the kernel layer (observation-health.json)",
		"the digests by which the bundle is verified")
}

// at is a time of the run in nanoseconds since 1970.
func (t *trace) at(tns int64) uint64 { return uint64(t.start.UnixNano() + tns) }

// ended is the end of a process: the run's when it was not seen.
func (t *trace) ended(p *view.Process) int64 {
	if p.Ended {
		return p.EndNS
	}
	return max(t.end, p.StartNS)
}

// id is a number for a thing of this bundle, the same each time and never 0.
func (t *trace) id(kind string, key any) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%v", t.Identity(), kind, key))
	return binary.BigEndian.Uint64(sum[:8]) | 1
}
