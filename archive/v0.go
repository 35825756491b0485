package archive

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/assay-run/assay-run/schema"
)

// CompatV0 is the value of [schema.Run.Compat] for a bundle whose documents follow the v0 contracts exactly. Such a run
// is recorded like any other, and converted when it is sealed. Only this file knows that format.
const CompatV0 = "v0"

// ExportV0 writes the bundle to output in the format of a run with --compat v0. Replace allows a file at the output's
// path. The bundle must verify. On an error nothing is left at the output.
func ExportV0(ctx context.Context, bundle, output string, replace bool) (Sealed, error) {
	var notes []string
	sealed, err := rewrite(ctx, bundle, output, replace, func(old *unpacked) ([]source, error) {
		v0, err := projectV0(ctx, old.sources, old.room)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", bundle, err)
		}
		notes = v0.notes
		return v0.members, nil
	})
	sealed.Notes = notes
	return sealed, err
}

// The lines and documents of the v0 contracts that differ from today's. The order of the fields matters.
type (
	startedV0 struct {
		Schema          string   `json:"schema"`
		RunID           string   `json:"run_id"`
		Seq             uint64   `json:"seq"`
		Type            string   `json:"type"`
		AgentShim       string   `json:"agent_shim"`
		Command         []string `json:"command"`
		EnvKeys         []string `json:"env_keys"`
		WindowElapsedMS int64    `json:"window_elapsed_ms"`
	}
	finishedV0 struct {
		Schema          string         `json:"schema"`
		RunID           string         `json:"run_id"`
		Seq             uint64         `json:"seq"`
		Type            string         `json:"type"`
		ExitCode        jsontext.Value `json:"exit_code"`
		Signal          jsontext.Value `json:"signal"`
		Success         bool           `json:"success"`
		WindowElapsedMS int64          `json:"window_elapsed_ms"`
	}
	kernelV0 struct {
		Schema         string   `json:"schema"`
		RunID          string   `json:"run_id"`
		Seq            uint64   `json:"seq"`
		PID            uint32   `json:"pid"`
		EventType      uint16   `json:"event_type"`
		Kind           string   `json:"kind"`
		Value          *string  `json:"value"`
		Flags          *uint64  `json:"flags,omitempty"`
		Mode           *uint32  `json:"mode,omitempty"`
		Resolve        uint64   `json:"resolve,omitempty"`
		ReturnValue    *int64   `json:"return_value,omitempty"`
		AccessMode     string   `json:"access_mode,omitempty"`
		OperationFlags []string `json:"operation_flags,omitempty"`
		Status         string   `json:"status,omitempty"`
		CgroupID       uint64   `json:"cgroup_id,omitempty"`
		Destination    string   `json:"network_destination,omitempty"`
		Port           *uint16  `json:"network_port,omitempty"`
		RuleID         uint64   `json:"rule_id,omitempty"`
	}
	policyV0 struct {
		Schema          string `json:"schema"`
		RunID           string `json:"run_id"`
		Seq             uint64 `json:"seq"`
		SourceEventType string `json:"source_event_type"`
		Source          string `json:"source"`
		ToolCallID      string `json:"tool_call_id"`
		Tool            string `json:"tool"`
		Decision        string `json:"decision"`
	}
	sdkV0 struct {
		Schema     string  `json:"schema"`
		RunID      string  `json:"run_id"`
		Seq        uint64  `json:"seq"`
		EventType  string  `json:"event_type"`
		Source     string  `json:"source"`
		SDKName    *string `json:"sdk_name"`
		SDKVersion *string `json:"sdk_version"`
		ToolCallID *string `json:"tool_call_id"`
		Tool       *string `json:"tool"`
	}
	healthV0 struct {
		Schema        string       `json:"schema"`
		RunID         string       `json:"run_id"`
		Platform      string       `json:"platform"`
		KernelLayer   string       `json:"kernel_layer"`
		RingbufDrops  uint64       `json:"ringbuf_drops"`
		PolicyLayer   string       `json:"policy_layer"`
		SDKLayer      string       `json:"sdk_layer"`
		Correlation   string       `json:"cgroup_correlation"`
		Coverage      string       `json:"network_protocol_coverage"`
		EndpointScope string       `json:"network_endpoint_claim_scope"`
		Redaction     *redactionV0 `json:"redaction,omitempty"`
		Notes         []string     `json:"notes"`
	}
	redactionV0 struct {
		Mode          string            `json:"mode"`
		RedactedCount uint64            `json:"redacted_count"`
		ByRule        map[string]uint64 `json:"by_rule"`
		ByField       map[string]uint64 `json:"by_field"`
		KeyScope      string            `json:"key_scope"`
		KeyID         string            `json:"key_id"`
	}
	correlationV0 struct {
		Schema      string      `json:"schema"`
		RunID       string      `json:"run_id"`
		Status      string      `json:"status"`
		Bindings    []bindingV0 `json:"bindings"`
		Ambiguities []string    `json:"ambiguities"`
	}
	bindingV0 struct {
		ToolCallID       string        `json:"tool_call_id"`
		PolicyDecision   string        `json:"policy_decision"`
		CgroupID         uint64        `json:"cgroup_id,omitempty"`
		KernelEventCount uint64        `json:"kernel_event_count"`
		Window           schema.Window `json:"window"`
	}
)

