//go:build linux && amd64

package truthtest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

const replacedSpot = "another task that shares the descriptors may have put another file on one before the call " +
	"that opened it had returned; such opens say arguments=claimed"

// A name that another changed while the kernel used it is the one that the kernel used,
// also where that other is gone when the call ends.
func TestNamesChangedDuringTheCall(t *testing.T) {
	for _, c := range []struct {
		name string
		as   user
	}{
		{"changed-by-thread", users[0]}, {"changed-by-clone", users[0]}, {"changed-in-shared", users[0]},
		{"changed-in-file", users[0]}, {"changed-by-thread", users[1]}, {"changed-by-thread", users[2]},
	} {
		t.Run(c.name+"/"+c.as.name, func(t *testing.T) {
			need(t)
			dir := t.TempDir()
			r := c.as.record(t, dir, helper, c.name)
			r.claims(t)
			opens := map[string]uint64{}
			for i := range r.events {
				e := &r.events[i]
				if e.Errno() != "EINTR" {
					continue
				}
				if e.Claimed || !e.KernelCopy {
					t.Errorf("an open of %s is claimed: %v, and not the kernel's copy: %v", e.Value, e.Claimed,
						!e.KernelCopy)
				}
				opens[e.Value] += e.Times()
			}
			if never, waits := opens[dir+"/never"], opens[dir+"/waits"]; never != 1 || waits == 0 || len(opens) != 2 {
				t.Errorf("opens that were interrupted: %v, want one of W/never and some of W/waits", opens)
			}
		})
	}
}

// Which file was removed is known of every removal.
func TestMisnamedRemovals(t *testing.T) {
	for _, c := range []string{"removals-alone", "removals-racing"} {
		t.Run(c, func(t *testing.T) {
			asEach(t, users, func(t *testing.T, as user) {
				dir := t.TempDir()
				r := as.attack(t, dir, c)
				r.claims(t)
				removed := map[string]bool{}
				for name := range strings.FieldsSeq(r.out) {
					removed[dir+"/"+name] = true
				}
				var all, misnamed int
				for i := range r.events {
					e := &r.events[i]
					if e.Kind != schema.KindUnlink {
						continue
					}
					all += int(e.Times())
					if e.Claimed {
						t.Fatalf("%s is claimed", e.Value)
					}
					if !removed[e.Value] {
						misnamed++
					}
				}
				if all != len(removed) || all < as.times || misnamed > 0 {
					t.Errorf("%d removals, %d in the layer, %d with the wrong name", len(removed), all, misnamed)
				}
				if blindSpot(t, r, claimedSpot) {
					t.Error("the blind spot is exercised")
				}
			})
		})
	}
}

// An open whose descriptor another task has put another file on is claimed, or names the file that was asked for.
// How often the other task is in time is not known. Without one nothing is claimed, by whatever name.
func TestFilesPutOnNewDescriptors(t *testing.T) {
	need(t)
	for _, c := range []struct {
		name string
		as   user
	}{{"replaced", users[0]}, {"replaced", users[1]}, {"replaced", users[2]}, {"replaced-alone", users[0]}} {
		t.Run(c.name+"/"+c.as.name, func(t *testing.T) {
			dir := t.TempDir()
			r := c.as.record(t, dir, helper, c.name)
			r.claims(t)
			var asked, claimed, wrong uint64
			for i := range r.events {
				e := &r.events[i]
				switch {
				case e.Kind != schema.KindOpen || e.Failed() || e.Creates() || !strings.HasPrefix(e.Value, dir+"/"):
				case e.Claimed:
					claimed += e.Times()
				case e.Value == dir+"/asked":
					asked += e.Times()
				default:
					wrong += e.Times()
				}
			}
			if wrong > 0 || asked == 0 || asked+claimed > 20_000 || c.name == "replaced-alone" && claimed > 0 {
				t.Errorf("%d opens name what was asked for, %d are claimed, %d are wrong", asked, claimed, wrong)
			}
			if got := blindSpot(t, r, replacedSpot); got != (claimed > 0) {
				t.Errorf("%d are claimed, and the blind spot is exercised: %v", claimed, got)
			}
			t.Logf("%d of %d are claimed", claimed, asked+claimed)
		})
	}
}

// The same where the name has led to the other file before, so that the open is like one that was right.
func TestFilesPutWhereTheNameLedBefore(t *testing.T) {
	const asked, other = 100_001, 20_001 // each once to be at hand
	asEach(t, users, func(t *testing.T, as user) {
		dir := t.TempDir()
		r := as.record(t, dir, helper, "replaced-known")
		var opened, claimed, all uint64
		for i := range r.events {
			e := &r.events[i]
			switch {
			case e.Kind != schema.KindOpen || e.Failed() || e.Creates() || !strings.HasPrefix(e.Value, dir+"/"):
				continue
			case e.Claimed:
				claimed += e.Times()
			case e.Value == dir+"/other":
				opened += e.Times()
			}
			all += e.Times()
		}
		if opened > other || opened == 0 || all > asked+other {
			t.Errorf("%d opens of another file are said, %d were made; %d are claimed; %d in all",
				opened, other, claimed, all)
		}
		t.Logf("%d of %d are claimed, %d said of other", claimed, all, opened)
	})
}

