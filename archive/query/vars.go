package query

import (
	"slices"

	"cel.dev/cel-go/cel"
)

// Subject is the kind of thing for which an expression is evaluated.
type Subject string

const (
	Events    Subject = "events"    // kernel events
	Processes Subject = "processes" // processes of the run
	Calls     Subject = "calls"     // tool calls and what was observed of them
	Turns     Subject = "turns"     // actions that went through the gateway
	Runs      Subject = "runs"      // bundles
)

// Subjects lists all subjects in the order of the documentation.
var Subjects = []Subject{Events, Processes, Calls, Turns, Runs}

// Var is a variable of an expression.
type Var struct {
	Name string
	Type *cel.Type
	Doc  string
}

var (
	texts  = cel.ListType(cel.StringType)
	labels = cel.MapType(cel.StringType, cel.StringType)
)

// shared are the variables that every subject has.
var shared = []Var{
	{"run.id", cel.StringType, "the run's id"},
	{"run.bundle", cel.StringType, "the bundle's name on the command line"},
	{"run.verified", cel.BoolType, "the bundle verifies"},
	{"run.command", texts, "the command and its arguments"},
	{"run.workdir", cel.StringType, "where the command started"},
	{"run.started", cel.StringType, "when it started, RFC 3339"},
	{"run.labels", labels, "the labels of the run"},
	{"run.outcome", cel.StringType,
		"exited, signaled, timeout, oom, limit, cancelled, policy_killed, infra_error, incomplete, reported"},
	{"run.exit_code", cel.IntType, "the command's own, -1 when it has none"},
	{"run.signal", cel.StringType, "the signal that ended it"},
	{"run.contract", cel.StringType, "the outcome contract's verdict, empty without one"},
	{"run.limits_hit", texts, "the limits that were enforced"},
	{"run.mode", cel.StringType, "the sandbox mode that applied; empty if it was not recorded, as are the next two"},
	{"run.network", cel.StringType, "the network that applied: host, none, loopback or allowlist"},
	{"run.policy", cel.StringType, "the digest of the policy's file that applied"},
	{"run.seconds", cel.DoubleType, "how long the command ran"},
	{"run.cpu_seconds", cel.DoubleType, "processor time; 0 when not known"},
	{"run.memory_bytes", cel.IntType, "the peak; 0 when not known"},
	{"health.kernel", cel.StringType, "complete, partial or absent"},
	{"health.policy", cel.StringType, "present or absent"},
	{"health.sdk", cel.StringType, "present, self_reported or absent"},
	{"health.cgroup", cel.StringType, "clean, partial or failed"},
	{"health.network", cel.StringType, "the network protocols that were observed"},
	{"health.endpoints", cel.StringType, "what the list of endpoints is: peer_set, diagnostic_only, ..."},
	{"health.drops", cel.IntType, "kernel events that were lost"},
	{"health.correlation", cel.StringType, "how well calls and events match: clean, partial or failed"},
	{"health.reasons", texts, "the codes of what limits the claims"},
	{"model.layer", cel.StringType,
		"complete, unconfirmed, partial or absent; empty without a model gateway, as are all model variables"},
	{"model.path", cel.StringType,
		"whether models could be reached past the gateway: only, alone, bypass_possible, unknown"},
	{"model.bypasses", texts, "the hosts that may have answered for a model past the gateway"},
	{"model.requests", cel.IntType, "requests to models, refused ones included"},
	{"model.refused", cel.IntType, "requests that the gateway refused"},
	{"model.input_tokens", cel.IntType, "with cached ones; -1 when no answer says it"},
	{"model.cache_read_tokens", cel.IntType, "input that was read from a cache; -1 when no answer says it"},
	{"model.cache_creation_tokens", cel.IntType, "input that was written to a cache; -1 when no answer says it"},
	{"model.output_tokens", cel.IntType, "with those of reasoning; -1 when no answer says it"},
	{"model.reasoning_tokens", cel.IntType, "-1 when no answer says it"},
	{"model.usage_unknown", cel.IntType, "answers that do not say what they used"},
	{"model.cost", cel.DoubleType, "by the price list; -1 when not known"},
	{"model.cost_unknown", cel.IntType, "answers whose cost is not known"},
	{"model.proposed_not_called", cel.IntType, "tool calls that models proposed and nobody reported"},
	{"model.called_not_proposed", cel.IntType, "tool calls that were reported and no model proposed"},
	{"model.arguments_differ", cel.IntType, "tool calls with other arguments than were proposed"},
}

