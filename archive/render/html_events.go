package render

import (
	"strings"

	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// Groups of events: the lanes and the filters.
const (
	groupProcess = iota
	groupRead
	groupWrite
	groupNetwork
	groupPrivilege
	groupOther
)

// group tells which lane an event is in.
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
	case query.Writes(k):
		return groupWrite
	case view.Path(k) != "":
		return groupRead
	}
	return groupOther
}

// Results.
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

// keeps reports whether an event is kept before the sample.
func keeps(group, result int) bool {
	return result == resultDenied || group == groupNetwork || group == groupPrivilege
}

// sampler keeps a bounded number of events: those that matter first, and of
// the rest every n-th, n doubling whenever there is no more room. So the sample
// is even over the run, and the same each time.
type sampler struct {
	most    int
	stride  uint64
	seen    uint64
	kept    []pageEvent
	matters int // how many of kept are there for what they are
}

// pageEvent is an event that is kept; texts are indexes.
type pageEvent struct {
	tns                                    int64
	seq, count                             uint64
	pid                                    uint32
	kind, proc, call, value, result, group int
	matters                                bool
}

// wants reports, before the event's texts are made, whether it will be kept.
func (s *sampler) wants(matters bool) bool {
	if matters && s.matters < s.most*3/4 {
		return true
	}
	s.seen++
	return (s.seen-1)%s.stride == 0
}

func (s *sampler) add(e pageEvent) {
	if e.matters = e.matters && s.matters < s.most*3/4; e.matters {
		s.matters++
	}
	s.kept = append(s.kept, e)
	for len(s.kept) > s.most {
		s.stride *= 2
		out, n := s.kept[:0], uint64(0)
		for _, k := range s.kept {
			if k.matters {
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

// pageTexts gives each text a number.
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
	table  *view.Table
	sample sampler
	values pageTexts
	kinds  pageTexts
	calls  map[string]int
	total  uint64
	// leftOut counts events that the agent did not cause. They are in the bundle, and not on the page.
	leftOut uint64
	denied  uint64
	end     int64
}

func newGatherer(most int, calls map[string]int) *gatherer {
	return &gatherer{
		table: view.NewTable(), sample: sampler{most: max(most, 1), stride: 1}, calls: calls,
		values: pageTexts{at: map[string]int{}}, kinds: pageTexts{at: map[string]int{}},
	}
}

func (g *gatherer) event(k *schema.KernelEvent) {
	g.table.Add(k)
	g.end = max(g.end, k.TNS)
	switch {
	case k.Kind == schema.KindFork, k.Kind == schema.KindThread:
		return // the processes have them
	case k.Class != schema.ClassAgent && k.Class != schema.ClassCheck && k.Kind != schema.KindExec:
		g.leftOut++
		return
	}
	g.total++
	lane, res := group(k), result(k)
	if res == resultDenied {
		g.denied += k.Times()
	}
	matters := keeps(lane, res)
	if !g.sample.wants(matters) {
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
		value: g.values.of(value), result: res, group: lane, matters: matters,
	})
}

// describe is what the event was about and how it ended, fit to be shown.
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

// columns are the events that were kept, and their texts.
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
