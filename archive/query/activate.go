package query

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// Run holds the values of the variables that every subject has, and of those of subject runs. It is safe for concurrent
// use.
type Run map[string]ref.Val

// ResolveName returns a variable's value, for CEL.
func (r Run) ResolveName(name string) (any, bool) {
	v, ok := r[name]
	return v, ok
}

// Parent returns nil: there is no outer activation.
func (r Run) Parent() interpreter.Activation { return nil }

// RunOf returns the values of a bundle.
func RunOf(b *view.Bundle) Run {
	run := newRun(b.Name, b.Verified())
	for _, values := range []map[string]any{factsOf(b.Docs), listsOf(b.Docs)} {
		for name, v := range values {
			run[name] = native(v)
		}
	}
	return run
}

// newRun sets the variables that do not come from the bundle's documents.
func newRun(name string, verified bool) Run {
	return Run{"run.bundle": native(name), "run.verified": native(verified)}
}

// factsOf returns the values of all variables of a run but ListVars.
func factsOf(d *archive.Documents) map[string]any {
	run, res, h := &d.Run, &d.Result, &d.Health
	exit, seconds, cpu, memory := int64(-1), 0.0, 0.0, int64(0)
	if res.ExitCode != nil {
		exit = int64(*res.ExitCode)
	}
	if res.Timings.ChildNS != nil {
		seconds = float64(*res.Timings.ChildNS) / 1e9
	}
	if u := res.Usage; u.CPUUserNS != nil && u.CPUSystemNS != nil {
		cpu = float64(*u.CPUUserNS+*u.CPUSystemNS) / 1e9
	}
	if res.Usage.MemoryPeakBytes != nil {
		memory = *res.Usage.MemoryPeakBytes
	}
	reasons := []string{}
	for _, r := range h.Reasons {
		reasons = append(reasons, r.Code)
	}
	labels := d.Labels()
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	var applied schema.Applied
	policy := ""
	if run.Applied != nil {
		applied = *run.Applied
	}
	if applied.Policy != nil {
		policy = applied.Policy.Digest
	}
	values := map[string]any{
		"run.id": run.RunID, "run.command": list(run.Command), "run.workdir": run.Workdir, "run.started": run.StartedAt,
		"run.labels": labels, "run.outcome": res.Outcome, "run.exit_code": exit, "run.signal": text(res.Signal),
		"run.contract": text(res.Contract), "run.limits_hit": list(res.LimitsHit), "run.seconds": seconds,
		"run.mode": applied.Mode.Value, "run.network": applied.Network.Value, "run.policy": policy,
		"run.cpu_seconds": cpu, "run.memory_bytes": memory,
		"health.kernel": schema.KernelState(h.KernelLayer), "health.policy": h.PolicyLayer, "health.sdk": h.SDKLayer,
		"health.cgroup": h.CgroupCorrelation, "health.network": h.NetworkProtocolCoverage,
		"health.endpoints": h.NetworkEndpointClaimScope, "health.drops": int64(h.RingbufDrops),
		"health.correlation": d.Correlation.Status, "health.reasons": reasons,
		"calls": int64(len(d.Correlation.Bindings)),
	}
	maps.Copy(values, modelOf(d))
	return values
}

// modelOf returns the values of the variables about models.
func modelOf(d *archive.Documents) map[string]any {
	h, c, total := &d.Health, &d.Correlation, schema.ModelTotals{}
	if d.Result.Model != nil {
		total = *d.Result.Model
	}
	known := func(n *int64) int64 {
		if n == nil {
			return -1
		}
		return *n
	}
	cost := -1.0
	if total.Cost != nil {
		cost = *total.Cost
	}
	bypasses := []string{}
	for _, b := range h.ModelBypasses {
		bypasses = append(bypasses, cmp.Or(b.Name, b.Endpoint))
	}
	return map[string]any{
		"model.layer": h.ModelLayer, "model.path": h.ModelPath, "model.bypasses": bypasses,
		"model.requests": int64(total.Requests), "model.refused": int64(total.Refused),
		"model.input_tokens": known(total.InputTokens), "model.output_tokens": known(total.OutputTokens),
		"model.cache_read_tokens":     known(total.CacheReadInputTokens),
		"model.cache_creation_tokens": known(total.CacheCreationInputTokens),
		"model.reasoning_tokens":      known(total.ReasoningOutputTokens),
		"model.usage_unknown":         int64(total.UsageUnknown),
		"model.cost":                  cost, "model.cost_unknown": int64(total.CostUnknown),
		"model.proposed_not_called": int64(len(c.ProposedNotCalled)),
		"model.called_not_proposed": int64(len(c.CalledNotProposed)),
		"model.arguments_differ":    int64(len(c.ArgumentsDiffer)),
	}
}

