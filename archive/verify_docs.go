package archive

import (
	"errors"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// facts are the documents of a bundle; those that are missing or invalid are
// nil, and the rules about them have been reported already.
type facts struct {
	run         *schema.Run
	result      *schema.Result
	health      *schema.ObservationHealth
	correlation *schema.CorrelationReport
}

// documentsAgree checks what the artifacts say about each other.
func (v *verifier) documentsAgree() {
	f := facts{
		run:         decodeDocument[schema.Run](v, schema.RunPath),
		result:      decodeDocument[schema.Result](v, schema.ResultPath),
		health:      decodeDocument[schema.ObservationHealth](v, schema.HealthPath),
		correlation: decodeDocument[schema.CorrelationReport](v, schema.CorrelationPath),
	}
	for _, path := range []string{schema.PolicyFilePath, schema.SessionPath} {
		decodeDocument[struct{}](v, path)
	}
	if f.run != nil {
		v.command(f.run)
	}
	if f.health != nil {
		v.health(f)
		v.counts(f.health)
	}
	if doc := decodeDocument[schema.Integrity](v, schema.IntegrityPath); doc != nil {
		v.integrity(doc)
	}
	v.lifecycle(f)
	if f.result != nil {
		v.report.Complete = f.result.Outcome != schema.OutcomeIncomplete
		v.result(f.result)
	}
	v.contract(decodeDocument[schema.Contract](v, schema.ContractPath), f.result)
}

// command checks that command_raw says what command does.
func (v *verifier) command(r *schema.Run) {
	for i, raw := range r.CommandRaw {
		if i >= len(r.Command) || utf8.Valid(raw) || readable(string(raw)) != readable(r.Command[i]) {
			v.report.add(problem(CodeSchema, schema.RunPath, "command_raw has an argument %d that command has not", i))
		}
	}
}

// readable is s with one U+FFFD for each run of them, or of bytes that are not UTF-8.
func readable(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	for strings.Contains(s, "\ufffd\ufffd") {
		s = strings.ReplaceAll(s, "\ufffd\ufffd", "\ufffd")
	}
	return s
}

// decodeDocument decodes a valid document and checks whose it is.
func decodeDocument[T any](v *verifier, path string) *T {
	data, ok := v.documents[path]
	if !ok {
		return nil
	}
	var head struct {
		RunID string `json:"run_id"`
	}
	d := new(T)
	if err := json.Unmarshal(data, d); err != nil {
		v.report.add(problem(CodeSchema, path, "%v", err))
		return nil
	}
	json.Unmarshal(data, &head)
	if head.RunID != v.manifest.RunID && (head.RunID != "" || isDocument(path)) {
		v.report.add(problem(CodeRunID, path, "run_id is %.128q, the manifest says %q", head.RunID, v.manifest.RunID))
	}
	return d
}

func (v *verifier) count(path string) uint64 { return v.report.Lines[path] }

// surface checks capability-surface.json, which may be large, as it is read.
func (v *verifier) surface(r io.Reader, size int64) error {
	path := schema.SurfacePath
	if size > maxDocument {
		v.report.add(problem(CodeLimit, path, "%d bytes, at most %d are allowed", size, maxDocument))
		return nil
	}
	runID, err := schema.ReadSurface(r, nil)
	var p *Problem
	var unsorted *schema.UnsortedError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &unsorted):
		v.report.add(problem(CodeSurface, path, "%v", err))
	case err != nil && schemaRefused(err):
		v.report.add(problem(schemaCode(err), path, "%v", err))
		return nil
	case err != nil:
		return err
	}
	if runID != v.manifest.RunID {
		v.report.add(problem(CodeRunID, path, "run_id is %.128q, the manifest says %q", runID, v.manifest.RunID))
	}
	return nil
}

