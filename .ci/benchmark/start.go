package main

import (
	"maps"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// bwrap starts a command in namespaces. Hosts differ by more than what is measured, so the
// cost of a run is given as a multiple of the cost of bwrap.
var bwrap = []string{"bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "/bin/true"}

// starts measures what a run of a command that does nothing costs.
func (b *bench) starts() []single {
	over := sync.OnceValue(b.startsOverBwrap)
	return []single{
		{"what bwrap adds to the start of true", "ms", noBound, func() float64 { return over()["bwrap, ms"] }},
		{"what a run of true adds, kernel layer off, over what bwrap adds", "times", 4, func() float64 {
			return over()["off"]
		}},
		{"what a run of true adds, observer in place, over what bwrap adds", "times", 8, func() float64 {
			return over()["in place"]
		}},
		{"what the first run of true on a host adds, over what bwrap adds", "times", 30, func() float64 {
			return over()["first"]
		}},
	}
}

// startsOverBwrap runs the bare command, bwrap and runs in turns.
//
// The kernel goes on to free the programs of a run that loaded them after the run has ended,
// which slows what comes next. So what loads programs is in a group of its own, each group has
// its own bare command and bwrap, and each round begins with the next of the group.
func (b *bench) startsOverBwrap() map[string]float64 {
	complete := b.run([]string{"--require", "complete"}, "/bin/true")
	out := b.overBwrap(map[string]func() *exec.Cmd{"off": b.run([]string{"--kernel", "off"}, "/bin/true")})
	end := b.inPlace()
	out["in place"] = b.overBwrap(map[string]func() *exec.Cmd{"in place": complete})["in place"]
	end()
	out["first"] = b.overBwrap(map[string]func() *exec.Cmd{"first": complete})["first"]
	return out
}

// inPlace keeps the observer in place until end.
func (b *bench) inPlace() (end func()) {
	check(exec.Command(b.bin, "observe", "start").Run())
	return func() { check(exec.Command(b.bin, "observe", "stop").Run()) }
}

// overBwrap measures a group of commands: what each adds to the bare command, over what bwrap
// adds to it.
func (b *bench) overBwrap(group map[string]func() *exec.Cmd) map[string]float64 {
	group["bare"], group["bwrap"] = bare("/bin/true"), bare(bwrap...)
	names := slices.Sorted(maps.Keys(group))
	took := map[string][]time.Duration{}
	for i := range b.rounds(61) {
		for j := range names {
			name := names[(i+j)%len(names)]
			if d := b.time(group[name]()); i > 0 || b.quick {
				took[name] = append(took[name], d)
			}
		}
	}
	nothing := median(took["bare"])
	adds := median(took["bwrap"]) - nothing
	out := map[string]float64{"bwrap, ms": milliseconds(adds)}
	for name, d := range took {
		out[name] = float64(median(d)-nothing) / float64(adds)
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
