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

// starts measures what it takes to run a command that does nothing.
//
// Some rows have no floor: the time of bwrap, of the part of a run that every Go program
// would need, and of the least that a run has to do. testdata/least says what that is, and
// what it leaves out. It finds its seat's maps in place, which a run does not if all seats
// that have some were in use within the last second.
func (b *bench) starts() []single {
	over := sync.OnceValue(b.startsOverBwrap)
	return []single{
		{"what bwrap adds to the start of true", "ms", noFloor, func() float64 { return over()["bwrap, ms"] }},
		{"what the smallest Go program that starts true adds, over what bwrap adds", "times", noFloor, func() float64 { return over()["go"] }},
		{"what two such programs add, one started by the other, over what bwrap adds", "times", noFloor, func() float64 { return over()["twice go"] }},
		{"what a run of true adds, kernel layer off, over what bwrap adds", "times", 2, func() float64 { return over()["off"] }},
		{"what a run of true adds, observer in place, over what bwrap adds", "times", 3, func() float64 { return over()["shared"] }},
		{"the limit: what the least that a run of true has to do adds, kernel layer off, over what bwrap adds", "times", noFloor, func() float64 { return over()["least"] }},
		{"the limit: what the least that a run of true has to do adds, observer in place, over what bwrap adds", "times", noFloor, func() float64 { return over()["least shared"] }},
		{"what the first run of true on a host adds, over what bwrap adds", "times", 12, func() float64 { return over()["first"] }},
	}
}

// startsOverBwrap runs the bare command, bwrap and runs in turns.
//
// The kernel goes on to free the programs of a run that loaded them after the run has ended,
// which slows what comes next. So what loads programs is in a group of its own, each group has
// its own bare command and bwrap, and each round begins with the next of the group.
func (b *bench) startsOverBwrap() map[string]float64 {
	floor := b.floor()()
	complete := b.run([]string{"--require", "complete"}, "/bin/true")
	least := b.least()
	out := b.overBwrap(map[string]func() *exec.Cmd{
		"least":    least("", "/bin/true"),
		"go":       bare(floor, "/bin/true"),
		"twice go": bare(floor, floor, "/bin/true"),
		"off":      b.run([]string{"--kernel", "off"}, "/bin/true"),
	})
	pinned, end := b.inPlace()
	shared := b.overBwrap(map[string]func() *exec.Cmd{"shared": complete, "least": least(pinned, "/bin/true")})
	out["shared"], out["least shared"] = shared["shared"], shared["least"]
	end()
	out["first"] = b.overBwrap(map[string]func() *exec.Cmd{"first": complete})["first"]
	return out
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
