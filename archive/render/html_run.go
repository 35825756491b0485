package render

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/archive/evaluation"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// evaluate judges the run by its evaluation file, if it has one.
func (r *run) evaluate(ctx context.Context, b *view.Bundle) error {
	r.Findings = []finding{}
	if b.Docs.Evaluation == nil {
		return nil
	}
	verdicts, err := evaluation.Judge(ctx, b, &b.Docs.Evaluation.Evaluation)
	if err != nil {
		return err
	}
	for _, v := range verdicts {
		if v.State == evaluation.Pass {
			continue
		}
		f := finding{Rule: v.Rule, State: v.State, Texts: []string{cleanText(v.Message)}}
		for _, x := range slices.Concat(v.Findings, v.Doubts) {
			text := x.Text
			if x.Program != "" {
				text += " by " + x.Program
			}
			f.Texts = append(f.Texts, cleanText(text))
		}
		r.Findings = append(r.Findings, f)
	}
	return nil
}

// readRun reads what a report shows of a bundle, with at most so many events.
func readRun(ctx context.Context, b *view.Bundle, most int) (*run, error) {
	r := about(b)
	if err := r.evaluate(ctx, b); err != nil {
		return nil, err
	}
	index := r.readCalls(b)
	g := newGatherer(most, index)
	var began int64 // start of the command, from which the recording counts
	for it, err := range b.Items(ctx, schema.KernelPath, schema.TurnsPath, schema.EventsPath, schema.ModelPath,
		schema.TerminalPath, schema.StdoutPath, schema.StderrPath) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		switch it.Path {
		case schema.KernelPath:
			g.event(it.Kernel)
		case schema.TurnsPath:
			r.turn(it.Turn, index)
		case schema.ModelPath:
			r.proposals(it.Model, b, index)
		case schema.EventsPath:
			e := it.Event
			r.EndNS = max(r.EndNS, e.TNS)
			if e.Type == schema.ProcessStarted {
				began = e.TNS
			}
			if text := lifecycle(e); text != "" && len(r.Marks) < 1000 {
				r.Marks = append(r.Marks, mark{e.TNS, cleanText(text)})
			}
		case schema.TerminalPath:
			if r.Cast, err = readCast(it.Member, began); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", b.Name, it.Path, err)
			}
		default:
			data, err := io.ReadAll(io.LimitReader(it.Member, maxStream))
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", b.Name, it.Path, err)
			}
			r.Output = append(r.Output, pageText{strings.TrimPrefix(it.Path, "stdio/"), cleanLines(string(data)),
				it.Member.Size, it.Member.Size > maxStream})
		}
	}
	r.EndNS = max(r.EndNS, g.end)
	r.Events, r.Strings = g.columns()
	r.Kinds, r.Total, r.LeftOut, r.Shown, r.Denied = g.kinds.list, g.total, g.leftOut, len(r.Events.T), g.denied
	r.processes(g)
	return r, nil
}

