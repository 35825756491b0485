package kernel

import (
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// placeGroup is what writing to files by which the kernel is controlled can do. names are those of [Event.Place],
// with PID for the number of a process, separated by spaces. One that ends in a slash or a colon stands for all that
// begin with it. The first group that has a name, or a beginning of it, counts.
type placeGroup struct {
	account Account
	claims  []string
	why     string
	names   string
}

// placeGroups are the modelled places.
var placeGroups = []placeGroup{
	{AccountRecorded, nil, "it changes how the kernel treats a process, which the line names", `
		/proc/PID/attr/ /proc/PID/autogroup /proc/PID/clear_refs /proc/PID/comm /proc/PID/coredump_filter
		/proc/PID/gid_map /proc/PID/loginuid /proc/PID/oom_adj /proc/PID/oom_score_adj /proc/PID/projid_map
		/proc/PID/setgroups /proc/PID/timens_offsets /proc/PID/timerslack_ns /proc/PID/uid_map`},
	{AccountRecorded, nil, "what it changes there has a line of its own", `/proc/PID/mem`},
	{AccountRecorded, nil, "it sets limits of a group of processes; a process that moves has a line", `
		/sys/fs/cgroup/`},
	{AccountRecorded, nil, "it says who may use which ports and messages",
		`/proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/ipv4/ping_group_range`},
	{AccountOpen, opensHosts, "it changes the settings of a network", `/proc/sys/net/ /dev/net/tun`},
	{AccountRecorded, nil, "it keeps nothing, or gives it to the programs at the other end of a terminal", `
		/dev/char/1:3 /dev/char/1:5 /dev/char/1:7 /dev/char/1:8 /dev/char/1:9 /dev/char/4: /dev/char/5:0
		/dev/char/5:1 /dev/char/5:2 /dev/char/136: /dev/char/137: /dev/char/138: /dev/char/139: /dev/char/140:
		/dev/char/141: /dev/char/142: /dev/char/143:`},
	{AccountRecorded, nil, "it serves a file system, or computes in memory of a device's", `
		/dev/char/10:229 /dev/char/10:232 /dev/char/195: /dev/char/226:`},
	{AccountOpen, opensPrivilege, "it writes to the kernel's log", `/dev/char/1:11`},
	{AccountOpen, opensFiles, "the files that the device holds change with it", `/dev/block/`},
}

// otherPlaces are all others.
var otherPlaces = placeGroup{AccountOpen, everything, "it is not known what the kernel does with what is written there",
	"other"}

// placeOpens is Opens of an open to write, or of a write, of such a file.
func (e *Event) placeOpens() (Opening, bool) {
	if e.Place == "" || e.Kind == schema.KindOpen && !e.Writes() {
		return Opening{}, false
	}
	o := Opening{Call: "open", Operation: e.Value, Claims: otherPlaces.claims, Why: otherPlaces.why}
	if e.Kind == schema.KindWrite {
		o.Call = "write"
	}
	at := ofProcess(e.Place)
	for _, g := range placeGroups {
		for name := range strings.FieldsSeq(g.names) {
			last := name[len(name)-1]
			if at == name || (last == '/' || last == ':') && strings.HasPrefix(at, name) {
				o.Claims, o.Why = g.claims, g.why
				return o, g.account == AccountOpen
			}
		}
	}
	return o, true
}

// ofProcess puts PID in the place of the numbers of a process and a thread.
func ofProcess(place string) string {
	rest, ok := strings.CutPrefix(place, "/proc/")
	number, name, in := strings.Cut(rest, "/")
	if !ok || !in || strings.Trim(number, "0123456789") != "" {
		return place
	}
	if task, found := strings.CutPrefix(name, "task/"); found {
		_, name, _ = strings.Cut(task, "/")
	}
	return "/proc/PID/" + name
}