// listsOf returns the values of ListVars.
func listsOf(d *archive.Documents) map[string]any {
	s := &d.Surface
	return map[string]any{
		"programs": list(s.ProcessExecs), "files": list(s.FilesystemPaths), "hosts": list(s.NetworkEndpoints),
		"tools": list(s.MCPTools), "decisions": list(s.PolicyDecisions),
	}
}

// ListVars are the variables of a run that may be large, since a run can touch a million files.
var ListVars = []string{"programs", "files", "hosts", "tools", "decisions"}

// FactsOf encodes the values of a run's variables as JSON, to be stored: lists are those of ListVars, facts the others.
func FactsOf(d *archive.Documents) (facts, lists []byte, err error) {
	if facts, err = json.Marshal(factsOf(d)); err != nil {
		return nil, nil, err
	}
	lists, err = json.Marshal(listsOf(d))
	return facts, lists, err
}

// Stored returns the values of the variables that a program uses, from what FactsOf encoded of a bundle that was
// verified. It is an error if a value is missing or has the wrong type.
func Stored(name string, p *Program, facts, lists []byte) (Run, error) {
	run := newRun(name, true)
	given := map[string]jsontext.Value{}
	for _, values := range [][]byte{facts, lists} {
		if len(values) == 0 {
			continue
		}
		if err := json.Unmarshal(values, &given); err != nil {
			return nil, err
		}
	}
	for _, v := range Vars(Runs) {
		if _, ok := run[v.Name]; ok || !p.Uses(v.Name) {
			continue
		}
		value, err := decode(given[v.Name], v.Type)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		run[v.Name] = native(value)
	}
	return run, nil
}

// decode decodes a value of a variable's type.
func decode(from jsontext.Value, t *cel.Type) (any, error) {
	switch t {
	case cel.IntType:
		return decodeAs[int64](from)
	case cel.DoubleType:
		return decodeAs[float64](from)
	case texts:
		return decodeAs[[]string](from)
	case labels:
		return decodeAs[map[string]string](from)
	}
	return decodeAs[string](from)
}

func decodeAs[T any](from jsontext.Value) (v T, err error) { return v, json.Unmarshal(from, &v) }

