//go:build linux && amd64

package cgroup_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// systemdDir is where the runs inside put everything; anybody may write there.
const systemdDir = "/w"

// programs are what the runs run, as files: systemd has its own idea of a $.
var programs = map[string]string{
	// It meets the memory limit, then the pids limit, and leaves processes behind.
	"hog-and-bomb": "dd if=/dev/zero of=/dev/null bs=100M count=1; exec " + systemdDir + "/bomb",
	// It meets the memory limit and waits for what comes of that.
	"hog":  "dd if=/dev/zero of=/dev/null bs=100M count=1; exec sleep 1000",
	"bomb": "(for i in $(seq 40); do sleep 1000 & done); echo bitten",
	"reload": "systemctl daemon-reload; systemctl set-property --runtime $1 CPUWeight=50; sleep 1; exec " + systemdDir +
		"/bomb",
	"daemon": "setsid sleep 1000 & echo bitten",
	// It takes no hint to end.
	"stubborn": `trap "" TERM; setsid sh -c 'trap "" TERM; while :; do sleep 0.1; done' & touch $1; while :; do sleep 0.1; done`,
}

// unit is the way a command gets into a unit: systemd-run, with arguments.
func unit(args ...string) []string {
	return append([]string{"systemd-run", "-q", "--working-directory=" + systemdDir}, args...)
}

// login is a user's session, in which systemd-run --user is the user's systemd.
func login(args ...string) []string {
	return append(unit("--wait", "--pipe", "-p", "User=user", "-p", "PAMName=login"), args...)
}

// ended is what a run tells of its end.
type ended struct {
	Code      int // of the command that started all; systemd-run has its own for a unit that was stopped
	Outcome   string
	LimitsHit []string `json:"limits_hit"`
	Left      bool     // there were leftovers
	Reasons   []string // codes, in the observation health, about cgroups and limits
}

func insideSystemd(t *testing.T) {
	if err := os.Mkdir(systemdDir, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(systemdDir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(systemdDir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "loginctl", "enable-linger", "user") // else its systemd comes and goes with each session
	t.Run("limits", systemdLimits)
	t.Run("doctor", systemdDoctor)
	t.Run("killed", systemdKilled)
	t.Run("nothing is left", systemdClean)
}

// systemdLimits runs a command under limits in every place that systemd makes.
func systemdLimits(t *testing.T) {
	both := []string{"--memory", "32M", "--pids", "16"}
	pids := both[2:]
	bitten := ended{Outcome: "exited", LimitsHit: []string{"memory", "pids"}, Left: true}
	onlyPids := ended{Outcome: "exited", LimitsHit: []string{"pids"}, Left: true}
	for _, c := range []struct {
		name    string
		place   []string
		flags   []string
		program string
		want    ended
	}{
		{"a delegated service", unit("--wait", "--pipe", "-p", "Delegate=yes"), both, "hog-and-bomb", bitten},
		{"a delegated scope", unit("--scope", "-p", "Delegate=yes"), both, "hog-and-bomb", bitten},
		{"a service", unit("--wait", "--pipe"), pids, "bomb", onlyPids},
		{"a scope", unit("--scope"), pids, "bomb", onlyPids},
		{"a service that is stopped by systemd when the kernel kills for want of memory",
			unit("--wait", "--pipe", "--collect"), both, "hog",
			ended{Code: 1, Outcome: "signaled", LimitsHit: []string{"memory"},
				Reasons: []string{"unit_not_delegated"}}},
		{"a session of root's, with a shell around",
			unit("--wait", "--pipe", "-p", "User=root", "-p", "PAMName=login", "sh", "-c", `"$@"; exit $?`, "sh"), both,
			"hog-and-bomb", bitten},
		{"a user's delegated scope", login("systemd-run", "--user", "-q", "--scope", "-p", "Delegate=yes"), both,
			"hog-and-bomb", bitten},
		{"a user's delegated service", login(unit("--user", "--wait", "--pipe", "-p", "Delegate=yes")...), both,
			"hog-and-bomb", bitten},
		{"a user's scope", login("systemd-run", "--user", "-q", "--scope"), pids, "bomb", onlyPids},
		{"a user's session, which is nobody's to change", login(), nil, "daemon",
			ended{Outcome: "exited", LimitsHit: []string{}, Left: true, Reasons: []string{"cgroup2_not_writable"}}},
		{"a user's session, where a limit is refused", login("--collect"), pids, "bomb",
			ended{Code: 125, Outcome: "infra_error", LimitsHit: []string{}}},
		{"a service around which systemd is reloaded", unit("--wait", "--pipe", "--unit", "reloaded"), pids, "reload",
			onlyPids},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := strings.ReplaceAll(t.Name(), "/", "-")
			args := append(c.place, "assay-run", "-q", "--kernel", "off", "-o", name+".tar.gz", "--result",
				name+".json", "--grace", "2s")
			args = append(append(args, c.flags...), "--", filepath.Join(systemdDir, c.program), "reloaded.service")
			got, out := recorded(t, args, name)
			if c.want.Outcome == "signaled" {
				got.Left = false // the kernel and systemd end processes at the same time
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s\n%s", diff, out)
			}
			if left := assayCgroups(); len(left) > 0 {
				t.Errorf("cgroups outlive the run: %q", left)
			}
		})
	}
}

