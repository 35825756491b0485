package main

import (
	"os/exec"
	"sync"
	"time"
)

// bwrap starts a command in namespaces. Hosts differ by more than what is measured, so the
// cost of a run is given as a multiple of the cost of bwrap.
var bwrap = []string{"bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "/bin/true"}

// starts measures what it takes to run a command that does nothing.
//
// Some rows have no floor: the time of bwrap, and of the part of a run that every Go program
// would need.
func (b *bench) starts() []single {
	over := sync.OnceValue(b.startsOverBwrap)
	return []single{
		{"what bwrap adds to the start of true", "ms", noFloor, func() float64 { return over()["bwrap, ms"] }},
		{"what the smallest Go program that starts true adds, over what bwrap adds", "times", noFloor, func() float64 { return over()["go"] }},
		{"what two such programs add, one started by the other, over what bwrap adds", "times", noFloor, func() float64 { return over()["twice go"] }},
		{"what a run of true adds, kernel layer off, over what bwrap adds", "times", 2, func() float64 { return over()["off"] }},
		{"what a run of true adds, observer in place, over what bwrap adds", "times", 3, func() float64 { return over()["shared"] }},
		{"what the first run of true on a host adds, over what bwrap adds", "times", 12, func() float64 { return over()["first"] }},
	}
}

// startsOverBwrap runs the bare command, bwrap and runs in turns.
func (b *bench) startsOverBwrap() map[string]float64 {
	took := map[string][]time.Duration{}
	floor := b.floor()()
	observer := func(what string) { check(exec.Command(b.bin, "observe", what).Run()) }
	for i := range b.rounds(61) {
		now := map[string]time.Duration{}
		now["bare"] = b.time(exec.Command("/bin/true"))
		now["bwrap"] = b.time(exec.Command(bwrap[0], bwrap[1:]...))
		now["go"] = b.time(exec.Command(floor, "/bin/true"))
		now["twice go"] = b.time(exec.Command(floor, floor, "/bin/true"))
		now["off"] = b.time(b.run([]string{"--kernel", "off"}, "/bin/true")())
		now["first"] = b.time(b.run([]string{"--require", "complete"}, "/bin/true")())
		observer("start")
		now["shared"] = b.time(b.run([]string{"--require", "complete"}, "/bin/true")())
		observer("stop")
		for name, d := range now {
			if i > 0 || b.quick {
				took[name] = append(took[name], d)
			}
		}
	}
	medians, out := map[string]time.Duration{}, map[string]float64{}
	for name, d := range took {
		medians[name] = median(d)
	}
	for name, d := range medians {
		out[name] = float64(d-medians["bare"]) / float64(medians["bwrap"]-medians["bare"])
	}
	out["bwrap, ms"] = float64(medians["bwrap"]-medians["bare"]) / 1e6
	return out
}
