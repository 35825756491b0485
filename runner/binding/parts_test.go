package binding

import (
	"fmt"
	"testing"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// A line counts from its write, if the write is known, and it is not known before all of its lines have been read.
func TestALineCountsFromItsWrite(t *testing.T) {
	l := newLogTimes()
	l.add("/log", 100)
	if !l.has("/log") || l.has("/other") {
		t.Error("the log is not known, or another one is")
	}
	first := agentlog.Arrival{Log: "/log", End: 150, After: 1000, At: 2000}
	second := agentlog.Arrival{Log: "/log", End: 200, After: 1000, At: 2000}
	for _, at := range []*agentlog.Arrival{&first, &second} {
		l.read(*at)
		l.await(at)
	}
	l.settle(false)
	if !l.awaited(1500, 1600) || l.awaited(10, 20) {
		t.Error("lines without a write are not awaited then, or at another time")
	}
	l.wrote("/log", write{bytes: 50, count: 1, first: 1200, last: 1200})
	l.wrote("/log", write{bytes: 50, count: 1, first: 1700, last: 1700})
	l.settle(false)
	if first.At != 1200 || first.After != 1200 || second.At != 1700 || l.awaited(1500, 1600) {
		t.Errorf("the lines were written from %d to %d, and until %d", first.After, first.At, second.At)
	}
}

// A window is open from the better report of its begin, and closed once.
func TestAWindowHasTheBetterBegin(t *testing.T) {
	w := newWindows(newLogTimes())
	k := &call{id: "a"}
	w.begin(k, exactly(10), byModel)
	w.begin(k, exactly(20), bySDK)
	w.begin(k, exactly(30), byModel)
	if k.start.At != 20 || len(w.open) != 1 || k.twice {
		t.Errorf("it began at %d, %d are open, twice: %t", k.start.At, len(w.open), k.twice)
	}
	var sure = true
	if got := w.candidates(nil, member{}, 25, 25, &sure); len(got) != 1 || !sure {
		t.Errorf("%d calls at 25", len(got))
	}
	w.end(k, exactly(40))
	w.end(k, exactly(90))
	if got := w.candidates(nil, member{}, 50, 50, &sure); len(got) != 0 || k.end.At != 40 || len(w.open) != 0 {
		t.Errorf("%d calls at 50, which ended at %d; %d are open", len(got), k.end.At, len(w.open))
	}
	w.begin(k, exactly(60), bySDK) // its id is used again
	if len(w.open) != 1 || len(w.past) != 0 || !k.twice {
		t.Errorf("%d are open, %d past, twice: %t", len(w.open), len(w.past), k.twice)
	}
}

// There are not more calls than can be kept.
func TestCallsAreLimited(t *testing.T) {
	c := newCalls()
	for i := range MaxCalls {
		c.call(fmt.Sprint(i))
	}
	if c.call("one more") != nil || c.call("7") == nil || c.lost != 1 || len(c.order) != MaxCalls {
		t.Errorf("%d calls, %d lost", len(c.order), c.lost)
	}
	if !c.attach("7", 70) || c.attach("one more", 71) || c.in(70) != c.call("7") || c.in(0) != nil {
		t.Error("a call does not have its cgroup")
	}
}