// vars are the variables of each subject, without the shared ones.
var vars = map[Subject][]Var{
	Events: {
		{"kind", cel.StringType, "openat, exec, connect, write, unlink, ... (assay-run events has the same)"},
		{"seq", cel.IntType, "the number of the line, from 0"},
		{"t", cel.DoubleType, "seconds since the run started"},
		{"pid", cel.IntType, "the process"},
		{"tid", cel.IntType, "the thread"},
		{"exec_id", cel.IntType, "the process instance, never used twice"},
		{"class", cel.StringType, "agent, loader, locale, runtime, introspection, lookup, check, runner, setup"},
		{"container_id", cel.StringType, "the container whose process acted; else empty"},
		{"value", cel.StringType, "what was acted on, as in the bundle"},
		{"path", cel.StringType, "value, where it is a path; else empty"},
		{"target", cel.StringType, "the second name of a rename, link or symlink"},
		{"endpoint", cel.StringType, "address:port of the peer; else empty"},
		{"host", cel.StringType, "the peer's name where DNS or TLS told it, else its address"},
		{"address", cel.StringType, "the peer's address"},
		{"port", cel.IntType, "the peer's port; 0 without one"},
		{"names", texts, "all names of the peer"},
		{"network_namespace", cel.StringType,
			"of a network event: empty in the command's own network namespace, other, or unknown: it may be another"},
		{"protocol", cel.StringType, "tcp, udp, unix, ..."},
		{"result", cel.StringType, "ok, error, blocked, or - where it is not known"},
		{"errno", cel.StringType, "ENOENT, ... of a failed call"},
		{"writes", cel.BoolType, "it changed a file or opened one for that"},
		{"flags", cel.IntType, "the call's flags"},
		{"mode", cel.IntType, "the create mode or the new mode"},
		{"count", cel.IntType, "how many occurrences the event stands for"},
		{"bytes_out", cel.IntType, "bytes written or sent"},
		{"bytes_in", cel.IntType, "bytes read or received"},
		{"exe", cel.StringType, "the program that the process executes"},
		{"argv", texts, "its arguments"},
		{"command", cel.StringType, "its arguments, joined with spaces"},
		{"cwd", cel.StringType, "where it was executed"},
		{"call", cel.StringType, "the system call, where a kind has several"},
		{"tool_call", cel.StringType, "the tool call that the event belongs to"},
		{"bound_by", cel.StringType, "how that is known: cgroup, env, lineage, window"},
		{"exit_code", cel.IntType, "of an exit event; -1 else"},
		{"signal", cel.StringType, "of an exit event that a signal caused"},
	},
	Processes: {
		{"pid", cel.IntType, "the process"},
		{"ppid", cel.IntType, "its parent"},
		{"exe", cel.StringType, "the program it executed last"},
		{"argv", texts, "its arguments"},
		{"command", cel.StringType, "its arguments, joined with spaces"},
		{"cwd", cel.StringType, "where it was executed"},
		{"parent_exe", cel.StringType, "its parent's program"},
		{"execs", cel.IntType, "how many programs it executed"},
		{"start", cel.DoubleType, "seconds since the run started"},
		{"seconds", cel.DoubleType, "how long it lived; -1 when its end was not seen"},
		{"exit_code", cel.IntType, "-1 when it has none"},
		{"signal", cel.StringType, "the signal that ended it"},
	},
	Calls: {
		{"id", cel.StringType, "the tool call's id"},
		{"tool", cel.StringType, "the tool's name"},
		{"decision", cel.StringType, "what policy decided"},
		{"method", cel.StringType, "how events are known to be its own: cgroup, env, lineage, window"},
		{"events", cel.IntType, "how many kernel events belong to it"},
		{"start", cel.DoubleType, "seconds since the run started; -1 when not known"},
		{"seconds", cel.DoubleType, "how long it took; -1 when not known"},
		{"files", texts, "files it opened or changed"},
		{"written", texts, "files it changed"},
		{"hosts", texts, "endpoints it contacted"},
		{"commands", texts, "commands it executed"},
		{"model_seq", cel.IntType, "the line of the model layer that proposed it; -1 when not known"},
		{"matched_by", cel.StringType, "how that is known: id, arguments"},
		{"beyond", cel.BoolType, "it did what its name or the policy rules out"},
		{"unobserved", cel.StringType, "why nothing was observed of it; empty otherwise"},
	},
	Turns: {
		{"id", cel.StringType, "the tool call's id"},
		{"tool", cel.StringType, "the tool's name"},
		{"params", cel.DynType, "its parameters"},
		{"output", cel.DynType, "its result; null when it has none"},
		{"verdict", cel.StringType, "pass, fail or not_run"},
		{"rejected_by", cel.StringType, "the step that rejected it; empty otherwise"},
		{"rule", cel.StringType, "the policy rule that rejected it"},
		{"error", cel.StringType, "the code of a call that failed"},
		{"source", cel.StringType, "gateway or reported"},
		{"start", cel.DoubleType, "seconds since the run started"},
		{"seconds", cel.DoubleType, "how long it took"},
	},
	Runs: {
		{"programs", texts, "every program that was executed, from the capability surface"},
		{"files", texts, "every path that was touched, from the capability surface"},
		{"hosts", texts, "every endpoint, from the capability surface"},
		{"tools", texts, "every tool"},
		{"decisions", texts, "every policy decision, as allow:tool"},
		{"calls", cel.IntType, "how many tool calls were reported"},
	},
}

// Vars returns the variables of a subject, its own before the shared ones.
func Vars(s Subject) []Var { return slices.Concat(vars[s], shared) }