// Event types of v0's monitor for datagrams, by system call. v0 has no names for them, so their kinds are event_6 and
// event_7.
const (
	sendtoV0  = 6
	sendmsgV0 = 7
)

// projectionV0 converts a bundle's members to v0, layer by layer.
type projectionV0 struct {
	memberReader
	room    *scratch
	members []source // done
	notes   []string // what v0 has no place for

	run    schema.Run
	health schema.ObservationHealth
	trees  map[string]schema.LayerTree // of the new layers

	kernelLines uint64
	cgroupID    uint64 // of the session
	connects    bool
	datagrams   bool
	opened      map[[16]byte]struct{} // path and flags
	surface     schema.CapabilitySurface
	lists       map[*[]string]map[string]struct{} // the sets of surface's lists
	surfaceLeft int                               // bytes that the surface may still take
	unlisted    uint64                            // names for which the surface had no room

	decisions []bindingV0
	sdkCalls  map[string]bool
	sdkLines  uint64
}

// projectV0 returns the members in v0's format, in room or in memory. Members that v0 does not know are not changed.
// Members that somebody had changed are converted too, and listed in tampered.
func projectV0(ctx context.Context, sources []source, room *scratch) (*projectionV0, error) {
	p := &projectionV0{
		memberReader: memberReader{ctx: ctx}, room: room, trees: map[string]schema.LayerTree{},
		opened: map[[16]byte]struct{}{},
		lists:  map[*[]string]map[string]struct{}{}, sdkCalls: map[string]bool{}, surfaceLeft: maxDocument / 2,
	}
	for path, into := range map[string]any{schema.RunPath: &p.run, schema.HealthPath: &p.health} {
		if err := readSource(sources, path, into); err != nil {
			return nil, err
		}
	}
	for _, layer := range []struct {
		path string
		line func(line []byte, seq uint64) (any, error)
	}{
		{schema.EventsPath, p.event}, {schema.KernelPath, p.kernel}, {schema.PolicyPath, p.policy},
		{schema.SDKPath, p.sdk},
	} {
		if err := p.layer(sources, layer.path, layer.line); err != nil {
			return nil, fmt.Errorf("project to v0: %w", err)
		}
	}
	var was correlationV0 // of a bundle that is v0 already, whose lines do not name the cgroup
	if p.cgroupID == 0 && readSource(sources, schema.CorrelationPath, &was) == nil && len(was.Bindings) == 1 {
		p.cgroupID = was.Bindings[0].CgroupID
	}
	if p.unlisted > 0 {
		p.notes = append(p.notes, fmt.Sprintf("%d names found no room in %s", p.unlisted, schema.SurfacePath))
		p.lower()
	}
	for path, doc := range map[string]any{
		schema.HealthPath: p.claims(), schema.SurfacePath: p.names(), schema.CorrelationPath: p.correlation(),
	} {
		if err := p.put(path, doc); err != nil {
			return nil, err
		}
	}
	for _, src := range sources {
		if src.path == schema.IntegrityPath {
			if err := p.integrity(src); err != nil {
				return nil, err
			}
		}
		if !slices.ContainsFunc(p.members, func(m source) bool { return m.path == src.path }) {
			p.members = append(p.members, src)
		}
	}
	return p, nil
}

