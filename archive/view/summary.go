package view

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/facts"
)

// Summary is what "inspect" says about a run. Every list begins with the items that matter most to a reviewer;
// items of the same rank are in the order in which they were first seen. Each list counts what it leaves out.
type Summary struct {
	Schema   string   `json:"schema"` // schema.InspectionV0
	RunID    string   `json:"run_id"`
	Identity string   `json:"identity"`
	Command  []string `json:"command"`
	Outcome  string   `json:"outcome"`
	// Ending says in words how the run ended.
	Ending   string  `json:"ending"`
	ExitCode *int    `json:"exit_code"`
	Signal   *string `json:"signal"`
	// ChildNS is how long the command ran, null if its end was not recorded.
	ChildNS   *int64              `json:"child_ns"`
	Error     *schema.ResultError `json:"error,omitempty"`
	Workdir   string              `json:"workdir"`
	StartedAt string              `json:"started_at"`
	Usage     schema.Usage        `json:"usage"`
	Stdio     schema.Stdio        `json:"stdio"`
	Limits    schema.Limits       `json:"limits"`
	LimitsHit []string            `json:"limits_hit"`
	Model     *schema.ModelTotals `json:"model,omitempty"`
	Leftovers *int                `json:"leftovers"`
	Contract  *string             `json:"contract"`
	// StrictChecks is true if each check had directories, an environment and a network of its own.
	StrictChecks bool `json:"strict_checks,omitempty"`
	// Checks are the contract's checks, and Protected the changes to its protected paths. Recorder is the program
	// that recorded the run.
	Checks    []schema.CheckSummary    `json:"checks,omitempty"`
	Protected []schema.ProtectedChange `json:"protected_changes,omitempty"`
	Labels    map[string]string        `json:"labels,omitempty"`
	Recorder  string                   `json:"recorder"`

	// What may be claimed, from observation-health.json.
	KernelLayer   string                        `json:"kernel_layer"`
	KernelState   string                        `json:"kernel_state"`
	PolicyLayer   string                        `json:"policy_layer"`
	SDKLayer      string                        `json:"sdk_layer"`
	ModelLayer    string                        `json:"model_layer,omitempty"`
	ModelPath     string                        `json:"model_path,omitempty"`
	ModelBypasses []schema.ModelBypass          `json:"model_bypasses,omitempty"`
	Correlation   string                        `json:"cgroup_correlation"`
	Layers        map[string]schema.LayerCounts `json:"layers"`
	RingbufDrops  uint64                        `json:"ringbuf_drops"`
	Network       string                        `json:"network_protocol_coverage"`
	EndpointScope string                        `json:"network_endpoint_claim_scope"`
	Reasons       []schema.Reason               `json:"reasons"`
	Containment   string                        `json:"containment,omitempty"`
	Resistance    string                        `json:"tamper_resistance,omitempty"`
	ClosedBook    *schema.ClosedBook            `json:"closed_book,omitempty"`
	Redaction     *schema.Redaction             `json:"redaction,omitempty"`
	// Claims say what may be concluded from the bundle, and what may not.
	Claims []Sentence `json:"claims"`
	// Evaluation are the verdicts of the evaluation rules. The caller sets it; empty without an evaluation file.
	Evaluation []schema.EvaluationVerdict `json:"evaluation,omitempty"`
	// Applied is what the run was under; nil if that was not recorded.
	Applied *schema.Applied `json:"applied,omitempty"`

	// Home is the command's home directory in a sandbox; nil if it is not known.
	Home *schema.Home `json:"home,omitempty"`

	// Events, ByKind and ByClass count events. A line that stands for several repeats counts as several.
	Events  uint64            `json:"events"`
	ByKind  map[string]uint64 `json:"by_kind"`
	ByClass map[string]uint64 `json:"by_class"`

	// Calls are the tool calls, and Unreported are actions outside them. CallStatus says how well the two could be
	// told apart, and Ambiguities name what could not.
	CallStatus  string              `json:"calls_status"`
	Calls       List[Call]          `json:"calls"`
	Unreported  []schema.Unreported `json:"unreported,omitempty"`
	Ambiguities []string            `json:"ambiguities"`

	// Containers are those that processes of the run were in. Omitted if there are none.
	Containers List[Container] `json:"containers,omitzero"`

	Processes Tree          `json:"processes"`
	Programs  List[Program] `json:"programs"`
	Commands  List[Command] `json:"commands"`
	// The lists of files are of class agent.
	Created List[File] `json:"created"` // under a name that did not exist
	Written List[File] `json:"written"` // or opened for writing, or overwritten
	Changed List[File] `json:"changed"` // in mode, owner or attributes
	Deleted List[File] `json:"deleted"` // or renamed
	Read    List[File] `json:"read"`    // opened only for reading
	Hosts   List[Host] `json:"hosts"`
	Lookups List[Name] `json:"lookups"`
	// Denied is what policy or permissions refused, in every class, beginning with denied tool calls. Failed is what
	// failed for other reasons, in class agent.
	Denied     List[Failure] `json:"denied"`
	Failed     List[Failure] `json:"failed"`
	Privileged List[Failure] `json:"privileged"`

	lastOfStderr []string // of a command that failed

	inLayer func(path string) bool // see schema.Policy.Layer
	agent   *agents.Program        // the run's agent; nil if it is not known
	place   agents.Place
}

