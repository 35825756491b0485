package main

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/runner"
)

// container starts commands of this program in containers of one engine.
type container struct {
	*testing.T
	engine *enginetest.Engine
	exe    string
}

// TestDoctorsRemediesInDocker starts containers with the flags that doctor
// prints in a container that lacks something, and looks whether they bring it.
func TestDoctorsRemediesInDocker(t *testing.T) { testRemedies(t, enginetest.Docker(t)) }

// TestDoctorsRemediesInPodman does the same with Podman.
func TestDoctorsRemediesInPodman(t *testing.T) { testRemedies(t, enginetest.Podman(t)) }

func testRemedies(t *testing.T, engine *enginetest.Engine) {
	exe := staticProgram(t)
	noListener := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(noListener,
		[]byte(`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["seccomp"], "action": "SCMP_ACT_ERRNO"}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		flags   []string // of the container that lacks something
		finding string
		promise []string // the findings that are then ok
		command []string // and what then works, that did not before; nil for nothing
	}{
		{"cgroups", nil, "cgroup/session",
			[]string{"cgroup/session", "limits/memory", "limits/pids", "limits/cpu", "limits/io"},
			[]string{"--memory", "256M", "--pids", "50", "--kernel", "off", "--", "true"}},
		{"observation", nil, "kernel/ebpf",
			[]string{"cgroup/session", "kernel/ebpf", "sandbox/cgroup_bpf"},
			[]string{"--require", "complete", "--", "true"}},
		{"observation, where the image has another user", []string{"--user", "1000"}, "kernel/ebpf",
			[]string{"cgroup/session", "kernel/ebpf"},
			[]string{"--require", "complete", "--user", "1000", "--", "true"}},
		{"notification, where a profile forbids it", []string{"--security-opt", "seccomp=" + noListener},
			"kernel/notify",
			[]string{"kernel/notify"}, nil},
		{"the sandbox", nil, "sandbox/files",
			[]string{"sandbox/namespaces", "sandbox/files", "sandbox/network"},
			[]string{"--mode", "workspace-write", "--kernel", "off", "--", "true"}},
		{"the sandbox of an ordinary user", []string{"--user", "1000"}, "sandbox/files",
			[]string{"sandbox/namespaces", "sandbox/files", "sandbox/network"},
			[]string{"--mode", "workspace-write", "--kernel", "off", "--", "true"}},
		{"the sandbox's network", []string{"--cap-add", "SYS_ADMIN"}, "sandbox/network",
			[]string{"sandbox/network"},
			[]string{"--mode", "workspace-write", "--kernel", "off", "--", "true"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := container{t, engine, exe}
			command := append([]string{"-q", "-o", "/tmp/r.tar.gz", "--spool-dir", "/tmp/spool"}, c.command...)
			if out, err := in.run(c.flags, command...); err == nil && c.command != nil {
				t.Fatalf("works without the remedy:\n%s", out)
			}
			remedied := in.remedied(c.flags, c.finding)
			d := in.doctor(remedied)
			for _, name := range c.promise {
				i := slices.IndexFunc(d.Findings, func(f runner.Finding) bool { return f.Subject+"/"+f.Name == name })
				if i < 0 || d.Findings[i].State != runner.StateOK {
					t.Errorf("with %q %s is not ok:\n%+v", remedied, name, d.Findings[max(i, 0)])
				}
			}
			if out, err := in.run(remedied, command...); err != nil && c.command != nil {
				t.Errorf("with %q: %v\n%s", remedied, err, out)
			}
		})
	}
}

// doctor names the place that a container is in, with the remedy of that place.
func TestDoctorNamesThePlace(t *testing.T) {
	in := container{t, enginetest.Docker(t), staticProgram(t)}
	for _, c := range []struct{ env, place, remedy string }{
		{"NOTHING=1", "a Docker container", "start the container with: docker run "},
		{"KUBERNETES_SERVICE_HOST=10.0.0.1", "a Kubernetes pod", "give the pod's container securityContext: "},
		{"GITHUB_ACTIONS=true", "a Docker container, GitHub Actions",
			"set jobs.JOB.container.options of the workflow to: "},
		{"GITLAB_CI=true", "a Docker container, GitLab CI",
			"in the runner's config.toml set [runners.docker] privileged = true"},
	} {
		out, _ := in.run([]string{"--env", c.env}, "doctor")
		if !regexp.MustCompile(`(?m)^This is `+c.place+`(, a virtual machine)?\.`).MatchString(out) ||
			!strings.Contains(out, "fix: "+c.remedy) {
			t.Errorf("with %s:\n%s", c.env, out)
		}
		// One line for each capability, and each remedy once.
		lines := map[string]int{}
		for line := range strings.Lines(out) {
			if fix, ok := strings.CutPrefix(line, "  fix: "); ok {
				lines[fix]++
			}
		}
		for fix, n := range lines {
			if n > 1 {
				t.Errorf("with %s, this remedy is printed %d times: %s", c.env, n, fix)
			}
		}
	}
}

// A run that is not observed says so in doctor's words, with doctor's remedy.
func TestRunWarnsAsDoctorDoes(t *testing.T) {
	in := container{t, enginetest.Docker(t), staticProgram(t)}
	user := []string{"--user", "1000"}
	i := slices.IndexFunc(in.doctor(user).Findings, func(f runner.Finding) bool {
		return f.Subject+"/"+f.Name == "kernel/ebpf"
	})
	reasons := in.doctor(user).Findings[i].Reasons
	out, err := in.run(user, "--spool-dir", "/tmp/spool", "--redaction-key", "ephemeral", "-o", "/tmp/r.tar.gz", "--",
		"true")
	if err != nil || !strings.Contains(out, reasons[0].Message) ||
		!strings.Contains(out, "hint: "+firstRemedy(reasons[0].Remedy)) {
		t.Errorf("%v\n%s\ndoctor says %+v", err, out, reasons)
	}
}

// staticProgram is this program, which needs no libraries to run in a container.
func staticProgram(t *testing.T) string {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if libs, _ := file.ImportedLibraries(); len(libs) > 0 {
		t.Skip("the test program needs libraries that a container does not have: build it with CGO_ENABLED=0")
	}
	return exe
}

// command is assay-run in a container with these flags. Engines warn on stderr.
func (c container) command(flags []string, args ...string) *exec.Cmd {
	return c.engine.Command(slices.Concat([]string{"run", "--rm", "--network=none", "-v", c.exe + ":/bin/assay-run",
		"--workdir", "/tmp"}, flags, []string{enginetest.Image, "assay-run"}, args)...)
}

// run runs it, and returns all its output.
func (c container) run(flags []string, args ...string) (string, error) {
	out, err := c.command(flags, args...).CombinedOutput()
	return string(out), err
}

func (c container) doctor(flags []string) runner.Diagnosis {
	c.Helper()
	out, _ := c.command(flags, "doctor", "--json").Output()
	var d runner.Diagnosis
	if err := json.Unmarshal(out, &d); err != nil {
		c.Fatalf("%v:\n%s", err, out)
	}
	if d.Place.Container != c.engine.Program {
		c.Errorf("doctor takes a container of %s for %s", c.engine.Program, d.Place)
	}
	return d
}

var engineFlags = regexp.MustCompile(`--?[a-z]\S* \S+`)

// remedied are the flags together with those that doctor prints for a finding,
// and of two sets the second where the engine does not know the first.
func (c container) remedied(flags []string, finding string) []string {
	c.Helper()
	out, _ := c.run(flags, "doctor")
	block := regexp.MustCompile(`(?m)^  concerns: .*\b`+finding+`\b.*\n  fix: (.*)$`).FindAllStringSubmatch(out, -1)
	if len(block) != 1 {
		c.Fatalf("%d remedies for %s:\n%s", len(block), finding, out)
	}
	fix := block[0][1]
	if write, start, ok := strings.Cut(fix, "assay-run-seccomp.json; "); ok &&
		strings.Contains(write, "assay-run doctor --seccomp-profile > ") {
		text, err := c.command(flags, "doctor", "--seccomp-profile").Output()
		profile := filepath.Join(c.TempDir(), "profile.json")
		if err = errors.Join(err, os.WriteFile(profile, text, 0o600)); err != nil {
			c.Fatal(err)
		}
		fix = strings.ReplaceAll(start, "assay-run-seccomp.json", profile)
	}
	for part := range strings.SplitSeq(fix, "; ") {
		added := strings.Fields(strings.Join(engineFlags.FindAllString(part, -1), " "))
		if len(added) == 0 {
			continue
		}
		all := slices.Concat(flags, added)
		out, err := c.run(all, "--version")
		if err == nil {
			return all
		}
		if !strings.Contains(out, `unknown capability: "CAP_BPF"`) {
			c.Fatalf("the engine refuses %q:\n%s", all, out)
		}
	}
	c.Fatalf("the engine takes no remedy of:\n%s", out)
	return nil
}