// list returns l, or an empty list for nil.
func list(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

// Event resolves the variables of kernel events. K and Bytes change with each event, Run and Table stay the same. A
// value is made when it is asked for.
type Event struct {
	Run   Run
	Table *facts.Table // nil if no variable needs it
	K     *schema.KernelEvent
	Bytes int // length of its line

	// answer caches the results of the program last by exec_id; see evalEvent.
	last   *Program
	answer map[uint64]bool
}

// processVars are the variables of events that stay the same between two execs of a process.
var processVars = []string{"exe", "argv", "command", "cwd"}

// Parent returns nil: there is no outer activation.
func (e *Event) Parent() interpreter.Activation { return nil }

// ResolveName returns a variable's value, for CEL.
func (e *Event) ResolveName(name string) (any, bool) {
	k := e.K
	switch name {
	case "kind":
		return types.String(k.Kind.String()), true
	case "seq":
		return types.Int(k.Seq), true
	case "t":
		return types.Double(float64(k.TNS) / 1e9), true
	case "pid":
		return types.Int(k.PID), true
	case "tid":
		return types.Int(k.TID), true
	case "exec_id":
		return types.Int(k.ExecID), true
	case "container_id":
		return types.String(k.ContainerID), true
	case "class":
		return types.String(k.Class.String()), true
	case "value":
		return types.String(k.Value), true
	case "path":
		return types.String(view.Path(k)), true
	case "target":
		return types.String(k.Target), true
	case "endpoint", "host", "address", "port":
		return e.network(name), true
	case "network_namespace":
		if e.Table == nil {
			return types.String(""), true
		}
		return types.String(e.Table.Network(k)), true
	case "names":
		return native(list(k.Names)), true
	case "protocol":
		return types.String(k.Protocol), true
	case "result":
		return types.String(resultWord(k)), true
	case "errno":
		return types.String(k.Errno()), true
	case "writes":
		return types.Bool(k.Modifies()), true
	case "flags":
		return types.Int(int64(k.Flags)), true
	case "mode":
		return types.Int(k.Mode), true
	case "count":
		return types.Int(int64(k.Times())), true
	case "bytes_out":
		return types.Int(int64(k.BytesOut)), true
	case "bytes_in":
		return types.Int(int64(k.BytesIn)), true
	case "exe", "argv", "command", "cwd":
		return e.program(name), true
	case "call":
		return types.String(k.Call), true
	case "tool_call":
		return types.String(k.ToolCallID), true
	case "bound_by":
		return types.String(k.BoundBy), true
	case "exit_code":
		if k.Kind == schema.KindExit && k.WaitStatus&0x7f == 0 {
			return types.Int(k.WaitStatus >> 8 & 0xff), true
		}
		return types.Int(-1), true
	case "signal":
		if k.Kind == schema.KindExit && k.WaitStatus&0x7f != 0 {
			return types.String(schema.SignalName(k.WaitStatus & 0x7f)), true
		}
		return types.String(""), true
	}
	return e.Run.ResolveName(name)
}

func (e *Event) network(name string) ref.Val {
	k := e.K
	endpoint, ok := Endpoint(k)
	var addr netip.AddrPort
	if ok {
		addr, _ = netip.ParseAddrPort(endpoint)
	}
	switch name {
	case "endpoint":
		return types.String(endpoint)
	case "port":
		return types.Int(addr.Port())
	case "address":
		if addr.IsValid() {
			return types.String(addr.Addr().String())
		}
		return types.String("")
	}
	switch {
	case k.Kind == schema.KindDNS, k.Kind == schema.KindTLS:
		return types.String(k.Value)
	case len(k.Names) > 0:
		return types.String(k.Names[0])
	case addr.IsValid():
		return types.String(addr.Addr().String())
	}
	return types.String(endpoint)
}

// Endpoint returns the peer of an event; ok is false if it is not about a peer.
func Endpoint(k *schema.KernelEvent) (string, bool) {
	switch k.Kind {
	case schema.KindConnect, schema.KindConnectBlocked, schema.KindAccept, schema.KindSendto, schema.KindFlow,
		schema.KindConnectResult, schema.KindForeignSocket, schema.KindInherited:
		return k.Value, true
	case schema.KindDNS, schema.KindTLS:
		return k.Remote, true
	}
	return "", false
}

// ofProcess returns the executable, arguments and working directory of the process that acted.
func (e *Event) ofProcess() (exe string, argv []string, cwd string) {
	exe, argv, cwd = e.K.Exe, e.K.Argv, e.K.Cwd
	switch {
	case e.K.Kind == schema.KindExec:
		exe = e.K.Value
	case e.Table != nil:
		exe, argv, cwd = e.Table.Program(e.K.ExecID)
	}
	return exe, argv, cwd
}

// small reports whether no variable of the event is larger than smallEvent.
func (e *Event) small() bool {
	exe, argv, cwd := e.ofProcess()
	n := len(exe) + len(cwd)
	for _, a := range argv {
		n += len(a) + len(`,""`)
	}
	return e.Bytes > 0 && max(e.Bytes, n) <= smallEvent
}

func (e *Event) program(name string) ref.Val {
	exe, argv, cwd := e.ofProcess()
	switch name {
	case "exe":
		return types.String(exe)
	case "cwd":
		return types.String(cwd)
	case "command":
		return types.String(strings.Join(argv, " "))
	}
	return native(list(argv))
}

// resultWord returns "ok", "error", "blocked", or "-" if the result is not known.
func resultWord(k *schema.KernelEvent) string {
	switch {
	case k.Blocked():
		return "blocked"
	case k.Failed():
		return "error"
	case k.HasResult:
		return "ok"
	}
	return "-"
}
