package render

import (
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// Groups of events. The page has a lane and a filter for each.
const (
	groupProcess = iota
	groupRead
	groupWrite
	groupNetwork
	groupPrivilege
	groupOther
)

// group returns the group of an event.
func group(k *schema.KernelEvent) int {
	switch k.Kind {
	case schema.KindExec, schema.KindExecFailed, schema.KindFork, schema.KindExit, schema.KindJoin, schema.KindThread,
		schema.KindChdir:
		return groupProcess
	case schema.KindConnect, schema.KindConnectBlocked, schema.KindConnectResult, schema.KindAccept, schema.KindSendto,
		schema.KindDNS, schema.KindTLS,
		schema.KindFlow, schema.KindBind, schema.KindListen, schema.KindForeignSocket, schema.KindInherited:
		return groupNetwork
	case schema.KindSetID, schema.KindCapset, schema.KindPtrace, schema.KindMount, schema.KindNamespace, schema.KindBPF,
		schema.KindModule, schema.KindChroot, schema.KindLeave:
		return groupPrivilege
	}
	switch {
	case k.Modifies():
		return groupWrite
	case view.Path(k) != "":
		return groupRead
	}
	return groupOther
}

const (
	resultUnknown = iota
	resultOK
	resultFailed
	resultDenied
)

func result(k *schema.KernelEvent) int {
	switch {
	case view.Denied(k):
		return resultDenied
	case k.Failed(), k.Kind == schema.KindExit && k.WaitStatus != 0:
		return resultFailed
	case k.HasResult, k.Kind == schema.KindExec, k.Kind == schema.KindExit:
		return resultOK
	}
	return resultUnknown
}

// important reports whether an event is kept before others.
func important(group, result int) bool {
	return result == resultDenied || group == groupNetwork || group == groupPrivilege
}

// sampler keeps at most a number of events. Important events may take three quarters of the room. Of the others, every
// stride-th is kept, and stride is doubled when there is no more room. So the sample is spread evenly over the run, and
// is the same each time.
type sampler struct {
	most      int
	stride    uint64
	seen      uint64 // events that were not kept as important
	kept      []pageEvent
	important int // number of kept events that are important
}

// pageEvent is an event that is kept. Its texts are indexes.
type pageEvent struct {
	tns                                    int64
	seq, count                             uint64
	pid                                    uint32
	kind, proc, call, value, result, group int
	important                              bool
}

// wants reports whether an event will be kept. It is asked before the event's texts are made.
func (s *sampler) wants(important bool) bool {
	if important && s.important < s.most*3/4 {
		return true
	}
	s.seen++
	return (s.seen-1)%s.stride == 0
}

func (s *sampler) add(e pageEvent) {
	if e.important = e.important && s.important < s.most*3/4; e.important {
		s.important++
	}
	s.kept = append(s.kept, e)
	for len(s.kept) > s.most {
		s.stride *= 2
		out, n := s.kept[:0], uint64(0)
		for _, k := range s.kept {
			if k.important {
				out = append(out, k)
				continue
			}
			if n%2 == 0 {
				out = append(out, k)
			}
			n++
		}
		s.kept = out
	}
}

// pageTexts numbers texts.
type pageTexts struct {
	list []string
	at   map[string]int
}

func (t *pageTexts) of(s string) int {
	if i, ok := t.at[s]; ok {
		return i
	}
	s = strings.Clone(s)
	t.list = append(t.list, s)
	t.at[s] = len(t.list) - 1
	return len(t.list) - 1
}

// gatherer collects a run's events and processes in one pass.
type gatherer struct {
	table  *facts.Table
	sample sampler
	values pageTexts
	kinds  pageTexts
	calls  map[string]int
	total  uint64
	// leftOut counts events that the agent did not cause. The page does not show them.
	leftOut uint64
	denied  uint64
	end     int64
}

func newGatherer(most int, calls map[string]int) *gatherer {
	return &gatherer{
		table: facts.NewTable(), sample: sampler{most: max(most, 1), stride: 1}, calls: calls,
		values: pageTexts{at: map[string]int{}}, kinds: pageTexts{at: map[string]int{}},
	}
}

func (g *gatherer) event(k *schema.KernelEvent) {
	g.table.Add(k)
	g.end = max(g.end, k.TNS)
	switch {
	case k.Kind == schema.KindFork, k.Kind == schema.KindThread:
		return // in the table
	case k.Class == schema.ClassRunner,
		k.Class != schema.ClassAgent && k.Class != schema.ClassCheck && k.Kind != schema.KindExec:
		g.leftOut++
		return
	}
	g.total++
	lane, res := group(k), result(k)
	if res == resultDenied {
		g.denied += k.Times()
	}
	first := important(lane, res)
	if !g.sample.wants(first) {
		return
	}
	callIndex := -1
	if i, ok := g.calls[k.ToolCallID]; ok {
		callIndex = i
	}
	value := view.Cut(describe(k), 400) + g.table.Network(k).Mark()
	g.sample.add(pageEvent{
		tns: k.TNS, seq: k.Seq, count: k.Times(), pid: k.PID, kind: g.kinds.of(k.Kind.String()),
		proc: g.table.Of(k.ExecID), call: callIndex,
		value: g.values.of(value), result: res, group: lane, important: first,
	})
}

// describe says what an event was about and how it ended. It is safe to show.
func describe(k *schema.KernelEvent) string {
	s := view.What(k)
	switch {
	case k.Kind == schema.KindExit:
		s = view.Outcome(k)
	case k.Errno() != "":
		s += "  " + k.Errno()
	}
	return s
}

// columns returns the events that were kept, and their texts.
func (g *gatherer) columns() (c columns, strings []string) {
	used := pageTexts{at: map[string]int{}}
	for _, e := range g.sample.kept {
		proc := e.proc
		if proc >= maxProcesses {
			proc = -1
		}
		c.T = append(c.T, e.tns/1000)
		c.Kind = append(c.Kind, e.kind)
		c.Proc = append(c.Proc, proc)
		c.Call = append(c.Call, e.call)
		c.Value = append(c.Value, used.of(g.values.list[e.value]))
		c.Result = append(c.Result, e.result)
		c.Group = append(c.Group, e.group)
		c.Count = append(c.Count, e.count)
		c.Seq = append(c.Seq, e.seq)
		c.PID = append(c.PID, e.pid)
	}
	return c, used.list
}
