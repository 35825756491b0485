//go:build linux && amd64

package truthtest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// A claim is open after a call that can have done what no line tells, and names it. What is modelled opens none.
func TestOpenClaims(t *testing.T) {
	const fifo = "/tmp/.assay-truth-fifo"
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(fifo)
	const python = "/usr/bin/python3."
	for _, c := range []struct {
		name string
		// of each open claim, what its sentence has behind the program
		open map[view.Subject]string
	}{
		{"loaded", nil},
		{"multicast", map[view.Subject]string{view.Hosts: "set IP_ADD_MEMBERSHIP (1x)"}},
		{"routed", map[view.Subject]string{view.Hosts: "set IP_OPTIONS (1x)"}},
		{"release_agent", all("made or changed a cgroup hierarchy (2x)")},
		{"control", map[view.Subject]string{view.Hosts: "sent control message IP_RETOPTS (1x)"}},
		{"audited", map[view.Subject]string{view.Privilege: "sent netlink AUDIT_USER_message (1x)"}},
		{"accounting", map[view.Subject]string{view.Files: "called acct (2x)"}},
		{"attributes", map[view.Subject]string{view.Files: "called ioctl FS_IOC_SETFLAGS on a file (1x)"}},
		{"setting", all("wrote, or could write, to /proc/sys/kernel/printk (1x)")},
		{"network_setting",
			map[view.Subject]string{view.Hosts: "wrote, or could write, to /proc/sys/net/ipv4/ip_forward (1x)"}},
		{"own_score", nil},
		{"log_device", map[view.Subject]string{view.Privilege: "/k (1x)"}},
		{"tracing_file", all("/d/tracing_on (1x)")},
		{"own_fifo", nil},
		{"other_fifo", all("wrote, or could write, to " + fifo + " (1x)")},
		{"exchange", nil},
		{"serve", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := reach(t, c.name)
			r.claims(t)
			for _, about := range []view.Subject{view.Programs, view.Files, view.Hosts, view.Privilege} {
				var got string
				for _, g := range view.Claim(&archive.Documents{Health: r.health}, about) {
					got += g.Text
				}
				want := c.open[about]
				if want == "" && got != "" ||
					want != "" && (!strings.Contains(got, python) || !strings.Contains(got, want)) {
					t.Errorf("%s: %q, want %q", about, got, want)
				}
			}
			switch c.name {
			case "loaded":
				if !slices.Contains(r.surface.ProcessExecs, "/tmp/.hidden-ld") {
					t.Errorf("executed: %q", r.surface.ProcessExecs)
				}
			case "exchange":
				var calls []string
				for i := range r.events {
					if e := &r.events[i]; e.Kind == schema.KindIPC {
						calls = append(calls, strings.TrimSpace(e.Call+" "+e.Value+e.Target))
					}
				}
				want := []string{"shmget", "shmat", "shmctl", "semget", "semop", "semctl", "msgget", "msgsnd", "msgctl",
					"mq_open /assay-truth", "mq_timedsend /assay-truth", "mq_unlink assay-truth"}
				if d := cmp.Diff(want, calls); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			}
		})
	}
}

func all(act string) map[view.Subject]string {
	return map[view.Subject]string{view.Programs: act, view.Files: act, view.Hosts: act, view.Privilege: act}
}
