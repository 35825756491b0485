//go:build linux && amd64

package truthtest

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/assay-run/assay-run/schema"
)

// nobody is the user of the attacks that are not root's.
const nobody = 65534

// attack runs a case of testdata/reach.py against the process of that id, or "recorder", with further options
// of the run, in front of which can stand a command.
func attack(t *testing.T, name, target string, front, options []string) recording {
	t.Helper()
	need(t, "python3", "unshare")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("testdata/reach.py")
	if err != nil {
		t.Fatal(err)
	}
	run, bundle := prepare(t, dir, nil, "/usr/bin/python3", "-S", "-c", string(script), name, target)
	// a reason is no failure here
	run.Args = slices.DeleteFunc(run.Args, func(a string) bool { return a == "--kernel" || a == "require" })
	run.Args = slices.Insert(run.Args, 1, options...)
	if len(front) > 0 {
		run.Args = append(slices.Clone(front), append([]string{run.Path}, run.Args[1:]...)...)
		run.Path = must(exec.LookPath(front[0]))
	}
	out, err := run.CombinedOutput()
	if err != nil && run.ProcessState.ExitCode() != 125 { // which is the judgement of a run that traced the recorder
		t.Fatalf("%v\n%s", err, out)
	}
	r := readBundle(t, bundle)
	r.out = string(out)
	return r
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// acts are the calls on other processes, and the signals, that had a result of 0.
func (r *recording) acts() (list []string) {
	for i := range r.events {
		e := &r.events[i]
		switch {
		case e.Class != schema.ClassAgent || e.Result < 0:
		case e.Kind == schema.KindSignal:
			list = append(list, e.Kind.String()+" "+e.Value)
		case e.Kind == schema.KindPrivileged && (e.Call != "fcntl" || len(e.Args) > 2):
			list = append(list, e.Call)
		}
	}
	return list
}

// What a run does to a process outside is recorded, whoever it runs as, and so is a signal that
// the kernel sends because the run asked for it. A sandbox keeps such processes out of reach.
func TestActsOnProcessesOutside(t *testing.T) {
	for _, c := range []struct {
		name string
		want []string
	}{
		{"limited", []string{"prlimit64"}},
		{"priority", []string{"setpriority"}},
		{"scheduled", []string{"sched_setaffinity", "sched_setscheduler", "ioprio_set"}},
		{"owned", []string{"fcntl", "signal SIGCONT"}},
		{"own_only", nil},
	} {
		for _, as := range []struct {
			name    string
			options []string
		}{{"root", nil}, {"user", []string{"--user", "nobody"}}} {
			t.Run(c.name+"/"+as.name, func(t *testing.T) {
				need(t, "sleep")
				other := exec.Command("sleep", "600")
				if as.options != nil {
					other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
				}
				if err := other.Start(); err != nil {
					t.Fatal(err)
				}
				defer other.Wait()
				defer other.Process.Kill()
				r := attack(t, c.name, strconv.Itoa(other.Process.Pid), nil, as.options)
				r.claims(t)
				if d := cmp.Diff(c.want, slices.Compact(r.acts()), cmpopts.EquateEmpty()); d != "" {
					t.Errorf("acts (-want +got):\n%s", d)
				}
			})
		}
	}
}

// On the recorder they speak against the layer, also where the recorder is in a PID namespace: its
// number there is another process's outside.
func TestActsOnTheRecorder(t *testing.T) {
	namespace := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	for _, c := range []struct {
		name, reason string
	}{
		{"limited", "runner_signalled"},
		{"owned", "runner_signalled"},
		{"stop", "runner_signalled"},
		{"priority", "runner_changed"},
		{"ptrace", "outside_process_traced"},
	} {
		for where, front := range map[string][]string{"host": nil, "namespace": namespace} {
			t.Run(c.name+"/"+where, func(t *testing.T) {
				r := attack(t, c.name, "recorder", front, nil)
				var codes []string
				for _, reason := range r.health.Reasons {
					if reason.Subject == "kernel" {
						codes = append(codes, reason.Code)
					}
				}
				if !slices.Contains(codes, c.reason) || r.health.KernelLayer == schema.Complete {
					t.Errorf("the layer is %s: %s; want %s", r.health.KernelLayer, strings.Join(codes, ", "), c.reason)
				}
			})
		}
	}
	t.Run("sandbox", func(t *testing.T) {
		r := attack(t, "unreachable", "recorder", nil, []string{"--mode", "workspace-write"})
		r.claims(t)
		if !strings.Contains(r.out, "nobody") {
			t.Errorf("a sandboxed command found the recorder: %s", r.out)
		}
	})
}