// Container is a container that processes of the run were in. Argv and Exe are the first command that was executed in
// it. Count is the number of events in it, without the engine's set-up. Name and Image come from the engine and are
// empty if unknown.
type Container struct {
	ID    string   `json:"id"`
	Name  string   `json:"name,omitempty"`
	Image string   `json:"image,omitempty"`
	Argv  []string `json:"argv"`
	Exe   string   `json:"exe,omitempty"`
	Count uint64   `json:"count"`
}

// Program is an executable that was run. Made is true if the run itself created or
// wrote it, or executed it from memory.
type Program struct {
	Exe   string `json:"exe"`
	By    string `json:"by,omitempty"`
	Made  bool   `json:"made,omitempty"`
	Count uint64 `json:"count"`
}

// Command is an argument vector that was executed.
type Command struct {
	Argv  []string `json:"argv"`
	Exe   string   `json:"exe"`
	Count uint64   `json:"count"`
}

// File is a path in one of the lists of files, and how often it was used in the list's way. By is the executable that
// used it first, empty if unknown.
type File struct {
	Path  string `json:"path"`
	By    string `json:"by,omitempty"`
	Count uint64 `json:"count"`
	// ByEach counts the uses by executable, if several used the file.
	ByEach []User `json:"by_each,omitempty"`
	Bytes  uint64 `json:"bytes,omitempty"`
	// Outside is true for a file outside the directory in which the command started, and Secret for one whose name
	// suggests keys or passwords.
	Outside bool `json:"outside,omitempty"`
	Secret  bool `json:"secret,omitempty"`
}

// User counts the uses of an item by one executable. Exe is empty for unknown executables, and for all beyond
// maxUsers.
type User struct {
	Exe   string `json:"exe"`
	Count uint64 `json:"count"`
}

// maxUsers limits the executables that are listed for one item.
const maxUsers = 8

// used adds n uses by exe to each. While only one executable (first) has used the item, each is empty and before is
// the number of its uses.
func used(each []User, first string, before uint64, exe string, n uint64) []User {
	if len(each) == 0 {
		if before == 0 || exe == first {
			return nil
		}
		each = []User{{first, before}}
	}
	if i := slices.IndexFunc(each, func(u User) bool { return u.Exe == exe }); i >= 0 {
		each[i].Count += n
		return each
	}
	if len(each) < maxUsers || exe == "" {
		return append(each, User{exe, n})
	}
	return used(each, first, before, "", n)
}

// Host is a remote endpoint.
type Host struct {
	Endpoint string `json:"endpoint"`
	// Listening is true if the run listened on Endpoint. Then Peers counts those who connected, and Count the accepted
	// connections.
	Listening bool     `json:"listening,omitempty"`
	Peers     uint64   `json:"peers,omitempty"`
	Names     []string `json:"names,omitempty"`
	// Proxy is true for the proxy of the run's sandbox. The model gateway is not listed.
	Proxy bool `json:"proxy,omitempty"`
	// Network is the network of the run's process. If an endpoint was used in several networks, its bytes are counted
	// in facts.OwnNetwork if possible.
	Network  facts.Network `json:"network_namespace,omitempty"`
	Protocol string        `json:"protocol,omitempty"`
	By       string        `json:"by,omitempty"`
	Count    uint64        `json:"count"`
	Failed   uint64        `json:"failed,omitempty"`
	BytesOut uint64        `json:"bytes_out,omitempty"`
	BytesIn  uint64        `json:"bytes_in,omitempty"`
}

// What returns the endpoint in words, with whether the run listened on it and in which network.
func (h *Host) What() string {
	if h.Listening {
		return "listening " + h.Endpoint + h.Network.Mark()
	}
	return h.Endpoint + h.Network.Mark()
}

// Name is a name that was looked up in DNS.
type Name struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// ToolCall is the Kind of a Failure that is a denied tool call. Then Value is the tool, and Result the decision.
const ToolCall = "tool_call"

// Failure is something that was denied, failed, or needed privilege.
type Failure struct {
	Kind   string `json:"kind"`
	Value  string `json:"value"`
	Result string `json:"result"`
	By     string `json:"by,omitempty"`
	// ByEach counts by executable, if there are several.
	ByEach []User `json:"by_each,omitempty"`
	// Rule is the policy rule that denied it, if one did.
	Rule  string `json:"rule,omitempty"`
	Count uint64 `json:"count"`
}

// Source is the part of *archive.Reader that Summarize needs.
type Source interface {
	Items
	Documents(ctx context.Context, without ...string) (*archive.Documents, error)
	Identity() string
}

// maxProcesses limits the process tree of a Summary without a limit.
const maxProcesses = 10_000

