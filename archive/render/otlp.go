package render

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/v1"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// otlp writes OTLP traces as JSON, one TracesData on a line. The collector's file receiver and its HTTP endpoint accept
// that. The run is the root span. Its children are the processes, and the tool calls and requests to models with the
// names of the semantic conventions for generative AI.
func otlp(ctx context.Context, w io.Writer, version string, b *view.Bundle) ([]string, error) {
	t, err := readTrace(ctx, b)
	if err != nil {
		return nil, err
	}
	left := t.left()
	traceID, err := hex.DecodeString(strings.TrimPrefix(b.Identity(), "sha256:")[:32])
	if err != nil {
		return nil, err
	}
	o := &otlpTrace{trace: t, id: traceID}
	o.run()
	o.calls()
	o.models()
	o.processes()
	o.attach()
	data := &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resourcepb.Resource{Attributes: append([]*commonpb.KeyValue{
			textValue("service.name", "assay-run"), textValue("assay.run.id", b.RunID()),
			textValue("assay.bundle.identity", b.Identity()),
			textValues("assay.not_exported", left),
		}, labels(b.Docs.Labels())...)},
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &commonpb.InstrumentationScope{Name: "assay-run", Version: version},
			Spans: o.spans}},
		SchemaUrl: "https://opentelemetry.io/schemas/1.37.0",
	}}}
	doc, err := protojson.Marshal(data)
	if err != nil {
		return nil, err
	}
	// OTLP's JSON has ids in hexadecimal, protobuf's JSON in base64
	// (opentelemetry.io/docs/specs/otlp: JSON Protobuf Encoding).
	doc, err = hexIDs(doc)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(append(doc, '\n'))
	return left, err
}

type otlpTrace struct {
	*trace
	id    []byte
	spans []*tracepb.Span
	procs []*tracepb.Span          // by the process's index
	tools map[string]*tracepb.Span // by the call's id
}

func (o *otlpTrace) span(kind string, key any, parent []byte, name string, from, to int64,
	attributes ...*commonpb.KeyValue) *tracepb.Span {
	s := &tracepb.Span{
		TraceId: o.id, SpanId: binary.BigEndian.AppendUint64(nil, o.trace.id(kind, key)), ParentSpanId: parent,
		Name: validUTF8(name),
		Kind: tracepb.Span_SPAN_KIND_INTERNAL, StartTimeUnixNano: o.at(from), EndTimeUnixNano: o.at(max(from, to)),
		Attributes: attributes,
	}
	o.spans = append(o.spans, s)
	return s
}

func failed(s *tracepb.Span, kind, message string) {
	s.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: validUTF8(message)}
	s.Attributes = append(s.Attributes, textValue("error.type", kind))
}

func (o *otlpTrace) run() {
	d := o.Docs
	name := "run"
	if len(d.Run.Command) > 0 {
		name += " " + path.Base(d.Run.Command[0])
	}
	s := o.span("run", 0, nil, name, 0, o.end, textValues("process.command_args", d.Run.Command),
		textValue("process.working_directory", d.Run.Workdir),
		textValue("assay.outcome", d.Result.Outcome),
		textValue("assay.sandbox", d.Run.Applied.Sandbox()),
		textValue("assay.health.kernel", schema.KernelState(d.Health.KernelLayer)),
		textValue("assay.correlation", d.Correlation.Status))
	if c := d.Result.ExitCode; c != nil {
		s.Attributes = append(s.Attributes, number("process.exit.code", int64(*c)))
	}
	if d.Result.Outcome != schema.OutcomeExited || d.Result.ExitCode == nil || *d.Result.ExitCode != 0 {
		failed(s, d.Result.Outcome, "the run did not end with 0")
	}
}

func (o *otlpTrace) calls() {
	o.tools = map[string]*tracepb.Span{}
	for i := range o.Docs.Correlation.Bindings {
		c := &o.Docs.Correlation.Bindings[i]
		from, to := int64(0), o.end
		if c.TStartNS != nil {
			from = *c.TStartNS
		}
		if c.TEndNS != nil {
			to = *c.TEndNS
		}
		s := o.span("call", c.ToolCallID, o.spans[0].SpanId, strings.TrimSpace("execute_tool "+c.Tool), from, to,
			textValue("gen_ai.operation.name", "execute_tool"), textValue("gen_ai.tool.name", c.Tool),
			textValue("gen_ai.tool.call.id", c.ToolCallID),
			number("assay.kernel_events", int64(c.KernelEventCount)), textValue("assay.bound_by", c.Method),
			textValues("assay.written", c.Written), textValues("assay.hosts", c.Hosts))
		if c.ModelSeq != nil {
			s.Attributes = append(s.Attributes, number("assay.model_seq", int64(*c.ModelSeq)))
		}
		if c.PolicyDecision != "" {
			s.Attributes = append(s.Attributes, textValue("assay.policy_decision", c.PolicyDecision))
			if c.PolicyDecision == "deny" {
				failed(s, "policy_denied", "policy denied the call")
			}
		}
		o.tools[c.ToolCallID] = s
	}
}

// generating maps APIs to the operation names of the semantic conventions for generative AI.
var generating = map[string]string{"messages": "chat", "chat_completions": "chat", "responses": "chat",
	"generate_content": "generate_content", "embed_content": "embeddings"}

