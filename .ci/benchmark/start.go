package main

import (
	"os/exec"
	"sync"
	"time"
)

// bwrap is what starting a command in namespaces costs. Hosts differ by more than
// what is measured, so what a run adds is told in times of what this adds.
var bwrap = []string{"bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "/bin/true"}

// starts measures what it takes to run a command that does nothing.
//
// Some rows have no floor: how long bwrap takes here, and what of a run no program in
// Go can do without.
func (b *bench) starts() []single {
	over := sync.OnceValue(b.startsOverBwrap)
	return []single{
		{"what bwrap adds to the start of true", "ms", noFloor, func() float64 { return over()["bwrap, ms"] }},
		{"what a smallest Go program adds that starts true, over what bwrap adds", "times", noFloor, func() float64 { return over()["go"] }},
		{"what two smallest Go programs add that start true, one by the other, over what bwrap adds", "times", noFloor, func() float64 { return over()["twice go"] }},
		{"what a run of true adds, kernel layer off, over what bwrap adds", "times", 2, func() float64 { return over()["off"] }},
		{"what a run of true adds, observer in place, over what bwrap adds", "times", 3, func() float64 { return over()["shared"] }},
		{"what the first run of true on a host adds, over what bwrap adds", "times", 12, func() float64 { return over()["first"] }},
	}
}

// startsOverBwrap takes turns between the bare command, bwrap and runs.
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