// integrity holds the layers and streams against integrity.json.
func (v *verifier) integrity(doc *schema.Integrity) {
	bad := func(format string, args ...any) {
		v.report.add(problem(CodeIntegrity, schema.IntegrityPath, format, args...))
	}
	for _, path := range schema.Layers {
		name := schema.LayerName(path)
		is, listed := v.lines.integrity[name]
		says, ok := doc.Layers[name]
		switch {
		case !listed: // missing, as was reported
		case !ok:
			bad("layers has no %s", name)
		case is.Lines != says.Lines:
			bad("it says that %s has %d lines, it has %d", path, says.Lines, is.Lines)
		case is.Root != says.Root:
			bad("the lines of %s are not those that the recorder wrote: their root is %s, it says %s", path, is.Root, says.Root)
		}
	}
	for name := range doc.Layers {
		if _, ok := v.lines.integrity[name]; !ok && !slices.ContainsFunc(schema.Layers, func(p string) bool { return schema.LayerName(p) == name }) {
			bad("layers has %.100q, which is no layer", name)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(v.streams)) {
		if says, ok := doc.Members[path]; !ok || says != v.streams[path] {
			bad("the bytes of %s are not those that the recorder wrote", path)
		}
	}
	for path := range doc.Members {
		if !isStream(path) || v.manifest.Files[path].Path == "" {
			bad("members has %.100q, which is no member below stdio/", path)
		}
	}
}

// health checks the rules of observation health.
func (v *verifier) health(f facts) {
	h := f.health
	rule := func(broken bool, format string, args ...any) {
		if broken {
			v.report.add(problem(CodeHealth, schema.HealthPath, format, args...))
		}
	}
	absent := h.KernelLayer == schema.Absent
	complete := h.KernelLayer == schema.Complete
	rule(h.RingbufDrops > 0 && h.KernelLayer != schema.PartialRingbufDrops, "%d ringbuf drops, and kernel_layer is %s", h.RingbufDrops, h.KernelLayer)
	rule(h.KernelState != "" && h.KernelState != schema.KernelState(h.KernelLayer), "kernel_state is %s, and kernel_layer is %s", h.KernelState, h.KernelLayer)
	rule(h.Platform != "linux" && !absent, "kernel_layer is %s on %s", h.KernelLayer, h.Platform)
	rule(absent && h.NetworkProtocolCoverage != schema.Absent, "kernel_layer is absent, and network_protocol_coverage is %s", h.NetworkProtocolCoverage)
	rule(absent && h.NetworkEndpointClaimScope != schema.NotApplicable, "kernel_layer is absent, and network_endpoint_claim_scope is %s", h.NetworkEndpointClaimScope)
	rule(absent && v.count(schema.KernelPath) > 0, "kernel_layer is absent, and the layer has %d lines", v.count(schema.KernelPath))
	rule(h.PolicyLayer == schema.Absent && v.count(schema.PolicyPath) > 0, "policy_layer is absent, and the layer has %d lines", v.count(schema.PolicyPath))
	rule(h.SDKLayer == schema.Absent && v.count(schema.SDKPath) > 0, "sdk_layer is absent, and the layer has %d lines", v.count(schema.SDKPath))
	if f.run != nil {
		rule(f.run.Platform != h.Platform, "platform is %s, %s says %s", h.Platform, schema.RunPath, f.run.Platform)
		rule(f.run.AgentShim == "none" && h.SDKLayer != schema.Absent, "the agent shim is none, and sdk_layer is %s", h.SDKLayer)
	}
	if f.result != nil {
		rule(f.result.Outcome == schema.OutcomeIncomplete && complete, "the run is incomplete, and kernel_layer is complete")
	}
	if c := f.correlation; c != nil {
		rule(h.CgroupCorrelation != schema.Clean && c.Status == schema.Clean, "cgroup_correlation is %s, and %s says clean", h.CgroupCorrelation, schema.CorrelationPath)
		rule(len(c.Ambiguities) > 0 && c.Status == schema.Clean, "%s is clean, and has %d ambiguities", schema.CorrelationPath, len(c.Ambiguities))
	}
	if !complete {
		return
	}
	for _, k := range h.Hooks {
		rule(k.Required && !(k.Attached && k.SelfTested), "kernel_layer is complete, and the required hook %.100q was not attached and self-tested", k.Name)
		rule(max(k.Dropped, k.FailedReads, k.RecursionMisses) > 0, "kernel_layer is complete, and the hook %.100q lost something", k.Name)
	}
	if c, ok := h.Layers[schema.LayerName(schema.KernelPath)]; ok {
		rule(c.Dropped > 0, "kernel_layer is complete, and %d of its events were dropped", c.Dropped)
	}
	if k := h.Kernel; k != nil {
		rule(max(k.Dropped, k.Malformed) > 0, "kernel_layer is complete, and %d of its events were dropped, %d malformed", k.Dropped, k.Malformed)
		rule(k.Forks != k.Exits, "kernel_layer is complete, and %d forks are not matched by %d exits", k.Forks, k.Exits)
		rule(k.LeftCgroup > 0, "kernel_layer is complete, and %d processes left the cgroup", k.LeftCgroup)
	}
}

// counts checks that nothing is lost without being counted.
func (v *verifier) counts(h *schema.ObservationHealth) {
	equal := func(what string, a *big.Int, is string, b *big.Int) {
		if a.Cmp(b) != 0 {
			v.report.add(problem(CodeCounts, schema.HealthPath, "%s is %d, %s is %d", what, a, is, b))
		}
	}
	if h.Layers != nil {
		for _, path := range schema.Layers {
			name := schema.LayerName(path)
			c, ok := h.Layers[name]
			if !ok {
				v.report.add(problem(CodeCounts, schema.HealthPath, "layers has no account of %s", name))
				continue
			}
			equal(name+".seen", sum(c.Seen), "written + coalesced + filtered + dropped", sum(c.Written, c.Coalesced, c.Filtered, c.Dropped))
			equal(name+".written", sum(c.Written), "the number of its lines", sum(v.count(path)))
		}
		for name := range h.Layers {
			if !slices.ContainsFunc(schema.Layers, func(p string) bool { return schema.LayerName(p) == name }) {
				v.report.add(problem(CodeCounts, schema.HealthPath, "layers accounts for %.100q, which is no layer", name))
			}
		}
	}
	var emitted []uint64
	for _, hook := range h.Hooks {
		equal("seen of hook "+hook.Name, sum(hook.Seen), "filtered + coalesced + emitted + dropped", sum(hook.Filtered, hook.Coalesced, hook.Emitted, hook.Dropped))
		emitted = append(emitted, hook.Emitted)
	}
	k := h.Kernel
	if k == nil {
		return
	}
	equal("kernel.emitted", sum(k.Emitted), "the sum over the hooks", sum(emitted...))
	equal("kernel.received", sum(k.Received), "kernel.emitted", sum(k.Emitted))
	equal("kernel.received", sum(k.Received), "decoded + malformed", sum(k.Decoded, k.Malformed))
	equal("kernel.decoded + drained + added", sum(k.Decoded, k.Drained, k.Added), "written + filtered + coalesced + dropped + parts + self_test",
		sum(k.Written, k.Filtered, k.Coalesced, k.Dropped, k.Parts, k.SelfTest))
	equal("kernel.written", sum(k.Written), "the number of the layer's lines", sum(v.count(schema.KernelPath)))
}

// sum does not wrap around: counts that are nearly 2^64 would hide each other.
func sum(counts ...uint64) *big.Int {
	total := new(big.Int)
	for _, n := range counts {
		total.Add(total, new(big.Int).SetUint64(n))
	}
	return total
}

// lifecycle checks how events.ndjson ends, and that it and result.json tell
// the same end.
func (v *verifier) lifecycle(f facts) {
	if f.result == nil {
		return
	}
	bad := func(code Code, member, format string, args ...any) {
		v.report.add(problem(code, member, format, args...))
	}
	last, ended, err := v.lines.end()
	if err != nil {
		return // reported with its line
	}
	if !ended {
		if f.result.Outcome != schema.OutcomeIncomplete {
			p := problem(CodeLifecycle, schema.EventsPath, "the last line is not %s, and the outcome is %s", schema.RunFinished, f.result.Outcome)
			p.Line = v.count(schema.EventsPath)
			v.report.add(p)
		}
		return
	}
	if !sameJSON(last.ExitCode, f.result.ExitCode) {
		bad(CodeResult, schema.ResultPath, "exit_code is not the %s of %s", last.ExitCode, schema.RunFinished)
	}
	// The name stands beside the number; older builds wrote it in the number's
	// place, or not at all.
	name := last.Signal
	if name.Kind() == '0' && f.result.Signal != nil {
		name = last.SignalName
	}
	if name != nil && !sameJSON(name, f.result.Signal) {
		bad(CodeResult, schema.ResultPath, "signal is not the %s of %s", last.Signal, schema.RunFinished)
	}
}

// runEnd is what run_finished tells.
type runEnd struct {
	Type       string         `json:"type"`
	ExitCode   jsontext.Value `json:"exit_code"`
	Signal     jsontext.Value `json:"signal"`
	SignalName jsontext.Value `json:"signal_name"`
}

// end is the lifecycle's last line, and whether that is run_finished; the error
// is the line's.
func (v *lineVerifier) end() (last runEnd, ended bool, err error) {
	if len(v.lastEvent) == 0 {
		return last, false, nil
	}
	if err := schema.Validate(schema.EventV0, v.lastEvent); err != nil {
		return last, false, err
	}
	err = json.Unmarshal(v.lastEvent, &last)
	return last, last.Type == schema.RunFinished, err
}

// sameJSON compares a value of a lifecycle line with one of a document.
func sameJSON[T comparable](raw jsontext.Value, p *T) bool {
	var q *T
	if err := json.Unmarshal(raw, &q); err != nil {
		return false // another kind of value
	}
	return p == nil && q == nil || p != nil && q != nil && *p == *q
}

// badStream tells whether a stream's numbers contradict each other. The
// subtraction is of sizes that the manifest's own bounds.
func badStream(s *schema.Stream) bool {
	kept := s.Captured - s.RedactedBytes
	return kept < 0 || kept > s.Bytes || s.Truncated != (kept < s.Bytes)
}

// result checks result.json by itself and against the captured streams.
func (v *verifier) result(r *schema.Result) {
	bad := func(format string, args ...any) {
		v.report.add(problem(CodeResult, schema.ResultPath, format, args...))
	}
	switch {
	case r.ExitCode != nil && r.Signal != nil:
		bad("there is both an exit_code and a signal")
	case r.Outcome == schema.OutcomeExited && r.ExitCode == nil:
		bad("outcome is exited, and exit_code is null")
	case r.Outcome == schema.OutcomeSignaled && r.Signal == nil:
		bad("outcome is signaled, and signal is null")
	}
	if (r.Outcome == schema.OutcomeIncomplete || r.Outcome == schema.OutcomeInfraError) && r.ErrorSource == nil {
		bad("outcome is %s, and error_source is null", r.Outcome)
	}
	for _, s := range []struct {
		path   string
		stream *schema.Stream
	}{{schema.StdoutPath, r.Stdio.Stdout}, {schema.StderrPath, r.Stdio.Stderr}} {
		size, kept := v.sizes[s.path]
		if _, listed := v.manifest.Files[s.path]; listed && !kept {
			continue // missing, as was reported
		}
		switch {
		case s.stream == nil && kept && size > 0:
			bad("%s is in the bundle, and the stream is null", s.path)
		case s.stream != nil && size != s.stream.Captured:
			bad("%d bytes of %s were captured, the bundle has %d", s.stream.Captured, s.path, size)
		case s.stream != nil && badStream(s.stream):
			bad("%s: captured %d of %d bytes, %d more by redaction, truncated %t", s.path, s.stream.Captured, s.stream.Bytes, s.stream.RedactedBytes, s.stream.Truncated)
		}
	}
}
