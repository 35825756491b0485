package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/cgroup"
)

// blocks are the fenced blocks of a page: what follows the fence, and the text.
var blocks = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// TestReadme runs the examples of each section of README.md as they are written, in a
// directory of their own. A block whose first line is a comment with a file's name is that
// file. In the others, a line after "$ " is a command; it succeeds, unless "echo $?" follows.
func TestReadme(t *testing.T) {
	if cgroup.Probe().Mode() == cgroup.None {
		t.Skip("the examples limit memory, which needs a cgroup that can be written")
	}
	for _, program := range []string{"go", "make", "cc", "ssh-keygen", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the examples use %s: %v", program, err)
		}
	}
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(bin, "assay-run")); err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`^# (\S+\.[a-z]+)\n`)
	commands := 0
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		t.Run(title, func(t *testing.T) {
			e := example{t: t, dir: t.TempDir(),
				env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+t.TempDir())}
			for _, b := range blocks.FindAllStringSubmatch(text, -1) {
				if f := named.FindStringSubmatch(b[2]); f != nil {
					if err := os.WriteFile(filepath.Join(e.dir, f[1]), []byte(b[2]), 0o644); err != nil {
						t.Fatal(err)
					}
					continue
				}
				e.block(b[2])
			}
			commands += e.ran
		})
	}
	if commands < 20 {
		t.Errorf("only %d commands were found", commands)
	}
}

// example is a directory in which examples are run.
type example struct {
	t      *testing.T
	dir    string
	env    []string
	ran    int
	said   string // by the last command
	status int
}

// seconds are how long a call took, 0.0 s in the examples.
var seconds = regexp.MustCompile(`\b\d+\.\d s\b`)

// block runs the commands of one block, and looks for what it says of the messages.
func (e *example) block(text string) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			// Bundles, times and paths differ; messages and what is said of calls do not.
			if regexp.MustCompile(`^(assay-run: (error|warning|hint): |denied|  call_|    ! its)`).MatchString(line) &&
				!strings.Contains(seconds.ReplaceAllString(e.said, "0.0 s"), line) {
				e.t.Errorf("%q is not among what the command said:\n%s", line, e.said)
			}
			continue
		}
		if command == "echo $?" {
			if want := lines[i+1]; want != strconv.Itoa(e.status) {
				e.t.Errorf("exit status %d, want %s", e.status, want)
			}
			e.status = 0
			continue
		}
		if e.status != 0 {
			e.t.Errorf("exit status %d:\n%s", e.status, e.said)
		}
		if strings.Contains(command, " -- codex ") { // another program's
			if _, err := exec.LookPath("codex"); err != nil {
				e.t.Logf("not run, as codex is not installed: %s", command)
				continue
			}
		}
		if strings.Contains(command, " observe ") && !observes() {
			continue
		}
		e.said = e.shell(command)
		e.ran++
	}
	if e.status != 0 {
		e.t.Errorf("exit status %d:\n%s", e.status, e.said)
	}
	e.status = 0
}

// shell runs a command and keeps its status.
func (e *example) shell(command string) string {
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir, cmd.Env = e.dir, e.env
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		e.t.Fatal(err)
	}
	e.status = cmd.ProcessState.ExitCode()
	return string(out)
}