// Summarize reads the whole bundle. Each list holds at most limit items, and the process tree ten times as many. Limit
// 0 means as many as are tracked.
func Summarize(ctx context.Context, src Source, limit int) (*Summary, error) {
	processes := 10 * limit
	if limit <= 0 {
		limit, processes = 0, maxProcesses
	}
	docs, err := src.Documents(ctx, schema.SurfacePath) // not shown, and large
	if err != nil {
		return nil, err
	}
	g := newGatherer(processes, docs.Run.Workdir)
	if err := g.policies(ctx, src); err != nil {
		return nil, err
	}
	for it, err := range src.Items(ctx, schema.KernelPath) {
		if err != nil {
			return nil, err
		}
		g.event(it.Kernel)
	}
	s := g.summary(limit)
	if err := s.nameContainers(ctx, src); err != nil {
		return nil, err
	}
	s.about(docs)
	for i := range s.Hosts.Items {
		h := &s.Hosts.Items[i]
		h.Proxy = h.Endpoint != "" && !h.Listening && h.Endpoint == docs.Policy.Proxy()
	}
	s.correlate(&docs.Correlation, limit)
	if err := readArguments(ctx, src, s.Calls.Items); err != nil {
		return nil, err
	}
	if s.Outcome != schema.OutcomeExited || s.ExitCode == nil || *s.ExitCode != 0 {
		if s.lastOfStderr, err = lastLines(ctx, src, schema.StderrPath); err != nil {
			return nil, err
		}
	}
	s.Schema, s.Identity = schema.InspectionV0, src.Identity()
	return s, nil
}

// keptLast is how many lines lastLines returns, and keptTail how many bytes of the end it looks at.
const keptLast, keptTail = 6, 4096