// readSource decodes a document among sources.
func readSource(sources []source, path string, into any) error {
	i := slices.IndexFunc(sources, func(src source) bool { return src.path == path })
	if i < 0 || sources[i].size > maxDocument {
		return fmt.Errorf("%s cannot be read", path)
	}
	r, err := sources[i].open()
	if err != nil {
		return err
	}
	defer r.Close()
	if err := json.UnmarshalRead(r, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func (p *projectionV0) put(path string, doc any) error {
	data, err := schema.Document(doc)
	if err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	p.members = append(p.members, source{path: path, size: int64(len(data)), data: data})
	return nil
}

// layer converts a layer. line returns the new line, with number seq, for an old one; nil for none.
func (p *projectionV0) layer(sources []source, path string, line func(line []byte, seq uint64) (any, error)) error {
	var lines tree
	unread := 0
	i := slices.IndexFunc(sources, func(src source) bool { return src.path == path })
	if i < 0 {
		return fmt.Errorf("%s is missing", path)
	}
	src, err := p.room.member(path, func(w io.Writer) error {
		return p.lines(sources[i], func(old []byte, whole bool) error {
			made, err := line(old, lines.lines)
			if err != nil || !whole {
				unread++
				return nil
			}
			if made == nil {
				return nil
			}
			data, err := schema.Line(made)
			if err != nil {
				return err
			}
			lines.add(tlog.RecordHash(data[:len(data)-1]))
			_, err = w.Write(data)
			return err
		})
	})
	if err != nil {
		return err
	}
	if unread > 0 {
		p.notes = append(p.notes, fmt.Sprintf("%d lines of %s could not be read and are left out", unread, path))
		if path == schema.KernelPath {
			p.lower()
		}
	}
	p.members = append(p.members, src)
	p.trees[path] = lines.state()
	return nil
}

// lower marks a complete kernel layer as partial.
func (p *projectionV0) lower() {
	if p.health.KernelLayer == schema.Complete {
		p.health.SetKernelLayer(schema.PartialRingbufDrops)
	}
}

// integrity updates integrity.json for the new layers.
func (p *projectionV0) integrity(src source) error {
	var doc schema.Integrity
	if err := readSource([]source{src}, src.path, &doc); err != nil {
		return err
	}
	for path, state := range p.trees {
		doc.Layers[schema.LayerName(path)] = state
	}
	return p.put(src.path, doc)
}

func (p *projectionV0) event(line []byte, seq uint64) (any, error) {
	var e struct {
		Type            string         `json:"type"`
		AgentShim       string         `json:"agent_shim"`
		Command         []string       `json:"command"`
		EnvKeys         []string       `json:"env_keys"`
		ExitCode        jsontext.Value `json:"exit_code"`
		Signal          jsontext.Value `json:"signal"`
		Success         bool           `json:"success"`
		WindowElapsedMS int64          `json:"window_elapsed_ms"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, err
	}
	switch elapsed := e.WindowElapsedMS; e.Type {
	case schema.RunStarted:
		keys := e.EnvKeys
		if p.run.SDKEventLog != "" {
			keys = append(keys, "ASSAY_RUNNER_RUN_ID", "ASSAY_RUNNER_SDK_EVENT_LOG", "ASSAY_RUNNER_SDK_EVENT_SCHEMA")
		}
		slices.Sort(keys)
		return startedV0{schema.EventV0, p.run.RunID, seq, e.Type, e.AgentShim, notNil(e.Command),
			notNil(slices.Compact(keys)), elapsed}, nil
	case schema.RunFinished:
		return finishedV0{schema.EventV0, p.run.RunID, seq, e.Type, e.ExitCode, e.Signal, e.Success, elapsed}, nil
	}
	return nil, nil
}

func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// policy converts decisions about tool calls, and leaves out those of the sandbox.
func (p *projectionV0) policy(line []byte, seq uint64) (any, error) {
	var e schema.PolicyEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, err
	}
	if e.ToolCallID == "" || e.Operation != "" {
		return nil, nil
	}
	p.decisions = append(p.decisions, bindingV0{ToolCallID: e.ToolCallID, PolicyDecision: e.Decision})
	if e.Tool != "" {
		p.name(&p.surface.MCPTools, e.Tool)
		p.name(&p.surface.PolicyDecisions, e.Decision+":"+e.Tool)
	}
	return policyV0{schema.PolicyEventV0, p.run.RunID, seq, e.SourceEventType, e.Source, e.ToolCallID, e.Tool,
		e.Decision}, nil
}

func (p *projectionV0) sdk(line []byte, seq uint64) (any, error) {
	var e schema.SDKEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, err
	}
	p.sdkLines++
	if e.ToolCallID != "" {
		p.sdkCalls[e.ToolCallID] = true
	}
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return sdkV0{
		schema.SDKEventV0, p.run.RunID, seq, e.EventType, e.Source, orNull(e.SDKName), orNull(e.SDKVersion),
		orNull(e.ToolCallID), orNull(e.Tool),
	}, nil
}

// kernel converts the agent's events that v0's monitor reports. v0 has no format for attempted calls and for counts of
// repeats.
func (p *projectionV0) kernel(line []byte, _ uint64) (any, error) {
	var e schema.KernelEvent
	if err := schema.DecodeKernelEvent(line, &e); err != nil {
		return nil, err
	}
	if p.cgroupID == 0 {
		p.cgroupID = e.CgroupID
	}
	if e.Class != schema.ClassAgent || e.Attempted || e.Repeat {
		return nil, nil
	}
	made := &kernelV0{Schema: schema.KernelEventV0, RunID: p.run.RunID, Seq: p.kernelLines, PID: e.PID,
		EventType: uint16(e.Kind), Kind: e.Kind.String()}
	if e.Value != "" {
		e.Value = schema.Readable(e.Value) // v0 has no place for bytes that are not UTF-8
		made.Value = &e.Value
	}
	switch e.Kind {
	case schema.KindOpen:
		if startup(e.Value) || !p.first(&e) {
			return nil, nil
		}
		p.name(&p.surface.FilesystemPaths, e.Value)
		made.open(&e)
	case schema.KindFileBlocked:
		p.name(&p.surface.FilesystemPaths, e.Value)
	case schema.KindExec:
		p.name(&p.surface.ProcessExecs, e.Value)
	case schema.KindConnect, schema.KindConnectBlocked, schema.KindSendto, sendtoV0, sendmsgV0:
		peer, err := netip.ParseAddrPort(e.Value)
		if err != nil { // a unix socket, or unknown
			return nil, nil
		}
		p.name(&p.surface.NetworkEndpoints, e.Value)
		switch e.Kind {
		case schema.KindConnect:
			p.connects = true
		case schema.KindConnectBlocked:
			port := peer.Port()
			made.CgroupID, made.Destination, made.Port, made.RuleID = e.CgroupID, peer.Addr().String(), &port, e.RuleID
		default:
			p.datagrams = true
			if e.Kind == schema.KindSendto {
				made.EventType = sendtoV0
				if strings.HasPrefix(e.Call, "sendm") { // sendmsg, sendmmsg
					made.EventType = sendmsgV0
				}
			}
			made.Kind = fmt.Sprintf("event_%d", made.EventType)
		}
	default:
		return nil, nil
	}
	p.kernelLines++
	return made, nil
}

// open sets the fields of an open. A line that came from the v0 form may have no result.
func (k *kernelV0) open(e *schema.KernelEvent) {
	k.Flags, k.Mode, k.Resolve = &e.Flags, &e.Mode, e.Resolve
	k.AccessMode, k.OperationFlags = schema.OpenIntent(e.Flags)
	if !e.HasResult {
		return
	}
	if k.ReturnValue, k.Status = &e.Result, "success"; e.Result < 0 {
		k.Status = "error"
	}
}

// first reports whether an open is the first of its path and flags.
func (p *projectionV0) first(e *schema.KernelEvent) bool {
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, e.Flags), e.Value...))
	key := [16]byte(sum[:16])
	_, seen := p.opened[key]
	p.opened[key] = struct{}{}
	return !seen
}

var (
	startupFiles = []string{
		"/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/openssl.cnf", "/usr/pyvenv.cfg", "/usr/bin/pyvenv.cfg",
		"/usr/bin/python3._pth",
		"/usr/bin/python3.12._pth", "/usr/bin/pybuilddir.txt",
	}
	startupDirs = []string{
		"/lib/", "/lib32/", "/lib64/", "/usr/lib/", "/usr/local/lib/", "/usr/share/locale/", "/usr/local/share/locale/",
		"/proc/", "/sys/", "/dev/",
	}
)

// startup reports whether v0 leaves out opens of a path: files of loaders, interpreters and locales, and in /proc, /sys
// and /dev.
func startup(path string) bool {
	below := func(dir string) bool { return strings.HasPrefix(path, dir) }
	if slices.Contains(startupFiles, path) || slices.ContainsFunc(startupDirs, below) ||
		strings.Contains(path, "/node_modules/") {
		return true
	}
	if !strings.HasSuffix(path, ".so") && !strings.Contains(path, ".so.") {
		return false
	}
	if strings.Contains(path, "/.rustup/toolchains/") {
		return true
	}
	_, target, found := strings.Cut(path, "/target/")
	return found && slices.ContainsFunc([]string{"/build/", "/debug/", "/release/"}, func(dir string) bool {
		return strings.Contains("/"+target, dir)
	})
}

// name adds a name to a list of the surface.
func (p *projectionV0) name(list *[]string, name string) {
	set := p.lists[list]
	if set == nil {
		set = map[string]struct{}{}
		p.lists[list] = set
	}
	if _, known := set[name]; known || name == "" {
		return
	}
	if p.surfaceLeft -= len(name) + 8; p.surfaceLeft < 0 {
		p.unlisted++
		return
	}
	set[name] = struct{}{}
}

func (p *projectionV0) names() *schema.CapabilitySurface {
	s := &p.surface
	s.Schema, s.RunID = schema.CapabilitySurfaceV0, p.run.RunID
	for _, list := range []*[]string{&s.FilesystemPaths, &s.NetworkEndpoints, &s.ProcessExecs, &s.MCPTools,
		&s.PolicyDecisions} {
		*list = notNil(slices.Sorted(maps.Keys(p.lists[list])))
	}
	return s
}

// claims returns observation-health.json.
func (p *projectionV0) claims() *healthV0 {
	h := &healthV0{
		Schema: schema.ObservationHealthV0, RunID: p.run.RunID, Platform: p.health.Platform,
		KernelLayer:  p.health.KernelLayer,
		RingbufDrops: p.health.RingbufDrops, PolicyLayer: schema.Absent, SDKLayer: p.health.SDKLayer,
		Correlation: p.health.CgroupCorrelation,
		Redaction:   p.redaction(), Notes: []string{},
	}
	note := func(format string, args ...any) { h.Notes = append(h.Notes, fmt.Sprintf(format, args...)) }
	h.Coverage, h.EndpointScope = p.network()
	if p.observed() {
		note("s2_kernel_capture: monitor_events=%d ringbuf_drops=%d network_protocol_coverage=%s "+
			"network_endpoint_claim_scope=%s",
			p.kernelLines, h.RingbufDrops, h.Coverage, h.EndpointScope)
	} else {
		why := "contract_only_mode: kernel layer absent"
		if i := slices.IndexFunc(p.health.Notes, func(n string) bool {
			return strings.HasPrefix(n, "contract_only_mode:")
		}); i >= 0 {
			why = p.health.Notes[i]
		}
		note("%s", why)
	}
	if len(p.decisions) > 0 {
		h.PolicyLayer = schema.Present
		note("s4_policy_capture: policy_events=%d", len(p.decisions))
	}
	if p.sdkLines > 0 {
		note("s5_sdk_capture: sdk_events=%d sdk_tool_calls=%d", p.sdkLines, len(p.sdkCalls))
	}
	return h
}

// observed reports whether there is a kernel layer.
func (p *projectionV0) observed() bool { return p.health.KernelLayer != schema.Absent }

// network returns which protocols were seen, and what may be claimed about the endpoints.
func (p *projectionV0) network() (coverage, scope string) {
	switch {
	case p.observed() && p.lostNetwork():
		return schema.Unknown, schema.Unknown
	case p.connects && p.datagrams:
		return schema.ConnectAndDatagram, schema.DiagnosticOnly
	case p.connects:
		return schema.ConnectOnly, schema.DiagnosticOnly
	case p.datagrams:
		return schema.DatagramPeerObserved, schema.DiagnosticOnly
	}
	return schema.Absent, schema.NotApplicable
}

// lostNetwork reports whether events of the network may be lost. If an event was lost after the hooks, its kind is not
// known.
func (p *projectionV0) lostNetwork() bool {
	drops := p.health.RingbufDrops
	for _, hook := range p.health.Hooks {
		if hook.Dropped == 0 {
			continue
		}
		if hook.Name == "syscall/socket" || strings.HasPrefix(hook.Name, "cgroup/connect") ||
			strings.HasPrefix(hook.Name, "cgroup/sendmsg") {
			return true
		}
		drops -= min(drops, hook.Dropped)
	}
	k := p.health.Kernel
	hidden := drops > 0 && len(p.health.Hooks) > 0
	return hidden || k != nil && k.Dropped+k.Malformed > 0 || p.health.NetworkProtocolCoverage == schema.Unknown
}

func (p *projectionV0) redaction() *redactionV0 {
	r := p.health.Redaction
	if r == nil {
		return nil
	}
	made := &redactionV0{Mode: "shape_and_flag", RedactedCount: r.RedactedCount, ByRule: r.ByRule, ByField: r.ByField,
		KeyScope: "host_local", KeyID: "none"}
	if id := strings.TrimPrefix(r.KeyID, keyIDV0); len(id) >= 8 {
		made.KeyID = keyIDV0 + id[:8]
	}
	switch r.Mode {
	case schema.RedactionDisabled:
		made.Mode = "disabled_unsafe"
	case schema.RedactionRecovered: // recover knows no values of secrets
		made.Mode = "shape_only"
	case schema.RedactionEnabled:
	default:
		made.Mode = r.Mode // of a bundle that is v0 already
	}
	if made.KeyID == "none" || r.KeyScope == "ephemeral" {
		made.KeyScope = "ephemeral"
	}
	return made
}

// keyIDV0 is the prefix of the id of a redaction key.
const keyIDV0 = "hmac-sha256:"

// correlation returns correlation-report.json, which gives each decision all of the run's events.
func (p *projectionV0) correlation() *correlationV0 {
	c := &correlationV0{
		Schema: schema.CorrelationReportV0, RunID: p.run.RunID, Status: p.health.CgroupCorrelation,
		Bindings: []bindingV0{}, Ambiguities: []string{},
	}
	decided := map[string]bool{}
	for _, b := range p.decisions {
		decided[b.ToolCallID] = true
		b.KernelEventCount, b.Window = p.kernelLines, schema.Window{Start: schema.RunStarted, End: schema.RunFinished}
		if p.observed() && len(p.decisions) == 1 {
			b.CgroupID = p.cgroupID
		}
		c.Bindings = append(c.Bindings, b)
	}
	if len(p.decisions) > 0 && p.kernelLines == 0 {
		c.Ambiguities = append(c.Ambiguities, schema.AmbiguousPolicyWithoutKernel)
	}
	if len(p.decisions) > 1 && p.observed() {
		c.Ambiguities = append(c.Ambiguities, schema.AmbiguousSessionCgroup)
	}
	for _, id := range slices.Sorted(maps.Keys(p.sdkCalls)) {
		if len(p.decisions) > 0 && !decided[id] {
			c.Ambiguities = append(c.Ambiguities, schema.AmbiguousSDKWithoutPolicy+id)
		}
	}
	if len(c.Ambiguities) > 0 && c.Status == schema.Clean {
		c.Status = schema.Partial
	}
	return c
}