// cleanLines makes output safe to show, line by line.
func cleanLines(s string) string {
	lines := strings.Split(withoutEscapes(s), "\n")
	for i, l := range lines {
		lines[i] = schema.OneLine(strings.ReplaceAll(strings.TrimSuffix(l, "\r"), "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

func about(b *view.Bundle) *run {
	d := b.Docs
	r := &run{
		Name: cleanText(b.Name), RunID: cleanText(b.RunID()), Identity: b.Identity(), Verified: b.Verified(),
		Problems: []string{},
		Command:  cleanText(view.QuoteArgs(d.Run.Command)), Workdir: cleanText(d.Run.Workdir),
		Started: cleanText(d.Run.StartedAt),
		Labels:  map[string]string{},
		Outcome: cleanText(d.Result.Outcome), ExitCode: d.Result.ExitCode,
		Kernel: schema.KernelState(d.Health.KernelLayer),
		Words:  view.Sentences(d),
		Calls:  []call{}, Marks: []mark{}, Output: []pageText{}, Processes: []proc{},
		Programs: len(d.Surface.ProcessExecs), Files: len(d.Surface.FilesystemPaths),
		Hosts: len(d.Surface.NetworkEndpoints),
	}
	for i := range b.Report.Problems {
		if i == 20 {
			break
		}
		r.Problems = append(r.Problems, cleanText(b.Report.Problems[i].Error()))
	}
	for k, v := range d.Labels() {
		r.Labels[cleanText(k)] = cleanText(v)
	}
	if d.Result.Signal != nil {
		r.Signal = cleanText(*d.Result.Signal)
	}
	if d.Result.Contract != nil {
		r.Contract = cleanText(*d.Result.Contract)
	}
	if d.Result.Error != nil {
		r.Error = cleanText(d.Result.Error.Message)
	}
	for i := range r.Words {
		w := &r.Words[i]
		w.Text, w.Why, w.Remedy = cleanText(w.Text), cleanAll(w.Why, 50), cleanText(w.Remedy)
	}
	r.Facts = headRows(b)
	return r
}

// headRows returns the rows of the page's head.
func headRows(b *view.Bundle) [][2]string {
	d := b.Docs
	u := d.Result.Usage
	rows := [][2]string{}
	add := func(k, format string, args ...any) {
		rows = append(rows, [2]string{k, cleanText(fmt.Sprintf(format, args...))})
	}
	if ns := d.Result.Timings.ChildNS; ns != nil {
		add("took", "%v", time.Duration(*ns).Round(time.Millisecond))
	}
	if u.CPUUserNS != nil && u.CPUSystemNS != nil {
		add("processor", "%v", time.Duration(*u.CPUUserNS+*u.CPUSystemNS).Round(time.Millisecond))
	}
	if u.MemoryPeakBytes != nil {
		add("memory", "%s", view.Size(uint64(*u.MemoryPeakBytes)))
	}
	if u.Processes != nil {
		add("processes", "%d", *u.Processes)
	}
	if u.IOReadBytes != nil && u.IOWriteBytes != nil {
		add("disk", "%s read, %s written", view.Size(uint64(*u.IOReadBytes)), view.Size(uint64(*u.IOWriteBytes)))
	}
	add("sandbox", "%s", d.Run.Applied.Sandbox())
	if limits := d.Run.Applied.Limit(d.Result.Limits.Unenforced); limits != "" {
		add("limits", "%s", limits)
	}
	if len(d.Result.LimitsHit) > 0 {
		add("limits hit", "%s", strings.Join(d.Result.LimitsHit, ", "))
	}
	add("started", "%s", d.Run.StartedAt)
	add("in", "%s", d.Run.Workdir)
	add("run", "%s", b.RunID())
	add("identity", "%s", b.Identity())
	labels := d.Labels()
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		add("label "+k, "%s", labels[k])
	}
	return rows
}

// readCalls reads the calls of the correlation report. It returns their indexes by id.
func (r *run) readCalls(b *view.Bundle) map[string]int {
	index := map[string]int{}
	c := &b.Docs.Correlation
	beyond, unseen := map[string]string{}, map[string]string{}
	for _, u := range c.ObservedNotReported {
		for _, id := range u.ToolCallIDs {
			switch u.Code {
			case "beyond_claim", "denied_call", "unknown_call":
				beyond[id] = u.Code
			}
		}
	}
	for _, u := range c.ReportedNotObserved {
		unseen[u.ToolCallID] = u.Code
	}
	for i := range c.Bindings {
		x := &c.Bindings[i]
		if len(r.Calls) == maxCalls {
			r.MoreCalls = len(c.Bindings) - i
			break
		}
		start, end := int64(-1), int64(-1)
		if x.TStartNS != nil {
			start = *x.TStartNS
		}
		if x.TEndNS != nil {
			end = *x.TEndNS
		}
		index[x.ToolCallID] = len(r.Calls)
		r.Calls = append(r.Calls, call{
			ID: cleanText(x.ToolCallID), Tool: cleanText(x.Tool), Decision: cleanText(x.PolicyDecision),
			Failed: x.Failed, Method: cleanText(x.Method),
			Events: x.KernelEventCount, StartNS: start, EndNS: end, Turn: -1,
			Written: cleanAll(x.Written, 50), Hosts: cleanAll(x.Hosts, 50), Commands: cleanAll(x.Commands, 50),
			Beyond: cleanText(beyond[x.ToolCallID]), Unseen: cleanText(unseen[x.ToolCallID]),
		})
	}
	return index
}

// proposals adds what a model proposed to the calls that were made, and adds the proposals that nobody called.
func (r *run) proposals(e *schema.ModelEvent, b *view.Bundle, index map[string]int) {
	c := &b.Docs.Correlation
	for i := range e.ToolCalls {
		p := &e.ToolCalls[i]
		id := ""
		if p.ID != nil {
			id = *p.ID
		}
		for j := range c.Bindings { // if matched by its arguments, the call has another id
			x := &c.Bindings[j]
			if x.MatchedBy == schema.MatchedByArguments && x.ModelSeq != nil && *x.ModelSeq == e.Seq &&
				(x.Tool == p.Name || len(e.ToolCalls) == 1) {
				id = x.ToolCallID
			}
		}
		at, ok := index[id]
		if !ok && slices.ContainsFunc(c.ProposedNotCalled, func(x schema.Proposal) bool {
			return x.ModelSeq != nil && *x.ModelSeq == e.Seq && x.ToolCallID == id && x.Tool == p.Name
		}) {
			if len(r.Calls) >= maxCalls {
				r.MoreCalls++
				continue
			}
			at, ok = len(r.Calls), true
			r.Calls = append(r.Calls, call{ID: cleanText(id), Tool: cleanText(p.Name), Turn: -1, EndNS: e.Timings.EndNS,
				StartNS: e.Timings.EndNS, Verdict: "proposed, and not called", Written: []string{}, Hosts: []string{},
				Commands: []string{}})
		}
		if !ok {
			continue
		}
		x := &r.Calls[at]
		x.Model = cleanText(modelText(e))
		if x.Params == "" {
			x.Params = cleanText(cmp.Or(string(p.Arguments), p.ArgumentsText))
		}
	}
}

// turn adds a turn to its call, or as a new call.
func (r *run) turn(t *schema.Turn, index map[string]int) {
	i, ok := index[t.ToolCallID]
	if !ok {
		if len(r.Calls) >= maxCalls {
			r.MoreCalls++
			return
		}
		i = len(r.Calls)
		r.Calls = append(r.Calls,
			call{ID: cleanText(t.ToolCallID), Written: []string{}, Hosts: []string{}, Commands: []string{}})
	}
	c := &r.Calls[i]
	c.Turn, c.Tool, c.StartNS, c.EndNS = int(t.Index), cleanText(t.Tool), t.TStartNS, t.TEndNS
	c.Params, c.Answer = cleanText(string(t.Parameters)), cleanText(string(t.Output))
	switch {
	case t.RejectedBy != "":
		c.Verdict = cleanText("rejected by " + t.RejectedBy)
	case t.Error != "":
		c.Verdict = cleanText("failed: " + t.Error)
	case t.VerifierVerdict != schema.VerdictNotRun:
		c.Verdict = cleanText(t.VerifierVerdict)
	}
}

func (r *run) processes(g *gatherer) {
	for i := range g.table.All {
		if i == maxProcesses {
			break
		}
		p := &g.table.All[i]
		end := int64(-1)
		if p.Ended {
			end = p.EndNS
		}
		r.Processes = append(r.Processes, proc{
			PID: p.PID, Parent: p.Parent, Exe: cleanText(p.Exe),
			Command: cleanText(view.Cut(view.QuoteArgs(p.Argv), 400)),
			StartNS: p.StartNS, EndNS: end, Exit: p.ExitCode, Signal: p.Signal, Execs: p.Execs,
		})
	}
	r.MoreProcesses = uint64(len(g.table.All)-len(r.Processes)) + g.table.Beyond
}

// readCast reads an asciicast 3 recording that began at a time of the run, up to maxRecording.
func readCast(m io.Reader, began int64) (*cast, error) {
	data, err := io.ReadAll(io.LimitReader(m, maxRecording+1))
	if err != nil {
		return nil, err
	}
	c := &cast{Cols: 80, Rows: 24, Times: []int64{}, Texts: []string{}, Resize: [][3]int{},
		Cut: len(data) > maxRecording}
	at := float64(began) / 1e9
	for line := range bytes.Lines(data) {
		if line[0] == '{' {
			var head struct {
				Term struct{ Cols, Rows int } `json:"term"`
			}
			if json.Unmarshal(line, &head) == nil && head.Term.Cols > 0 && head.Term.Rows > 0 {
				c.Cols, c.Rows = min(head.Term.Cols, 500), min(head.Term.Rows, 200)
			}
			continue
		}
		wait, code, text, ok := castEvent(line)
		if !ok {
			break // the last line is incomplete
		}
		at += wait
		switch code {
		case "o":
			c.Times = append(c.Times, int64(at*1000))
			c.Texts = append(c.Texts, text)
		case "r":
			var cols, rows int
			if n, _ := fmt.Sscanf(text, "%dx%d", &cols, &rows); n == 2 && cols > 0 && rows > 0 {
				c.Resize = append(c.Resize, [3]int{len(c.Texts), min(cols, 500), min(rows, 200)})
			}
		}
	}
	return c, nil
}

// withoutEscapes removes escape sequences (ECMA-48: CSI, OSC and the short ones).
func withoutEscapes(s string) string {
	if strings.IndexByte(s, 0x1b) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != 0x1b {
			b.WriteByte(s[i])
			i++
			continue
		}
		i += escapeLength(s[i:])
	}
	return b.String()
}

// escapeLength returns the length of the escape sequence at the start of s.
func escapeLength(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
		}
		return len(s)
	case ']', 'P', '_', '^':
		if i := strings.IndexAny(s[2:], "\a\x1b"); i >= 0 {
			if s[2+i] == 0x1b && 3+i < len(s) {
				return i + 4
			}
			return i + 3
		}
		return len(s)
	case '(', ')':
		return min(3, len(s))
	}
	return 2
}