// providers are the conventions' provider names, by route, if they differ from the route's name.
var providers = map[string]string{"gemini": "gcp.gemini"}

// models adds a span for each request that a model answered.
func (o *otlpTrace) models() {
	for i := range o.trace.models {
		e := &o.trace.models[i]
		operation := generating[*e.API]
		if operation == "" {
			continue
		}
		model := ""
		if e.RequestModel != nil {
			model = *e.RequestModel
		}
		s := o.span("model", e.Seq, o.spans[0].SpanId, strings.TrimSpace(operation+" "+model), e.TNS, e.Timings.EndNS,
			textValue("gen_ai.operation.name", operation), number("assay.model_seq", int64(e.Seq)))
		s.Kind = tracepb.Span_SPAN_KIND_CLIENT
		for _, a := range []struct {
			key   string
			value *string
		}{
			{"gen_ai.request.model", e.RequestModel}, {"gen_ai.response.model", e.ResponseModel},
			{"gen_ai.response.id", e.ResponseID},
		} {
			if a.value != nil {
				s.Attributes = append(s.Attributes, textValue(a.key, *a.value))
			}
		}
		if e.Route != nil {
			s.Attributes = append(s.Attributes,
				textValue("gen_ai.provider.name", cmp.Or(providers[*e.Route], *e.Route)))
		}
		if len(e.FinishReasons) > 0 {
			s.Attributes = append(s.Attributes, textValues("gen_ai.response.finish_reasons", e.FinishReasons))
		}
		for _, a := range []struct {
			key   string
			value *int64
		}{
			{"gen_ai.usage.input_tokens", e.Usage.InputTokens}, {"gen_ai.usage.output_tokens", e.Usage.OutputTokens},
			{"gen_ai.usage.cache_read.input_tokens", e.Usage.CacheReadInputTokens},
			{"gen_ai.usage.cache_creation.input_tokens", e.Usage.CacheCreationInputTokens},
		} {
			if a.value != nil {
				s.Attributes = append(s.Attributes, number(a.key, *a.value))
			}
		}
		switch {
		case e.ErrorType != nil:
			failed(s, *e.ErrorType, "the request failed")
		case e.Status != nil && *e.Status >= 400:
			failed(s, strconv.Itoa(*e.Status), "the request failed")
		}
	}
}

func (o *otlpTrace) processes() {
	for i := range o.table.All {
		p := &o.table.All[i]
		parent := o.spans[0].SpanId
		if p.Parent >= 0 {
			parent = o.procs[p.Parent].SpanId
		}
		s := o.span("process", i, parent, path.Base(p.Exe), p.StartNS, o.ended(p), number("process.pid", int64(p.PID)),
			number("process.parent_pid", int64(p.PPID)),
			textValue("process.executable.path", p.Exe), textValue("process.executable.name", path.Base(p.Exe)),
			textValues("process.command_args", p.Argv), textValue("process.working_directory", p.Cwd))
		switch {
		case p.Signal != "":
			failed(s, p.Signal, "killed by "+p.Signal)
		case p.ExitCode >= 0:
			s.Attributes = append(s.Attributes, number("process.exit.code", int64(p.ExitCode)))
		}
		o.procs = append(o.procs, s)
	}
}

// attach adds the events to the spans of their processes.
func (o *otlpTrace) attach() {
	for _, e := range o.events {
		s := o.spans[0]
		if e.process >= 0 {
			s = o.procs[e.process]
		}
		attributes := []*commonpb.KeyValue{textValue("assay.value", e.value)}
		if len(e.names) > 0 {
			attributes = append(attributes, textValue("server.address", e.names[0]))
		}
		value, _, _ := strings.Cut(e.value, " ")
		if ap, err := netip.ParseAddrPort(value); err == nil {
			attributes = append(attributes, textValue("network.peer.address", ap.Addr().String()),
				number("network.peer.port", int64(ap.Port())))
		}
		if e.call != "" {
			attributes = append(attributes, textValue("gen_ai.tool.call.id", e.call))
		}
		if e.denied {
			attributes = append(attributes, textValue("error.type", "denied"))
		}
		s.Events = append(s.Events,
			&tracepb.Span_Event{TimeUnixNano: o.at(e.tns), Name: "assay." + e.kind, Attributes: attributes})
	}
}

func textValue(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key,
		Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: validUTF8(value)}}}
}

func number(key string, value int64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: value}}}
}

func textValues(key string, values []string) *commonpb.KeyValue {
	list := &commonpb.ArrayValue{}
	for _, v := range values {
		list.Values = append(list.Values,
			&commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: validUTF8(v)}})
	}
	return &commonpb.KeyValue{Key: key,
		Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: list}}}
}

// validUTF8 replaces invalid UTF-8, which protobuf does not allow.
func validUTF8(s string) string { return schema.Readable(s) }

// hexIDs converts the ids in protobuf JSON to hexadecimal.
func hexIDs(doc []byte) ([]byte, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if s, ok := x.(string); ok && (k == "traceId" || k == "spanId" || k == "parentSpanId") {
					if raw, err := base64.StdEncoding.DecodeString(s); err == nil {
						v[k] = hex.EncodeToString(raw)
					}
					continue
				}
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(v)
	return json.Marshal(v)
}

func labels(m map[string]string) []*commonpb.KeyValue {
	var all []*commonpb.KeyValue
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, textValue("assay.label."+k, m[k]))
	}
	return all
}
