package binding

import (
	"slices"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// maxScan limits how many calls are examined for one event.
const maxScan = 256

// windows knows when each call can have been open.
type windows struct {
	logs  *logTimes
	open  []*call // started and not ended
	past  []*call // ended, in the order of their ends
	lines uint64  // reports of begins and ends so far
}

func newWindows(logs *logTimes) *windows { return &windows{logs: logs} }

// Who said that a call began.
const (
	bySDK = 1 << iota
	byGateway
	byModel // any other report is better
)

// begin opens a call, if nobody whose report is better said when it began.
func (w *windows) begin(k *call, at agentlog.Arrival, by uint8) {
	w.lines++
	again, first := k.begun&by != 0, k.begun&^byModel == 0
	if by == byModel && (again || !first) {
		return // the id is used again, or a better report exists
	}
	k.begun |= by
	k.twice = k.twice || again
	switch {
	case again && k.ended && !k.orph: // it is open again, from its first start
		k.ended = false
		w.past = slices.DeleteFunc(w.past, func(x *call) bool { return x == k })
		w.open = append(w.open, k)
	case first && !k.ended:
		w.opens(k, at)
	}
}

// end closes a call.
func (w *windows) end(k *call, at agentlog.Arrival) {
	w.lines++
	k.orph = k.orph || k.begun == 0
	if !k.ended {
		k.end, k.ended, k.last = at, true, w.lines
		w.logs.await(&k.end)
		w.open = slices.DeleteFunc(w.open, func(x *call) bool { return x == k })
		if k.started {
			w.past = append(w.past, k)
		}
	}
}

// opens opens k at a time. The SDK's time replaces that of the policy's decision.
func (w *windows) opens(k *call, at agentlog.Arrival) {
	k.start, k.first = at, w.lines
	w.logs.await(&k.start)
	if !k.started {
		k.started = true
		w.open = append(w.open, k)
	}
}

// allow opens k because it was allowed, when nothing says when it begins.
func (w *windows) allow(k *call, at agentlog.Arrival) {
	w.lines++
	w.opens(k, at)
}

// unopen reverts that a decision opened a call.
func (w *windows) unopen(k *call) {
	if k.begun == 0 && k.started && !k.ended {
		k.started = false
		w.open = slices.DeleteFunc(w.open, func(x *call) bool { return x == k })
	}
}

// maxFound limits how many calls one event may overlap.
const maxFound = maxScan

// candidates returns the calls that can have been open in a span, for a process in the trees of by. It clears sure if
// not all calls were examined.
func (w *windows) candidates(found []*call, by member, first, last int64, sure *bool) []*call {
	for i, k := range slices.Backward(w.open) {
		if len(w.open)-i > maxScan || len(found) == maxFound {
			*sure = false
			break
		}
		if k.doneBy(by) && k.possible(first, last) {
			found = append(found, k)
		}
	}
	for i, k := range slices.Backward(w.past) {
		if k.end.At < first {
			break // all earlier ones ended before it
		}
		if len(w.past)-i > maxScan || len(found) == maxFound {
			*sure = false
			break
		}
		if k.doneBy(by) && k.possible(first, last) {
			found = append(found, k)
		}
	}
	return found
}

// meet reports whether any two of the calls were open at the same time.
func meet(calls []*call) bool {
	for i, k := range calls {
		for _, other := range calls[i+1:] {
			if k.meets(other) {
				return true
			}
		}
	}
	return false
}

// settled reports whether exactly one call of the process can have been open at that time, and the process is in that
// call's own tree. A tree only executes its own calls, so a line about another call changes nothing.
func (w *windows) settled(by member, first, last int64) bool {
	if by.root == 0 {
		return false
	}
	sure := true
	var room [maxFound]*call
	found := w.candidates(room[:0], by, first, last, &sure)
	return sure && len(found) == 1 && found[0].tree == by.root && found[0].certain(first, last)
}
