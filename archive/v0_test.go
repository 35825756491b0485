package archive

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

const goldenRunID = "run_openai_agents_kernel_policy_determinism"

// agentRun is a run of an agent of the OpenAI Agents SDK behind a policy, as the v0
// contracts' example is one, in the forms of today.
type agentRun struct {
	kernel  []schema.KernelEvent
	policy  []schema.PolicyEvent
	sdk     []schema.SDKEvent
	health  func(*schema.ObservationHealth)
	surface schema.CapabilitySurface
	log     string // sdk_event_log
}

const goldenWork = "/tmp/assay-runner-openai-agents-kernel-policy/work/"

// openOf is an open as the kernel layer has it.
func openOf(path string, flags uint64, result int64) schema.KernelEvent {
	return schema.KernelEvent{Kind: schema.KindOpen, PID: 7, Value: path, Flags: flags, HasResult: true, Result: result}
}

// goldenRun is what the golden example was made from, in our forms and with what ours adds.
func goldenRun() agentRun {
	const source = "assay.tool.decision"
	sdk := func(event, id, tool string) schema.SDKEvent {
		return schema.SDKEvent{EventType: event, Source: "openai-agents", SDKName: "@openai/agents",
			SDKVersion: "0.0.0", ToolCallID: id, Tool: tool, TNS: 5, SpanID: "00f067aa0ba902b7", Timestamp: "2026"}
	}
	return agentRun{
		log: "/tmp/sdk.ndjson",
		kernel: []schema.KernelEvent{
			{Kind: schema.KindFork, PID: 7, PPID: 1, CgroupID: 4242},
			openOf("/etc/ld.so.cache", 0, 3),
			openOf(goldenWork+"openai-agents-input.txt", 0o2000000, 5),
			{Kind: schema.KindConnect, PID: 7, Value: "127.0.0.1:80", HasResult: true},
			{Kind: schema.KindConnect, PID: 7, Value: "unix:/run/x", HasResult: true},
			openOf(goldenWork+"policy-input.txt", 0o2000000, 6),
			openOf(goldenWork+"policy-input.txt", 0o2000000, 7),
			openOf(goldenWork+"policy-input.txt", 0o1101, 7),
			{Kind: schema.KindExit, PID: 7, HasResult: true},
		},
		policy: []schema.PolicyEvent{
			{SourceEventType: source, Source: "assay://run", ToolCallID: "tc_runner_policy_001", Tool: "read_file",
				Decision: "allow", TNS: 9, Rule: "r"},
			{SourceEventType: "file_blocked", Source: "sandbox", Decision: "deny", Operation: "read",
				Target: "/etc/shadow"},
		},
		sdk: []schema.SDKEvent{
			sdk("tool_call_started", "tc_runner_policy_001", "read_file"),
			sdk("tool_call_completed", "tc_runner_policy_001", "read_file"), sdk("run_finished", "", ""),
		},
		surface: schema.CapabilitySurface{FilesystemPaths: []string{"/tmp/<random>"}, MCPTools: []string{"other"}},
	}
}