// systemdDoctor asks in each place what a run could do there.
func systemdDoctor(t *testing.T) {
	const delegate, edit = "-p Delegate=yes", "systemctl edit user@.service"
	for _, c := range []struct {
		name  string
		place []string
		want  []string
	}{
		{"a service", unit("--wait", "--pipe"),
			[]string{"session ok", "memory degraded: " + delegate, "pids ok", "cpu missing: " + delegate,
				"io missing: " + delegate}},
		{"a delegated service", unit("--wait", "--pipe", "-p", "Delegate=yes"),
			[]string{"session ok", "memory ok", "pids ok", "cpu ok", "io ok"}},
		{"a user's session", login(),
			[]string{"session degraded: " + delegate, "memory missing: " + delegate, "pids missing: " + delegate,
				"cpu missing: " + delegate, "io missing: " + delegate}},
		{"a user's scope", login("systemd-run", "--user", "-q", "--scope"),
			[]string{"session ok", "memory ok", "pids ok", "cpu missing: " + delegate, "io missing: " + edit}},
		{"a user's delegated scope", login("systemd-run", "--user", "-q", "--scope", "-p", "Delegate=yes"),
			[]string{"session ok", "memory ok", "pids ok", "cpu ok", "io missing: " + edit}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append(c.place, "assay-run", "doctor", "--json")
			out, err := exec.Command(args[0], args[1:]...).Output()
			var d struct {
				Findings []struct {
					Subject, Name, State string
					Reasons              []struct{ Remedy string }
				}
			}
			if err != nil || json.Unmarshal(out, &d) != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var got []string
			for _, f := range d.Findings {
				if f.Subject != "cgroup" && f.Subject != "limits" {
					continue
				}
				line := f.Name + " " + f.State
				for _, r := range f.Reasons {
					for _, remedy := range []string{delegate, edit} {
						if strings.Contains(r.Remedy, remedy) {
							line += ": " + remedy
							break
						}
					}
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s\n%s", diff, out)
			}
		})
	}
}

// systemdKilled ends runs by force, whose commands resist.
func systemdKilled(t *testing.T) {
	wrapped := []string{"sh", "-c", `"$@"; exit $?`, "sh"}
	for _, c := range []struct {
		name  string
		place []string
		kill  func(t *testing.T, runner int)
	}{
		{"the runner", login("--collect", "systemd-run", "--user", "-q", "--scope", "-p", "Delegate=yes"),
			func(t *testing.T, runner int) {
				must(t, "kill", "-KILL", strconv.Itoa(runner))
			}},
		{"a service by its end", unit("--collect", "-p", "TimeoutStopSec=1s"), func(t *testing.T, runner int) {
			must(t, "systemctl", "stop", unitOf(t, runner))
		}},
		// The limit puts the session beside the scope: what kills all in there kills the guard too,
		// unless that is elsewhere.
		{"a session of root's with a shell around",
			unit(append([]string{"--collect", "-p", "User=root", "-p", "PAMName=login"}, wrapped...)...),
			func(t *testing.T, runner int) {
				must(t, "systemctl", "kill", "-s", "KILL", unitOf(t, runner))
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := strings.ReplaceAll(t.Name(), "/", "-")
			name = strings.ReplaceAll(name, " ", "_")
			ready := filepath.Join(systemdDir, name+".ready")
			args := slices.Concat(c.place,
				[]string{"assay-run", "-q", "--kernel", "off", "--memory", "32M", "-o", name + ".tar.gz", "--",
					filepath.Join(systemdDir, "stubborn"), ready})
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Dir = systemdDir
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			soon(t, 120*time.Second, "the command starts", func() bool { _, err := os.Stat(ready); return err == nil })
			runner := 0
			for _, p := range processes("assay-run\x00-q\x00") {
				runner = p
			}
			c.kill(t, runner)
			soon(t, 120*time.Second, "the command's processes end", func() bool {
				return len(processes("trap \"\" TERM", "stubborn\x00")) == 0
			})
			soon(t, 120*time.Second, "the cgroups go", func() bool { return len(assayCgroups()) == 0 })
		})
	}
	must(t, "assay-run", "recover", "--all")
	args := login("assay-run", "recover", "--all")
	must(t, args[0], args[1:]...)
}

// systemdClean tells what all of it has left behind.
func systemdClean(t *testing.T) {
	if left := assayCgroups(); len(left) > 0 {
		t.Errorf("cgroups: %q", left)
	}
	if left := processes("assay-run\x00"); len(left) > 0 {
		t.Errorf("processes: %v", left)
	}
	failed := []string{"systemctl", "--failed", "--plain", "--no-legend"}
	user := login("systemctl", "--user", "--failed", "--plain", "--no-legend")
	for _, args := range [][]string{failed, user,
		{"systemctl", "list-units", "--plain", "--no-legend", "run-*.service", "run-*.scope", "session-*.scope"}} {
		if out := must(t, args[0], args[1:]...); out != "" {
			t.Errorf("%q: %s", args, out)
		}
	}
	if state := must(t, "systemctl", "is-system-running"); state != "running\n" {
		t.Errorf("systemd is %s", state)
	}
	bundles, _ := filepath.Glob(filepath.Join(systemdDir, "*.tar.gz"))
	if len(bundles) < 15 {
		t.Errorf("%d bundles", len(bundles))
	}
	for _, b := range bundles {
		must(t, "assay-run", "verify", b)
	}
}