// run is one bundle. Its texts are safe to show.
type run struct {
	Name     string            `json:"name"`
	RunID    string            `json:"run_id"`
	Identity string            `json:"identity"`
	Verified bool              `json:"verified"`
	Problems []string          `json:"problems"`
	Command  string            `json:"command"`
	Workdir  string            `json:"workdir"`
	Started  string            `json:"started"`
	Labels   map[string]string `json:"labels"`
	Outcome  string            `json:"outcome"`
	ExitCode *int              `json:"exit_code"`
	Signal   string            `json:"signal"`
	Contract string            `json:"contract"`
	Error    string            `json:"error"`
	Facts    [][2]string       `json:"facts"`
	Kernel   string            `json:"kernel"`
	Words    []view.Sentence   `json:"words"`
	Findings []finding         `json:"findings"`
	EndNS    int64             `json:"end_ns"`
	Kinds    []string          `json:"kinds"`
	Strings  []string          `json:"strings"`
	Events   columns           `json:"events"`
	// Total counts the events of the classes that are shown, and LeftOut the others. Shown is the size of the sample.
	Total     uint64 `json:"total"`
	LeftOut   uint64 `json:"left_out"`
	Shown     int    `json:"shown"`
	Processes []proc `json:"processes"`
	// MoreProcesses and MoreCalls count those beyond the limits.
	MoreProcesses uint64     `json:"more_processes"`
	Calls         []call     `json:"calls"`
	MoreCalls     int        `json:"more_calls"`
	Marks         []mark     `json:"marks"`
	Cast          *cast      `json:"cast"`
	Output        []pageText `json:"output"`
	Denied        uint64     `json:"denied"`
	Programs      int        `json:"programs"`
	Files         int        `json:"files"`
	Hosts         int        `json:"hosts"`
}