// seal records the run and seals it in a form, "" or v0.
func (a agentRun) seal(t *testing.T, compat string) string {
	t.Helper()
	run := testRun(t)
	run.RunID, run.Compat, run.SDKEventLog, run.AgentShim = goldenRunID, compat, a.log, "openai-agents"
	run.Output = filepath.Join(t.TempDir(), "b.tar.gz")
	s, _ := newSpool(t, run)
	add := func(path string, line func(seq uint64) any) {
		err := s.Append(path, func(b []byte, seq uint64) []byte {
			data, err := schema.Line(line(seq))
			if err != nil {
				t.Fatal(err)
			}
			return append(b, data[:len(data)-1]...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	event := func(e schema.Event) {
		add(schema.EventsPath, func(seq uint64) any {
			e.Schema, e.RunID, e.Seq, e.TNS = schema.EventV0, run.RunID, seq, 1
			return e
		})
	}
	shim, ms, yes := "openai-agents", int64(0), true
	event(schema.Event{Type: schema.RunStarted, AgentShim: &shim, Command: []string{"node", "agent.js"},
		EnvKeys: []string{"Z"}, WindowElapsedMS: &ms})
	event(schema.Event{Type: schema.ProcessStarted, PID: 7})
	for _, e := range a.kernel {
		err := s.Append(schema.KernelPath, func(b []byte, seq uint64) []byte {
			e.RunID, e.Seq, e.TNS = run.RunID, seq, int64(seq)
			return schema.AppendJSON(b, &e)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range a.policy {
		add(schema.PolicyPath, func(seq uint64) any {
			e.Schema, e.RunID, e.Seq = schema.PolicyEventV0, run.RunID, seq
			return e
		})
	}
	for _, e := range a.sdk {
		add(schema.SDKPath, func(seq uint64) any {
			e.Schema, e.RunID, e.Seq = schema.SDKEventV0, run.RunID, seq
			return e
		})
	}
	event(schema.Event{Type: schema.RunFinished, ExitCode: schema.Some(0), Signal: schema.None[int](),
		Success: &yes, WindowElapsedMS: &ms})
	zero := 0
	health := schema.ObservationHealth{
		Schema: schema.ObservationHealthV0, RunID: run.RunID, Platform: "linux", KernelLayer: schema.Complete,
		KernelState: schema.Complete,
		PolicyLayer: schema.Present, SDKLayer: schema.SelfReported, CgroupCorrelation: schema.Clean,
		NetworkProtocolCoverage:   schema.ConnectAndDatagram,
		NetworkEndpointClaimScope: schema.PeerSet, Notes: []string{"observer_shared: x"},
		Reasons: []schema.Reason{{Subject: "x", Code: "y", Message: "z"}},
		Hooks:   []schema.Hook{}, Coverage: []schema.Coverage{}, Layers: map[string]schema.LayerCounts{},
		LeftOut:     map[string]uint64{"loader": 1},
		Containment: schema.ByCgroup, TamperResistance: schema.ResistsUser,
	}
	for _, p := range schema.Layers {
		health.Layers[schema.LayerName(p)] = s.Counts(p)
	}
	if a.health != nil {
		a.health(&health)
	}
	a.surface.Schema, a.surface.RunID = schema.CapabilitySurfaceV0, run.RunID
	for _, list := range []*[]string{&a.surface.FilesystemPaths, &a.surface.NetworkEndpoints, &a.surface.ProcessExecs,
		&a.surface.MCPTools, &a.surface.PolicyDecisions} {
		*list = append([]string{}, *list...)
	}
	for path, v := range map[string]any{
		schema.HealthPath: health, schema.SurfacePath: a.surface,
		schema.CorrelationPath: schema.CorrelationReport{Schema: schema.CorrelationReportV0, RunID: run.RunID,
			Status: schema.Partial, Bindings: []schema.Binding{}, Ambiguities: []string{"x"}},
		schema.ResultPath: schema.Result{Schema: schema.ResultV0, RunID: run.RunID, Outcome: schema.OutcomeExited,
			ExitCode: &zero, RunnerExitCode: &zero, LimitsHit: []string{},
			Stdio:   schema.Stdio{Mode: schema.StdioNone},
			Timings: schema.Timings{SetupNS: new(int64), ChildNS: new(int64), CleanupNS: new(int64)}, Leftovers: &zero},
	} {
		doc, err := schema.Document(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Put(path, doc); err != nil {
			t.Fatal(err)
		}
	}
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, sealed.Path)
	return sealed.Path
}

// v0Of seals a run with --compat v0, and exports it from a bundle in our own form: the
// members must be the same but for run.json, which says what was asked for.
func v0Of(t *testing.T, a agentRun) map[string]string {
	t.Helper()
	_, sealed := members(t, a.seal(t, CompatV0))
	out := filepath.Join(t.TempDir(), "v0.tar.gz")
	if _, err := ExportV0(context.Background(), a.seal(t, ""), out, false); err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, out)
	_, exported := members(t, out)
	for path, data := range exported {
		if d := cmp.Diff(sealed[path], data); d != "" && path != schema.RunPath && path != schema.ManifestPath {
			t.Errorf("%s is another when it is exported: %s", path, d)
		}
	}
	twice := filepath.Join(t.TempDir(), "twice.tar.gz")
	if _, err := ExportV0(context.Background(), out, twice, false); err != nil {
		t.Fatal(err)
	}
	if _, again := members(t, twice); !cmp.Equal(again, exported) {
		t.Errorf("exported once more it changes: %s", cmp.Diff(exported, again))
	}
	return sealed
}

func TestV0IsTheGoldenExample(t *testing.T) {
	files := v0Of(t, goldenRun())
	for path, golden := range map[string]string{
		schema.SurfacePath: "capability-surface", schema.HealthPath: "observation-health",
		schema.CorrelationPath: "correlation-report",
	} {
		want, err := os.ReadFile(filepath.Join("..", "schema", "testdata", "golden",
			golden+"-openai-agents-kernel-policy-v0.json"))
		if err != nil {
			t.Fatal(err)
		}
		got := files[path]
		switch path { // the example's run had no connection to name, and its cgroup none either
		case schema.SurfacePath:
			got = strings.Replace(got, "[\n    \"127.0.0.1:80\"\n  ]", "[]", 1)
		case schema.CorrelationPath:
			got = strings.Replace(got, "      \"cgroup_id\": 4242,\n", "", 1)
			got = strings.Replace(got, `"kernel_event_count": 4`, `"kernel_event_count": 2`, 1)
		}
		if d := cmp.Diff(strings.TrimSpace(string(want)), strings.TrimSpace(got)); d != "" {
			t.Errorf("%s (-golden +ours):\n%s", path, d)
		}
	}
	want := map[string]string{
		schema.EventsPath: `{"schema":"assay.runner.event.v0","run_id":"R","seq":0,"type":"run_started","agent_shim":"openai-agents","command":["node","agent.js"],"env_keys":["ASSAY_RUNNER_RUN_ID","ASSAY_RUNNER_SDK_EVENT_LOG","ASSAY_RUNNER_SDK_EVENT_SCHEMA","Z"],"window_elapsed_ms":0}
{"schema":"assay.runner.event.v0","run_id":"R","seq":1,"type":"run_finished","exit_code":0,"signal":null,"success":true,"window_elapsed_ms":0}
`,
		schema.KernelPath: `{"schema":"assay.runner.kernel_event.v0","run_id":"R","seq":0,"pid":7,"event_type":1,"kind":"openat","value":"W/openai-agents-input.txt","flags":524288,"mode":0,"return_value":5,"access_mode":"read","status":"success"}
{"schema":"assay.runner.kernel_event.v0","run_id":"R","seq":1,"pid":7,"event_type":2,"kind":"connect","value":"127.0.0.1:80"}
{"schema":"assay.runner.kernel_event.v0","run_id":"R","seq":2,"pid":7,"event_type":1,"kind":"openat","value":"W/policy-input.txt","flags":524288,"mode":0,"return_value":6,"access_mode":"read","status":"success"}
{"schema":"assay.runner.kernel_event.v0","run_id":"R","seq":3,"pid":7,"event_type":1,"kind":"openat","value":"W/policy-input.txt","flags":577,"mode":0,"return_value":7,"access_mode":"write","operation_flags":["create","truncate"],"status":"success"}
`,
		schema.PolicyPath: `{"schema":"assay.runner.policy_event.v0","run_id":"R","seq":0,"source_event_type":"assay.tool.decision","source":"assay://run","tool_call_id":"tc_runner_policy_001","tool":"read_file","decision":"allow"}
`,
		schema.SDKPath: `{"schema":"assay.runner.sdk_event.v0","run_id":"R","seq":0,"event_type":"tool_call_started","source":"openai-agents","sdk_name":"@openai/agents","sdk_version":"0.0.0","tool_call_id":"tc_runner_policy_001","tool":"read_file"}
{"schema":"assay.runner.sdk_event.v0","run_id":"R","seq":1,"event_type":"tool_call_completed","source":"openai-agents","sdk_name":"@openai/agents","sdk_version":"0.0.0","tool_call_id":"tc_runner_policy_001","tool":"read_file"}
{"schema":"assay.runner.sdk_event.v0","run_id":"R","seq":2,"event_type":"run_finished","source":"openai-agents","sdk_name":"@openai/agents","sdk_version":"0.0.0","tool_call_id":null,"tool":null}
`,
	}
	for path, lines := range want {
		lines = strings.ReplaceAll(strings.ReplaceAll(lines, `"R"`, `"`+goldenRunID+`"`), "W/", goldenWork)
		if d := cmp.Diff(lines, files[path]); d != "" {
			t.Errorf("%s (-want +got):\n%s", path, d)
		}
	}
}

func TestV0KernelLines(t *testing.T) {
	send := func(call, peer string) schema.KernelEvent {
		return schema.KernelEvent{Kind: schema.KindSendto, PID: 7, Value: peer, Call: call}
	}
	repeat := openOf("/repeated", 0, 3)
	repeat.Repeat, repeat.Count = true, 9
	failed := openOf("/missing", 0, -2)
	tried := schema.KernelEvent{Kind: schema.KindOpen, PID: 7, Value: "/tried", Attempted: true}
	runtime := openOf("/work/a.pyc", 0, 3)
	runtime.Class = schema.ClassRuntime
	for name, c := range map[string]struct {
		event schema.KernelEvent
		want  string // the line's end from event_type on; empty: none
	}{
		"a failed open stays": {failed,
			`1,"kind":"openat","value":"/missing","flags":0,"mode":0,"return_value":-2,"access_mode":"read","status":"error"`},
		"an open that was only tried has no word": {tried, ""},
		"a repeat has no count":                   {repeat, ""},
		"another class than agent goes":           {runtime, ""},
		"the loader's cache goes":                 {openOf("/etc/ld.so.cache", 0, 3), ""},
		"a library goes":                          {openOf("/usr/lib/x/y.so", 0, 3), ""},
		"the directory of libraries stays": {openOf("/usr/lib", 0, 3),
			`1,"kind":"openat","value":"/usr/lib","flags":0,"mode":0,"return_value":3,"access_mode":"read","status":"success"`},
		"a package of Node goes":             {openOf("/w/node_modules/a.js", 0, 3), ""},
		"a library of a Rust toolchain goes": {openOf("/h/.rustup/toolchains/s/lib/libx.so.1", 0, 3), ""},
		"another file of a Rust toolchain stays": {openOf("/h/.rustup/toolchains/s/a", 0, 3),
			`1,"kind":"openat","value":"/h/.rustup/toolchains/s/a","flags":0,"mode":0,"return_value":3,"access_mode":"read","status":"success"`},
		"a library of a Rust build goes": {openOf("/w/target/x/release/libx.so", 0, 3), ""},
		"a library elsewhere stays": {openOf("/w/release/libx.so", 0, 3),
			`1,"kind":"openat","value":"/w/release/libx.so","flags":0,"mode":0,"return_value":3,"access_mode":"read","status":"success"`},
		"an exec": {schema.KernelEvent{Kind: schema.KindExec, PID: 7, Value: "/bin/sh",
			Exe: "/bin/sh", Argv: []string{"sh"}, HasResult: true}, `4,"kind":"exec","value":"/bin/sh"`},
		"a connection of a unix socket goes": {schema.KernelEvent{Kind: schema.KindConnect, PID: 7,
			Value: "unix:@x"}, ""},
		"a datagram by sendto": {send("", "1.2.3.4:53"), `6,"kind":"event_6","value":"1.2.3.4:53"`},
		"a datagram by sendmsg": {send("sendmsg", "[::1]:53"),
			`7,"kind":"event_7","value":"[::1]:53"`},
		"several datagrams by sendmmsg": {send("sendmmsg", "1.2.3.4:53"),
			`7,"kind":"event_7","value":"1.2.3.4:53"`},
		"a datagram over a unix socket goes": {send("sendmsg", "unix:/x"), ""},
		"a removal is none of v0's kinds": {schema.KernelEvent{Kind: schema.KindUnlink, PID: 7, Value: "/x",
			HasResult: true}, ""},
		"a denied open": {schema.KernelEvent{Kind: schema.KindFileBlocked, PID: 7,
			Value: "/etc/shadow"}, `10,"kind":"file_blocked","value":"/etc/shadow"`},
		"a denied connection": {schema.KernelEvent{Kind: schema.KindConnectBlocked, PID: 7,
			Value: "198.51.100.7:25", CgroupID: 9, RuleID: 3},
			`20,"kind":"connect_blocked","value":"198.51.100.7:25","cgroup_id":9,"network_destination":"198.51.100.7","network_port":25,"rule_id":3`},
		"bytes that are no UTF-8 are escaped": {openOf("/a\xff", 0, 3),
			`1,"kind":"openat","value":"/a\\xff","flags":0,"mode":0,"return_value":3,"access_mode":"read","status":"success"`},
		"resolve and operation flags where set": {func() schema.KernelEvent {
			e := openOf("/r", 0o2001, 3)
			e.Resolve = 8
			return e
		}(), `1,"kind":"openat","value":"/r","flags":1025,"mode":0,"resolve":8,"return_value":3,"access_mode":"write","operation_flags":["append"],"status":"success"`},
		"a path on a file system of the kernel": {openOf("/proc/self/maps", 0, 3), ""},
		"a path that only begins like one of them": {openOf("/process", 0, 3),
			`1,"kind":"openat","value":"/process","flags":0,"mode":0,"return_value":3,"access_mode":"read","status":"success"`},
	} {
		t.Run(name, func(t *testing.T) {
			lines := v0Of(t, agentRun{kernel: []schema.KernelEvent{c.event}})[schema.KernelPath]
			want := ""
			if c.want != "" {
				want = fmt.Sprintf(`{"schema":"assay.runner.kernel_event.v0","run_id":%q,"seq":0,"pid":7,"event_type":%s}`+"\n",
					goldenRunID, c.want)
				if err := schema.Validate(schema.KernelEventV0, []byte(want)); err != nil {
					t.Error(err)
				}
			}
			if d := cmp.Diff(want, lines); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestV0Claims(t *testing.T) {
	connect := schema.KernelEvent{Kind: schema.KindConnect, PID: 7, Value: "1.2.3.4:5", HasResult: true}
	send := schema.KernelEvent{Kind: schema.KindSendto, PID: 7, Value: "1.2.3.4:5"}
	lost := func(hook string) func(*schema.ObservationHealth) {
		return func(h *schema.ObservationHealth) {
			h.SetKernelLayer(schema.PartialRingbufDrops)
			h.RingbufDrops, h.Hooks = 2,
				[]schema.Hook{{Name: hook, Seen: 2, Dropped: 2}}
		}
	}
	off := func(h *schema.ObservationHealth) {
		h.SetKernelLayer(schema.Absent)
		h.NetworkProtocolCoverage, h.NetworkEndpointClaimScope, h.CgroupCorrelation = schema.Absent,
			schema.NotApplicable, schema.Partial
		h.Notes = []string{"contract_only_mode: kernel layer absent; switched off"}
	}
	none := func(*schema.ObservationHealth) {}
	for name, c := range map[string]struct {
		kernel          []schema.KernelEvent
		health          func(*schema.ObservationHealth)
		coverage, scope string
		note            string
	}{
		"nothing of the network": {nil, none, "absent", "not_applicable",
			"s2_kernel_capture: monitor_events=0 ringbuf_drops=0 network_protocol_coverage=absent " +
				"network_endpoint_claim_scope=not_applicable"},
		"connections": {[]schema.KernelEvent{connect}, none, "connect_only", "diagnostic_only",
			"s2_kernel_capture: monitor_events=1 ringbuf_drops=0 network_protocol_coverage=connect_only " +
				"network_endpoint_claim_scope=diagnostic_only"},
		"datagrams": {[]schema.KernelEvent{send}, none, "datagram_peer_observed", "diagnostic_only",
			"s2_kernel_capture: monitor_events=1 ringbuf_drops=0 network_protocol_coverage=datagram_peer_observed " +
				"network_endpoint_claim_scope=diagnostic_only"},
		"both": {[]schema.KernelEvent{connect, send}, none, "connect_and_datagram_peer_observed",
			"diagnostic_only", "s2_kernel_capture: monitor_events=2 ringbuf_drops=0 " +
				"network_protocol_coverage=connect_and_datagram_peer_observed " +
				"network_endpoint_claim_scope=diagnostic_only"},
		"lost events of files": {[]schema.KernelEvent{connect}, lost("syscall/open"), "connect_only",
			"diagnostic_only", "s2_kernel_capture: monitor_events=1 ringbuf_drops=2 " +
				"network_protocol_coverage=connect_only network_endpoint_claim_scope=diagnostic_only"},
		"lost events of networks": {[]schema.KernelEvent{connect}, lost("cgroup/connect4"), "unknown", "unknown",
			"s2_kernel_capture: monitor_events=1 ringbuf_drops=2 network_protocol_coverage=unknown " +
				"network_endpoint_claim_scope=unknown"},
		"without a kernel layer": {nil, off, "absent", "not_applicable",
			"contract_only_mode: kernel layer absent; switched off"},
		"an account that lost some": {nil, func(h *schema.ObservationHealth) {
			h.SetKernelLayer(schema.PartialRingbufDrops)
			h.Kernel = &schema.KernelAccount{Received: 1, Emitted: 1, Decoded: 1, Dropped: 1}
			h.Hooks = []schema.Hook{{Name: "x", Seen: 1, Emitted: 1}}
		}, "unknown", "unknown",
			"s2_kernel_capture: monitor_events=0 ringbuf_drops=0 network_protocol_coverage=unknown " +
				"network_endpoint_claim_scope=unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			doc := v0Of(t, agentRun{kernel: c.kernel, health: func(h *schema.ObservationHealth) {
				h.PolicyLayer, h.SDKLayer = schema.Absent, schema.Absent
				c.health(h)
			}})[schema.HealthPath]
			var h schema.ObservationHealth
			if err := json.Unmarshal([]byte(doc), &h); err != nil {
				t.Fatal(err)
			}
			if h.NetworkProtocolCoverage != c.coverage || h.NetworkEndpointClaimScope != c.scope ||
				!slices.Equal(h.Notes, []string{c.note}) {
				t.Errorf("got %s, %s, %q", h.NetworkProtocolCoverage, h.NetworkEndpointClaimScope, h.Notes)
			}
			for _, key := range []string{"kernel_state", "reasons", "hooks", "coverage", "layers", "kernel", "left_out",
				"containment", "tamper_resistance"} {
				if strings.Contains(doc, `"`+key+`":`) {
					t.Errorf("%s is in\n%s", key, doc)
				}
			}
		})
	}
}

func TestV0Redaction(t *testing.T) {
	counts := map[string]uint64{"x": 1}
	for name, c := range map[string]struct {
		ours schema.Redaction
		want redactionV0
	}{
		"enabled": {schema.Redaction{Mode: schema.RedactionEnabled, KeyScope: "host", KeyID: "0123456789abcdef"},
			redactionV0{Mode: "shape_and_flag", KeyScope: "host_local", KeyID: "hmac-sha256:01234567"}},
		"ephemeral": {schema.Redaction{Mode: schema.RedactionEnabled, KeyScope: "ephemeral", KeyID: "0123456789abcdef"},
			redactionV0{Mode: "shape_and_flag", KeyScope: "ephemeral", KeyID: "hmac-sha256:01234567"}},
		"recovered": {schema.Redaction{Mode: schema.RedactionRecovered, NotSearched: []string{"y"}},
			redactionV0{Mode: "shape_only", KeyScope: "ephemeral", KeyID: "none"}},
		"disabled": {schema.Redaction{Mode: schema.RedactionDisabled},
			redactionV0{Mode: "disabled_unsafe", KeyScope: "ephemeral", KeyID: "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.ours.RedactedCount, c.ours.ByRule, c.ours.ByField = 1, counts, counts
			c.want.RedactedCount, c.want.ByRule, c.want.ByField = 1, counts, counts
			a := goldenRun()
			a.health = func(h *schema.ObservationHealth) { h.Redaction = &c.ours }
			var h struct {
				Redaction redactionV0 `json:"redaction"`
			}
			if err := json.Unmarshal([]byte(v0Of(t, a)[schema.HealthPath]), &h,
				json.RejectUnknownMembers(false)); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, h.Redaction); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestV0Correlation(t *testing.T) {
	off := func(h *schema.ObservationHealth) {
		h.SetKernelLayer(schema.Absent)
		h.NetworkProtocolCoverage, h.NetworkEndpointClaimScope, h.CgroupCorrelation = schema.Absent,
			schema.NotApplicable, schema.Partial
	}
	for name, c := range map[string]struct {
		change      func(*agentRun)
		status      string
		ambiguities []string
		cgroups     []uint64
		counts      []uint64
	}{
		"matching ids": {func(*agentRun) {}, "clean", []string{}, []uint64{4242}, []uint64{4}},
		"mismatching ids, in their order": {func(a *agentRun) {
			a.sdk[0].ToolCallID, a.sdk[1].ToolCallID = "tc_z", "tc_b"
		}, "partial", []string{"sdk_tool_call_without_policy_binding:tc_b",
			"sdk_tool_call_without_policy_binding:tc_z"}, []uint64{4242}, []uint64{4}},
		"two decisions": {func(a *agentRun) {
			a.policy = append(a.policy,
				schema.PolicyEvent{SourceEventType: "x", Source: "y", ToolCallID: "tc_2", Tool: "z", Decision: "deny"})
		}, "partial", []string{"session_cgroup_ambiguous_for_multiple_policy_events"}, []uint64{0, 0}, []uint64{4, 4}},
		"a decision without events": {func(a *agentRun) {
			a.kernel = a.kernel[:1]
		}, "partial", []string{"policy_events_without_kernel_events"}, []uint64{4242}, []uint64{0}},
		"without a kernel layer": {func(a *agentRun) {
			a.kernel, a.health = nil, off
			a.policy = append(a.policy, a.policy[0])
		}, "partial", []string{"policy_events_without_kernel_events"}, []uint64{0, 0}, []uint64{0, 0}},
		"without a policy nothing is ambiguous": {func(a *agentRun) { a.policy = nil }, "clean", []string{}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := goldenRun()
			c.change(&a)
			var got correlationV0
			d := json.RejectUnknownMembers(true)
			if err := json.Unmarshal([]byte(v0Of(t, a)[schema.CorrelationPath]), &got, d); err != nil {
				t.Fatal(err)
			}
			var cgroups, counts []uint64
			for _, b := range got.Bindings {
				cgroups, counts = append(cgroups, b.CgroupID), append(counts, b.KernelEventCount)
			}
			if got.Status != c.status || !slices.Equal(got.Ambiguities, c.ambiguities) ||
				!slices.Equal(cgroups, c.cgroups) || !slices.Equal(counts, c.counts) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestV0OfARecoveredRun(t *testing.T) {
	run := testRun(t)
	run.Compat = CompatV0
	s, dir := newSpool(t, run)
	appendEvent(t, s, schema.Event{Type: schema.RunStarted, AgentShim: new(string), Command: []string{"x"},
		EnvKeys: []string{}, WindowElapsedMS: new(int64)})
	for range 3 {
		if err := s.Append(schema.KernelPath, func(b []byte, seq uint64) []byte {
			e := openOf(fmt.Sprintf("/x%d", seq), 0, 3)
			e.RunID, e.Seq = testRunID, seq
			return schema.AppendJSON(b, &e)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sealed, err := Recover(context.Background(), dir, testRunID, RecoverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, sealed.Path)
	_, files := members(t, sealed.Path)
	if n := strings.Count(files[schema.KernelPath], "kernel_event.v0"); n != 3 ||
		strings.Contains(files[schema.HealthPath], "reasons") {
		t.Errorf("%d lines, and\n%s", n, files[schema.HealthPath])
	}
}

// Somebody changes a layer after it was written: what is projected says so.
func TestV0OfAChangedLayer(t *testing.T) {
	run := testRun(t)
	run.Compat = CompatV0
	s, _ := newSpool(t, run)
	record(t, s, 3)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	file := layerFile(s.Dir(), schema.KernelPath)
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, bytes.Replace(data, []byte(`"pid":`), []byte(`"pid":9`), 1)[:len(data)], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed.Tampered) != 1 || sealed.Tampered[0].Path != schema.KernelPath {
		t.Errorf("found %v", sealed.Tampered)
	}
	if _, files := members(t, sealed.Path); !strings.Contains(files[schema.ResultPath], `"tampered"`) {
		t.Error(files[schema.ResultPath])
	}
	mustBeSound(t, sealed.Path)
}
