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

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/vmtest"
)

// TestSystemd runs the real command where systemd is process 1 and logind and a
// systemd of the user's are at work.
func TestSystemd(t *testing.T) {
	layertest.Night(t)
	switch os.Getenv("CGROUP_TEST_INNER") {
	case "systemd":
		insideSystemd(t)
		return
	case "":
	default:
		t.Skip("this is the inner run")
	}
	binary := filepath.Join(t.TempDir(), "assay-run")
	build := exec.Command("go", "build", "-o", binary, "../cmd/assay-run")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	vmtest.Suite(t, vmtest.Machine{Systemd: true, MemoryMiB: 1536, Files: map[string]string{"/bin/assay-run": binary},
		Script: `
export CGROUP_TEST_INNER=systemd
/suite -test.v -test.run '^TestSystemd$' && exit
journalctl -b --no-pager -p notice _COMM=systemd
exit 1
`}, "6.12", 900*time.Second, 1)
}

// recorded runs a command that ends in assay-run with its output in name.
func recorded(t *testing.T, args []string, name string) (ended, string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = systemdDir
	out, _ := cmd.CombinedOutput()
	e := ended{Code: cmd.ProcessState.ExitCode()}
	var result struct{ Leftovers int }
	var health struct {
		Reasons []struct{ Subject, Code string }
	}
	doc, err := os.ReadFile(filepath.Join(systemdDir, name+".json"))
	if err != nil || json.Unmarshal(doc, &e) != nil || json.Unmarshal(doc, &result) != nil ||
		json.Unmarshal([]byte(must(t, "tar", "xzOf", filepath.Join(systemdDir, name+".tar.gz"),
			"observation-health.json")), &health) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e.Left = result.Leftovers > 0
	for _, r := range health.Reasons {
		if r.Subject == "cgroup" || r.Subject == "limits" {
			e.Reasons = append(e.Reasons, r.Code)
		}
	}
	return e, string(out)
}

func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func soon(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > limit {
			t.Errorf("not within %v: %s; cgroups %q", limit, what, assayCgroups())
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%s: %v", what, time.Since(began))
}

// processes finds those whose command line has one of these in it.
func processes(any ...string) (found []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		b, _ := os.ReadFile(f)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if pid != os.Getpid() && slices.ContainsFunc(any, func(s string) bool {
			return strings.Contains(string(b), s)
		}) {
			found = append(found, pid)
		}
	}
	return found
}

// unitOf names the unit that a process is in.
func unitOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	path := strings.TrimSpace(string(b))
	for filepath.Ext(path) != ".service" && filepath.Ext(path) != ".scope" {
		path = filepath.Dir(path)
	}
	return filepath.Base(path)
}

func assayCgroups() (found []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "assay-run") {
			found = append(found, path)
		}
		return nil
	})
	return found
}
