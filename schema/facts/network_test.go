package facts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// Each case is a list of events, one a word: what happened, to which instance (and thread),
// and more. "at 2 x" is a connection by instance 2, to x, and says where that was.
func TestNetworks(t *testing.T) {
	const start = "fork 1 0; exec 2 1; "
	for name, c := range map[string]struct{ events, want string }{
		"nobody leaves": {start + "at 2 a; fork 3 2; at 3 b", ""},
		"one leaves, and what it starts": {
			start + "fork 3 2; at 3 a; unshare 3; at 3 b; exec 4 3; at 4 c; fork 5 4; at 5 d; at 2 e", "b c d"},
		"it may not":                       {start + "refused 2; at 2 a", ""},
		"the recorder cannot tell whether": {start + "attempted 2; at 2 a; fork 3 2; at 3 b", "a? b?"},
		"a namespace of another kind":      {start + "unshare-mount 2; at 2 a", ""},
		"the runner makes the command's own": {
			"fork 1 0; runner 1; exec 2 1; at 2 a; fork 3 2; unshare 3; at 3 b", "b"},
		"one is entered, then another made": {
			start + "setns 2; at 2 a; unshare 2; at 2 b; setns 2; at 2 c", "a? b c?"},
		"a clone that is told before its act": {start + "fork 3 2; clone 2 3; at 3 a; at 2 b", "a"},
		"a clone that is told after its exec": {
			start + "fork 3 2; exec 4 3; fork 5 4; clone 2 3; at 4 a; at 5 b; at 2 c", "a b"},
		"a clone in a pid namespace":         {start + "fork 3 2; fork 4 2; clone 2 7; at 4 a; at 3 b", "a"},
		"a clone while another thread forks": {start + "fork 3 2; fork 4 2; clone 2 3; at 4 a; at 3 b", "b"},
		"a clone that is not yet done":       {start + "cloning 2; fork 3 2; at 3 a; fork 4 2; at 4 b; at 2 c", "a?"},
		"a thread leaves": {
			start + "thread 2.10; unshare 2.10; at 2.10 a; at 2 b; thread 2.11; at 2.11 c; fork 3 2; at 3 d",
			"a c? d?"},
		"all threads are elsewhere": {
			start + "unshare 2; thread 2.10; thread 2.11; thread 2.10; at 2.11 a; fork 3 2; at 3 b", "a b"},
		"a count of what was before, after, and both": {
			start + "at 2 a; unshare 2; at 2 b; count 2 a 2; count 2 b 9; count 2 c 2-9", "b b c?"},
		"a file is the same everywhere": {
			start + "unshare 2; at 2 unix:/run/x; at 2 unix:@x; at 2 [::1]:80", "unix:@x [::1]:80"},
		"a container's first process joins": {
			"in first 1; at 1 a; in first 2; at 2 b; in second 3; at 3 c; fork 4 3; at 4 d", "c? d?"},
	} {
		var n Networks
		var got []string
		pids := map[uint64]uint32{}
		for i, step := range strings.Split(c.events, "; ") {
			w := strings.Fields(step)
			e := schema.KernelEvent{TNS: int64(i), HasResult: true, Flags: cloneNewNet}
			if w[0] == "in" {
				w = []string{"join", w[2], w[1]}
				e.ContainerID = w[2]
			}
			if k, err := fmt.Sscanf(w[1], "%d.%d", &e.ExecID, &e.TID); k == 0 {
				t.Fatal(err)
			}
			var other int64
			if len(w) > 2 {
				fmt.Sscan(w[2], &other)
			}
			if pids[e.ExecID] == 0 {
				pids[e.ExecID] = uint32(e.ExecID)
			}
			if w[0] == "exec" {
				pids[e.ExecID] = pids[uint64(other)]
			}
			e.PID = pids[e.ExecID]
			e.Kind, e.Call = schema.KindNamespace, "unshare"
			switch w[0] {
			case "fork":
				e.Kind, e.ParentExecID = schema.KindFork, uint64(other)
			case "exec":
				e.Kind, e.ParentExecID = schema.KindExec, uint64(other)
			case "join":
				e.Kind = schema.KindJoin
			case "thread":
				e.Kind = schema.KindThread
			case "refused":
				e.Result = -1
			case "attempted":
				e.HasResult, e.Attempted = false, true
			case "unshare-mount":
				e.Flags = 0x20000
			case "runner":
				e.Class = schema.ClassRunner
			case "setns":
				e.Call = w[0]
			case "cloning":
				e.Call, e.HasResult, e.Attempted = "clone", false, true
			case "clone":
				e.Call, e.Result = w[0], other
			case "at", "count":
				e.Kind, e.Value = schema.KindConnect, w[2]
				if len(w[2]) == 1 {
					e.Value = "127.0.0.1:" + fmt.Sprint(w[2][0])
				}
				if w[0] == "count" {
					e.Repeat = true
					if k, _ := fmt.Sscanf(w[3], "%d-%d", &e.TFirstNS, &e.TLastNS); k == 1 {
						e.TLastNS = e.TFirstNS
					}
				}
			}
			if n.Add(&e); e.Kind == schema.KindConnect {
				switch n.Of(&e) {
				case OtherNetwork:
					got = append(got, w[2])
				case UnknownNetwork:
					got = append(got, w[2]+"?")
				}
			}
		}
		if d := cmp.Diff(c.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