// lastLines returns the last lines of an output that the bundle has.
func lastLines(ctx context.Context, src Source, path string) ([]string, error) {
	var tail []byte
	for it, err := range src.Items(ctx, path) {
		if err != nil {
			return nil, err
		}
		if it.Member == nil {
			continue
		}
		for buf := make([]byte, 64<<10); ; {
			n, err := it.Member.Read(buf)
			tail = append(tail, buf[:n]...)
			tail = tail[max(0, len(tail)-keptTail):]
			if err == io.EOF {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	lines := strings.Split(strings.TrimRight(string(tail), "\r\n"), "\n")
	return lines[max(0, len(lines)-keptLast):], nil
}

// about copies what the documents say about the run as a whole.
func (s *Summary) about(docs *archive.Documents) {
	run, res, h := docs.Run, docs.Result, docs.Health
	s.RunID, s.Command, s.Workdir, s.StartedAt, s.Limits = run.RunID, run.Command, run.Workdir, run.StartedAt,
		res.Limits
	s.Outcome, s.ExitCode, s.Signal, s.ChildNS, s.Error = res.Outcome, res.ExitCode, res.Signal, res.Timings.ChildNS,
		res.Error
	s.Usage, s.Stdio, s.LimitsHit, s.Leftovers, s.Contract = res.Usage, res.Stdio, res.LimitsHit, res.Leftovers,
		res.Contract
	s.Ending, s.Checks, s.Labels, s.Recorder = res.Ending(&run), res.Checks, docs.Labels(), run.Recorder
	if c := docs.Contract; c != nil {
		s.Checks, s.Protected, s.StrictChecks = c.Summaries(), c.ProtectedChanges, c.StrictChecks
	}
	s.Home, s.inLayer = docs.Policy.Home(), docs.Policy.Layer()
	if run.Applied != nil && run.Applied.Agent != nil {
		s.agent, _ = agents.Of(run.Applied.Agent.Name)
		s.place = agents.Place{Workdir: run.Workdir, Homes: run.Homes}
	}
	s.Claims, s.Applied = Sentences(docs), run.Applied
	s.KernelLayer, s.PolicyLayer, s.SDKLayer = h.KernelLayer, h.PolicyLayer, h.SDKLayer
	s.Model, s.ModelLayer, s.ModelPath, s.ModelBypasses = res.Model, h.ModelLayer, h.ModelPath, h.ModelBypasses
	s.KernelState = schema.KernelState(h.KernelLayer)
	s.Redaction = h.Redaction
	s.Containment, s.Resistance, s.ClosedBook = h.Containment, h.TamperResistance, h.ClosedBook
	s.Correlation, s.Layers, s.RingbufDrops = h.CgroupCorrelation, h.Layers, h.RingbufDrops
	s.Network, s.EndpointScope, s.Reasons = h.NetworkProtocolCoverage, h.NetworkEndpointClaimScope, h.Reasons
}

// writeAbout writes the head of the page, the most important rows first, since the short page may cut the rest.
func (s *Summary) writeAbout(w io.Writer) {
	row := rows(w)
	row("run", "%s", schema.OneLine(s.RunID))
	if len(s.Labels) > 0 {
		row("labels", "%s", s.labels())
	}
	row("started", "%s in %s", schema.OneLine(s.StartedAt), schema.OneLine(s.Workdir))
	row("command", "%s", Cut(QuoteArgs(s.Command), 200))
	row("outcome", "%s", schema.OneLine(s.Ending))
	if s.Error != nil {
		row("", "%s (%s)", schema.OneLine(s.Error.Message), schema.OneLine(s.Error.Code))
	}
	if s.Contract != nil {
		row("contract", "%s%s", schema.OneLine(*s.Contract), only(s.StrictChecks, " (strict checks)"))
	}
	row("sandbox", "%s", schema.OneLine(s.Applied.Sandbox()))
	if s.ClosedBook != nil {
		row("book", "%s", Cut(schema.OneLine(s.ClosedBook.Text()), 400))
	}
	if s.Home != nil {
		row("home", "%s", Cut(schema.OneLine(s.Home.Text()), 200))
	}
	if s.Resistance != "" {
		reached := ""
		for _, r := range s.Reasons {
			if r.Code == reachable {
				reached = "; " + schema.OneLine(r.Code) + ": " + schema.OneLine(r.Message)
			}
		}
		row("tamper", "resistance %s; processes held together by %s%s", schema.OneLine(s.Resistance),
			schema.OneLine(cmp.Or(s.Containment, "nothing")), reached)
	}
	row("kernel", "%s; network %s, endpoints %s", s.kernel(),
		schema.OneLine(s.Network), schema.OneLine(s.EndpointScope))
	s.writeChecks(row)
	row("policy", "%s", s.layer(s.PolicyLayer, "policy"))
	row("sdk", "%s", s.layer(s.SDKLayer, "sdk"))
	if s.Model != nil {
		row("models", "%s", s.models())
	}
	row("cgroup", "%s", schema.OneLine(s.Correlation))
	s.writeSecrets(w)
	for _, r := range s.Reasons {
		if r.Code != reachable || s.Resistance == "" {
			row("", "%s: %s", schema.OneLine(r.Code), schema.OneLine(r.Message))
		}
	}
}

// writeHead writes the head of the short page: how the run ended, what it was under, what of it is known, and what is
// not as usual.
func (s *Summary) writeHead(w io.Writer) {
	fmt.Fprintf(w, "%s   %s\n", Cut(QuoteArgs(s.Command), 100), schema.OneLine(s.Ending))
	fmt.Fprintf(w, "in %s   %s\n", schema.OneLine(s.Workdir), schema.OneLine(s.RunID))
	row := rows(w)
	if len(s.Labels) > 0 {
		row("labels", "%s", s.labels())
	}
	if s.Error != nil {
		row("error", "%s (%s)", schema.OneLine(s.Error.Message), schema.OneLine(s.Error.Code))
	}
	if s.Contract != nil {
		row("contract", "%s%s", schema.OneLine(*s.Contract), only(s.StrictChecks, " (strict checks)"))
		s.writeChecks(row)
	}
	if text := s.Applied.Sandbox(); text != "none" {
		row("sandbox", "%s", schema.OneLine(text))
	}
	if s.ClosedBook != nil {
		row("book", "%s", Cut(schema.OneLine(s.ClosedBook.Text()), 400))
	}
	if s.Home != nil {
		row("home", "%s", Cut(schema.OneLine(s.Home.Text()), 200))
	}
	if s.Model != nil {
		row("models", "%s", s.models())
	}
	var whole []string
	for _, c := range s.Claims {
		if c.Good && c.About != "" {
			whole = append(whole, string(c.About))
		}
	}
	if len(whole) > 0 {
		row("evidence", "complete: %s", strings.Join(whole, ", "))
	}
	var rest []Sentence
	isOpen := func(c Sentence) bool { return !c.Good && c.About != "" && c.About != Calls && len(c.Why) > 0 }
	open := map[string][]string{} // subjects, by the first reason why they are open
	for _, c := range s.Claims {
		if isOpen(c) {
			open[c.Why[0]] = append(open[c.Why[0]], string(c.About))
		}
	}
	for _, c := range s.Claims {
		switch {
		case isOpen(c):
			if about := open[c.Why[0]]; about != nil {
				delete(open, c.Why[0])
				row("open", "%s: %s", strings.Join(about, ", "),
					schema.OneLine(Gap{Text: c.Why[0], Remedy: c.Remedy}.String()))
			}
		case !c.Good || c.About == Calls:
			rest = append(rest, c)
		}
	}
	writeClaims(w, rest)
}

func (s *Summary) labels() string {
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		labels = append(labels, schema.OneLine(k)+"="+schema.OneLine(s.Labels[k]))
	}
	return strings.Join(labels, ", ")
}

// writeChecks writes the contract's checks and the changes to protected paths.
func (s *Summary) writeChecks(row func(name, format string, args ...any)) {
	first := slices.Clone(s.Checks)
	passed := func(c schema.CheckSummary) string { return only(c.Result == schema.CheckPassed, "passed") }
	slices.SortStableFunc(first, func(a, b schema.CheckSummary) int { return cmp.Compare(passed(a), passed(b)) })
	for i, c := range first {
		row(only(i == 0, "checks"), "%-7s %s%s", checkWord(c), schema.OneLine(c.Name), checkDetail(c))
	}
	for i, p := range s.Protected {
		if i == DefaultLimit {
			row("", "… and %d more", len(s.Protected)-i)
			break
		}
		state := "restored before checking"
		if !p.Restored {
			state = "NOT restored: " + schema.OneLine(p.Error)
		}
		row(only(i == 0, "protected"), "%s %s, %s", schema.OneLine(p.Path), schema.OneLine(p.Change), state)
	}
}

// change is a path in the workspace that is not as it was. sign is +, ~ or -, and by the call that wrote it, or else a
// program.
type change struct {
	sign, path, by string
	bytes          uint64
}

// inGit is 1 for what git keeps for itself, such as its objects, and else 0.
func (c change) inGit() int {
	if strings.HasPrefix(c.path, ".git/") || strings.Contains(c.path, "/.git/") {
		return 1
	}
	return 0
}

// changes lists what the run changed in the workspace, git's own files last. What it made and removed is left out.
func (s *Summary) changes() List[change] {
	var l List[change]
	calls, seen := map[string]string{}, map[string]int{}
	for _, c := range s.Calls.Items {
		for _, path := range c.Written {
			calls[path] = strings.TrimSpace(c.Tool + " " + c.ToolCallID)
		}
	}
	for _, list := range []struct {
		sign  string
		files List[File]
	}{{"+", s.Created}, {"~", s.Written}, {"~", s.Changed}, {"-", s.Deleted}} {
		_, inside := places(list.files)
		l.Beyond = max(l.Beyond, inside.Beyond) // one file can be in several lists
		for _, f := range inside.Items {
			i, known := seen[f.Path]
			switch {
			case known && list.sign == "-" && l.Items[i].sign == "+":
				l.Items[i].sign = ""
			case known:
				l.Items[i].bytes = max(l.Items[i].bytes, f.Bytes)
				l.Items[i].sign = cmp.Or(only(list.sign == "-", "-"), l.Items[i].sign)
			default:
				seen[f.Path] = len(l.Items)
				l.Items = append(l.Items, change{list.sign, strings.TrimPrefix(f.Path, s.Workdir+"/"),
					cmp.Or(calls[f.Path], path.Base(f.By)), f.Bytes})
			}
		}
	}
	l.Items = slices.DeleteFunc(l.Items, func(c change) bool { return c.sign == "" })
	slices.SortStableFunc(l.Items, func(a, b change) int { return a.inGit() - b.inGit() })
	l.Total = uint64(len(l.Items))
	return l
}

// passing returns a function that reports whether a file outside of the workspace is of no interest after the run: the
// run made and removed it, it was in the private home, or the agent's program keeps it for itself.
func (s *Summary) passing(made, deleted List[File]) func(path string) bool {
	both := map[string]int{}
	for _, list := range []List[File]{made, deleted} {
		for _, f := range list.Items {
			both[f.Path]++
		}
	}
	return func(path string) bool {
		return both[path] == 2 || s.inLayer != nil && s.inLayer(path) || s.agent != nil && s.agent.Writes(path, s.place)
	}
}

// models says what the requests to models used.
func (s *Summary) models() string {
	m := s.Model
	tokens := func(n *int64) string {
		if n == nil {
			return "unknown"
		}
		return fmt.Sprint(*n)
	}
	text := schema.Count(int(m.Requests), "request", "requests") +
		fmt.Sprintf(", %d refused; tokens: %s input, %s output", m.Refused, tokens(m.InputTokens),
			tokens(m.OutputTokens))
	if m.UsageUnknown > 0 {
		text += ", unknown for " + schema.Count(int(m.UsageUnknown), "answer", "answers")
	}
	switch {
	case m.Cost != nil && m.CostUnknown > 0:
		text += fmt.Sprintf("; cost %.4g, unknown for ", *m.Cost) + schema.Count(m.CostUnknown, "answer", "answers")
	case m.Cost != nil:
		text += fmt.Sprintf("; cost %.4g", *m.Cost)
	}
	if m.ProviderFetches > 0 {
		text += "; " + schema.Count(m.ProviderFetches, "request", "requests") +
			" let the provider load or run something"
		if len(m.FetchedHosts) > 0 {
			text += " (" + schema.OneLine(strings.Join(m.FetchedHosts, ", ")) + ")"
		}
	}
	if r := m.Replay; r != nil {
		text += fmt.Sprintf("; replayed %s, %d without an answer, %d unused",
			schema.Count(r.Answers, "answer", "answers"), r.Misses, r.Unused)
	}
	return text + "; layer " + schema.OneLine(cmp.Or(s.ModelLayer, schema.Unknown)) + "; path " +
		strings.ReplaceAll(schema.OneLine(cmp.Or(s.ModelPath, schema.Unknown)), "_", " ")
}

// writeCost writes the last section: resources and output.
func (s *Summary) writeCost(w io.Writer) {
	row := rows(w)
	if used := s.used(); used != "" {
		row("used", "%s", used)
	}
	if limits := s.Applied.Limit(s.Limits.Unenforced); limits != "" {
		row("limits", "%s", schema.OneLine(limits))
	}
	if len(s.LimitsHit) > 0 {
		row("limits", "%s hit", schema.OneLine(strings.Join(s.LimitsHit, ", ")))
	}
	if s.Leftovers != nil && *s.Leftovers > 0 {
		row("leftovers", "%s", schema.Count(*s.Leftovers, "process outlived the command and was ended",
			"processes outlived the command and were ended"))
	}
	row("output", "%s", s.output())
	row("events", "%d%s", s.Events, counts(s.ByClass))
}

// kernel returns the state of the kernel layer, and the first reason if it is not complete.
func (s *Summary) kernel() string {
	for _, r := range s.Reasons {
		if r.Subject == "kernel" && s.KernelState != schema.Complete {
			return schema.OneLine(s.KernelState) + ": " + schema.OneLine(r.Message)
		}
	}
	return schema.OneLine(s.KernelState)
}

// used returns the run's resource use, as far as it is known.
func (s *Summary) used() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	u := s.Usage
	if u.CPUUserNS != nil && u.CPUSystemNS != nil {
		add("cpu %v user %v system", time.Duration(*u.CPUUserNS).Round(time.Millisecond),
			time.Duration(*u.CPUSystemNS).Round(time.Millisecond))
	}
	if u.MemoryPeakBytes != nil {
		add("memory %s", Size(uint64(*u.MemoryPeakBytes)))
	}
	if u.Processes != nil {
		add("%s", schema.Count(*u.Processes, "process", "processes"))
	}
	if u.IOReadBytes != nil && u.IOWriteBytes != nil {
		add("disk %s read %s written", Size(uint64(*u.IOReadBytes)), Size(uint64(*u.IOWriteBytes)))
	}
	if u.OOMKills != nil && *u.OOMKills > 0 {
		add("%s", schema.Count(*u.OOMKills, "OOM kill", "OOM kills"))
	}
	return strings.Join(parts, ", ")
}

// output returns how much was written to the standard streams.
func (s *Summary) output() string {
	var parts []string
	for _, st := range []struct {
		name string
		*schema.Stream
	}{{"stdout", s.Stdio.Stdout}, {"stderr", s.Stdio.Stderr}, {"terminal", s.Stdio.Terminal}} {
		if st.Stream == nil {
			continue
		}
		text := st.name + " " + Size(uint64(st.Bytes))
		if st.Truncated {
			text += fmt.Sprintf(" (%s kept)", Size(uint64(st.Captured)))
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "not captured (" + schema.OneLine(s.Stdio.Mode) + ")"
	}
	return strings.Join(parts, ", ")
}

func (s *Summary) layer(state, name string) string {
	text, c := schema.OneLine(state), s.Layers[name]
	if c.Written > 0 {
		text += fmt.Sprintf(", %d events", c.Written)
	}
	if c.Dropped > 0 {
		text += fmt.Sprintf(", %d lost", c.Dropped)
	}
	return text
}

// correlate adds correlation-report.json. Calls with something beyond their claim come first; otherwise the report's
// order is kept.
func (s *Summary) correlate(r *schema.CorrelationReport, limit int) {
	s.CallStatus, s.Ambiguities = r.Status, r.Ambiguities
	beyond := make(map[string]*schema.Unreported)
	for i, u := range r.ObservedNotReported {
		switch u.Code {
		case "beyond_claim", "denied_call", "unknown_call":
			if len(u.ToolCallIDs) == 1 {
				beyond[u.ToolCallIDs[0]] = &r.ObservedNotReported[i]
			}
		default:
			s.Unreported = append(s.Unreported, u)
		}
	}
	unseen := make(map[string]string)
	for _, u := range r.ReportedNotObserved {
		unseen[u.ToolCallID] = u.Code
	}
	first, rest := []Call{}, []Call{}
	for _, b := range r.Bindings {
		c := Call{Binding: b, Unobserved: unseen[b.ToolCallID]}
		if u := beyond[b.ToolCallID]; u != nil {
			c.Beyond, c.BeyondCode = &u.Effects, u.Code
			first = append(first, c)
		} else {
			rest = append(rest, c)
		}
	}
	all := append(first, rest...)
	s.Calls = List[Call]{Items: all, Total: uint64(len(all))}
	if limit > 0 {
		s.Calls.Items = all[:min(limit, len(all))]
	}
}

func (s *Summary) writeCalls(b *bufio.Writer, limit int) {
	if len(s.Calls.Items) == 0 {
		return
	}
	fmt.Fprintf(b, "  correlation %s\n", schema.OneLine(s.CallStatus))
	items := s.Calls.Items[:min(limit, len(s.Calls.Items))]
	for i := range items {
		writeCall(b, &items[i])
	}
	if more := s.Calls.Total - uint64(len(items)); more > 0 {
		fmt.Fprintf(b, "  … and %d more\n", more)
	}
	for _, a := range s.Ambiguities[:min(len(s.Ambiguities), 10)] {
		fmt.Fprintf(b, "  ambiguous: %s\n", Cut(schema.OneLine(ambiguity(a).Text), 200))
	}
	if more := len(s.Ambiguities) - 10; more > 0 {
		fmt.Fprintf(b, "  … and %d more ambiguities\n", more)
	}
	if len(s.Unreported) == 0 {
		return
	}
	fmt.Fprintf(b, "not part of any reported tool call\n")
	for _, u := range s.Unreported {
		title := unreportedWords[u.Code]
		if u.Code == "edge" && len(u.ToolCallIDs) > 0 {
			title = Cut(schema.OneLine(strings.Join(u.ToolCallIDs, ", ")), 120) + ": " + title
		}
		fmt.Fprintf(b, "  %s\n", cmp.Or(title, schema.OneLine(u.Code)))
		writeEffects(b, "    ", &u.Effects)
	}
}

// nameContainers adds what an engine said about the listed containers.
func (s *Summary) nameContainers(ctx context.Context, src Source) error {
	listed := map[string]*Container{}
	for i := range s.Containers.Items {
		listed[s.Containers.Items[i].ID] = &s.Containers.Items[i]
	}
	if len(listed) == 0 {
		return nil
	}
	for it, err := range src.Items(ctx, schema.EventsPath) {
		if err != nil {
			return err
		}
		for _, told := range it.Event.Containers {
			if c := listed[told.ID]; c != nil && told.Name != "" {
				c.Name, c.Image = told.Name, told.Image
			}
		}
	}
	return nil
}

// WriteText writes the summary for people. Without look.All and look.Section it has at most pageLines lines.
func (s *Summary) WriteText(w io.Writer, look Page) error {
	sections := s.sections(cmp.Or(look.Limit, DefaultLimit))
	return look.Write(w, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		switch {
		case look.Section != "":
			i := slices.IndexFunc(sections, func(x section) bool { return x.name == look.Section })
			if i < 0 {
				return fmt.Errorf("%q is not a section; those of this bundle are %s", look.Section,
					strings.Join(sectionNames(sections), ", "))
			}
			sections[i].write(b)
		case look.All:
			for _, x := range sections {
				if x.title != "" {
					b.WriteByte('\n')
				}
				x.write(b)
			}
		default:
			writePage(b, sections)
		}
		return b.Flush()
	})
}

// sections returns all sections of the page that have rows, in order.
func (s *Summary) sections(limit int) []section {
	secrets, read := apart(s.Read)
	readOutside, readInside := places(read)
	madeOutside, made := places(s.Created)
	wroteOutside, wrote := places(s.Written)
	changedOutside, changed := places(s.Changed)
	deletedOutside, deleted := places(s.Deleted)

	text := func(name, title string, total uint64, first bool, write func(*bufio.Writer)) section {
		var out bytes.Buffer
		b := bufio.NewWriter(&out)
		write(b)
		b.Flush()
		x := section{name: name, title: title, total: total, first: first, text: true}
		for line := range strings.Lines(out.String()) {
			x.rows = append(x.rows, strings.TrimSuffix(line, "\n"))
		}
		return x
	}
	passing := s.passing(madeOutside, deletedOutside)
	// outside is a section with files outside of the workspace. The short page has none that are known to be gone.
	outside := func(name, title string, l List[File]) section {
		_, lasting := split(l, func(f File) bool { return passing(f.Path) })
		lasting.Beyond = l.Beyond
		x, brief := listed(name, title, l, limit, true, fileRow), listed(name, title, lasting, limit, true, fileRow)
		x.brief = &brief
		return x
	}
	gone, _ := split(madeOutside, func(f File) bool { return passing(f.Path) })
	about := text("about", "", 0, true, func(b *bufio.Writer) { s.writeAbout(b) })
	head := text("about", "", 0, true, func(b *bufio.Writer) { s.writeHead(b) })
	about.brief = &head
	// The short page has a line for each call, and what a call did beyond its claim.
	calls := text("calls", "tool calls", s.Calls.Total, true, func(b *bufio.Writer) { s.writeCalls(b, limit) })
	brief := calls
	brief.rows = slices.DeleteFunc(slices.Clone(calls.rows), func(row string) bool {
		return strings.HasPrefix(row, "    ") && !strings.HasPrefix(row, "    !") || row == "  correlation clean"
	})
	calls.brief = &brief
	all := []section{
		text("findings", "what the evaluation found", 0, true, func(b *bufio.Writer) {
			writeFindings(b, s.Evaluation)
		}),
		about,
		text("claims", "what may be claimed", 0, true, func(b *bufio.Writer) { writeClaims(b, s.Claims) }),
		listed("changes", "changed in the workspace", s.changes(), limit, true, func(c change) []string {
			return []string{c.sign, schema.OneLine(c.path), only(c.bytes > 0, Size(c.bytes)), schema.OneLine(c.by)}
		}),
		calls,
		listed("hosts", "hosts"+only(s.Model != nil, " beside the model gateway"), s.Hosts, limit, true, hostRow),
		listed("denied", "denied", s.Denied, limit, true, failureRow),
		text("stderr", "last of stderr", 0, true, func(b *bufio.Writer) {
			for _, line := range s.lastOfStderr {
				if line = strings.TrimRight(line, "\r"); line != "" {
					fmt.Fprintf(b, "  %s\n", Cut(schema.OneLine(line), 200))
				}
			}
		}),
		listed("secrets", "files read that may hold secrets", secrets, limit, true, fileRow),
		outside("created-outside", "files created outside of the workspace", madeOutside),
		outside("written-outside", "files written outside of the workspace", wroteOutside),
		outside("changed-outside", "files changed outside of the workspace", changedOutside),
		outside("deleted-outside", "files deleted outside of the workspace", deletedOutside),
		listed("programs", "programs", s.Programs, limit, true, func(p Program) []string {
			return []string{times(p.Count), schema.OneLine(p.Exe), by(p.By), only(p.Made, "made in this run")}
		}),
		listed("containers", "containers", s.Containers, limit, false, func(c Container) []string {
			return []string{times(c.Count), c.ID[:min(12, len(c.ID))], schema.OneLine(c.Name), schema.OneLine(c.Image),
				schema.OneLine(QuoteArgs(c.Argv))}
		}),
		listed("names", "names asked for", s.Lookups, limit, false, func(n Name) []string {
			return []string{times(n.Count), schema.OneLine(n.Name)}
		}),
		listed("read-outside", "files read outside of the workspace", readOutside, limit, false, fileRow),
		listed("created", "files created", made, limit, false, fileRow),
		listed("written", "files written", wrote, limit, false, fileRow),
		listed("changed", "files changed", changed, limit, false, fileRow),
		listed("deleted", "files deleted", deleted, limit, false, fileRow),
		listed("temporary", "temporary files, and the agent's own", gone, limit, false, fileRow),
		listed("home", "left in the private home", s.inHome(), limit, false, func(w schema.HomeWritten) []string {
			return []string{w.Kind, only(w.Bytes > 0, Size(uint64(w.Bytes))), schema.OneLine(w.Path)}
		}),
		listed("privileged", "privileged", s.Privileged, limit, false, failureRow),
		text("processes", "processes", s.Processes.Total, false, func(b *bufio.Writer) { s.writeProcesses(b, limit) }),
		listed("commands", "commands", s.Commands, limit, false, func(c Command) []string {
			return []string{times(c.Count), schema.OneLine(c.Exe), Cut(QuoteArgs(c.Argv), 160)}
		}),
		listed("read", "files read in the workspace", readInside, limit, false, fileRow),
		listed("failed", "failed", s.Failed, limit, false, failureRow),
		text("cost", "what it used", 0, false, func(b *bufio.Writer) { s.writeCost(b) }),
	}
	return slices.DeleteFunc(all, func(x section) bool { return len(x.lines()) == 0 })
}

// inHome lists what was written to the private home, without directories.
func (s *Summary) inHome() List[schema.HomeWritten] {
	var l List[schema.HomeWritten]
	if s.Home == nil {
		return l
	}
	for _, w := range s.Home.Written {
		if w.Kind != "directory" {
			l.Items = append(l.Items, w)
		}
	}
	l.Total = uint64(len(l.Items)) + uint64(s.Home.Beyond)
	return l
}

func (s *Summary) writeProcesses(b *bufio.Writer, limit int) {
	shown := uint64(0)
	writeTree(b, s.Processes.Roots, "  ", uint64(10*limit), &shown)
	if more := int64(s.Processes.Total) - int64(shown); more > 0 {
		fmt.Fprintf(b, "  … and %d more\n", more)
	}
}

// writeSecrets writes what was redacted.
func (s *Summary) writeSecrets(w io.Writer) {
	r := s.Redaction
	if r == nil { // the bundle is of an older version
		return
	}
	switch r.Mode {
	case schema.RedactionEnabled:
		text := "none found"
		if r.RedactedCount > 0 {
			text = fmt.Sprintf("%d redacted%s", r.RedactedCount, counts(r.ByRule))
		}
		if r.KeyID != "" {
			text += fmt.Sprintf("; key %s (%s)", schema.OneLine(r.KeyID), schema.OneLine(r.KeyScope))
		}
		fmt.Fprintf(w, "%-10s %s\n", "secrets", text)
	case schema.RedactionDisabled:
		fmt.Fprintf(w, "%-10s %s\n", "secrets", "recorded as they were: redaction was disabled")
	default:
		fmt.Fprintf(w, "%-10s %s\n", "secrets",
			"redaction "+schema.OneLine(r.Mode)+": the recorder's own receipt is lost")
	}
	for _, m := range r.Removals {
		when := "before the bundle was sealed"
		if m.From != "" {
			when = "later, out of " + schema.OneLine(m.From)
		}
		fmt.Fprintf(w, "%-10s %d redacted %s%s\n", "", m.RedactedCount, when, counts(m.ByRule))
		if len(m.Dropped) > 0 {
			fmt.Fprintf(w, "%-10s dropped, because a secret could not be removed: %s\n", "",
				schema.OneLine(strings.Join(m.Dropped, ", ")))
		}
	}
	if len(r.NotSearched) > 0 {
		fmt.Fprintf(w, "%-10s not searched: %s\n", "", schema.OneLine(strings.Join(r.NotSearched, ", ")))
	}
}