// What the kernel keeps no such copy of is claimed where another could have changed it.
func TestWhatIsReadFromSharedMemoryIsClaimed(t *testing.T) {
	for _, c := range []struct {
		name    string
		claimed bool
		reasons []string
	}{{"attribute-alone", false, nil}, {"attribute-shared", true, []string{schema.CodeBlindSpot}}} {
		t.Run(c.name, func(t *testing.T) {
			asEach(t, users, func(t *testing.T, as user) {
				r := as.attack(t, t.TempDir(), c.name)
				r.claims(t, c.reasons...)
				var seen int
				for i := range r.events {
					if e := &r.events[i]; e.Kind == schema.KindSetxattr {
						seen++
						if e.Claimed != c.claimed || !e.KernelCopy {
							t.Errorf("claimed: %v, the kernel's copy: %v", e.Claimed, e.KernelCopy)
						}
					}
				}
				if got := blindSpot(t, r, claimedSpot); seen != 1 || got != c.claimed {
					t.Errorf("%d attributes were set, and the blind spot is exercised: %v", seen, got)
				}
			})
		})
	}
}

// Further messages of sendmmsg have their peers, and what failed in its arguments,
// or ended a connection, has none.
func TestPeers(t *testing.T) {
	for _, c := range []struct {
		name      string
		want      []string
		endpoints []string
	}{
		{"messages", []string{
			"bind unix:W/first", "bind unix:W/second-is-longer", "bind unix:W/third", "bind unix:W/own",
			"connect unix:W/own",
			"sendto unix:W/first", "sendto unix:W/second-is-longer ×2", "sendto unix:W/third",
			"sendto 127.0.0.1:9001 ×2", "sendto 127.0.0.1:9002", "sendto 127.0.0.1:9003",
		}, []string{"127.0.0.1:9001", "127.0.0.1:9002", "127.0.0.1:9003"}},
		{"bad-addresses", []string{
			"connect  EINVAL", "connect  EFAULT", "connect 127.0.0.1:9009 EINVAL", "sendto  EINVAL", "bind  EINVAL",
			"bind  EFAULT",
			"accept  EINVAL", "sendto unix: ENOTCONN", "connect 127.0.0.1:9009", "connect  ×3", "sendto  EDESTADDRREQ",
		}, []string{"127.0.0.1:9009"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			need(t)
			dir := t.TempDir()
			r := record(t, dir, nil, helper, c.name)
			r.claims(t)
			if d := cmp.Diff(c.want, r.story(dir, dull...)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			others := slices.DeleteFunc(r.surface.NetworkEndpoints, func(s string) bool {
				return strings.Contains(s, "unix:")
			})
			if d := cmp.Diff(c.endpoints, others); d != "" {
				t.Errorf("endpoints (-want +got):\n%s", d)
			}
		})
	}
}

// Whether descriptors came or went over a unix socket is known.
func TestPassedDescriptors(t *testing.T) {
	need(t)
	for _, c := range []struct {
		name     string
		possible bool
	}{{"passed", false}, {"received", true}, {"unpassed", false}} {
		t.Run(c.name, func(t *testing.T) {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			inside, outside := os.NewFile(uintptr(pair[0]), "inside"), os.NewFile(uintptr(pair[1]), "outside")
			defer inside.Close()
			defer outside.Close()
			if err := unix.Sendmsg(pair[1], []byte("x"), unix.UnixRights(pair[1]), nil, 0); err != nil {
				t.Fatal(err)
			}
			r := reach(t, c.name, inside)
			r.claims(t)
			if got := r.exercised(t, "passed_descriptors"); (got == nil) != c.possible {
				t.Errorf("exercised: %v", got)
			}
		})
	}
}

// The server's side of connections is one line, with how many came, and not one for
// each client's port.
func TestServersAreListedByTheirPorts(t *testing.T) {
	r := reach(t, "serve")
	r.claims(t)
	var flows []string
	for i := range r.events {
		if e := &r.events[i]; e.Kind == schema.KindFlow {
			flows = append(flows, fmt.Sprintf("%s at %s, peers %d, out %d, in %d", e.Value, e.Local, e.Peers,
				e.BytesOut, e.BytesIn))
		}
	}
	slices.Sort(flows)
	server := "127.0.0.1:" + strings.TrimSpace(r.out)
	want := []string{" at " + server + ", peers 20, out 0, in 100", server + " at , peers 0, out 100, in 0"}
	if d := cmp.Diff(want, flows); d != "" {
		t.Errorf("flows (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"127.0.0.1:<ephemeral>", "bind 127.0.0.1:<ephemeral>"},
		r.surface.NetworkEndpoints); d != "" {
		t.Errorf("endpoints (-want +got):\n%s", d)
	}
}
