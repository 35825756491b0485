package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/recordertest"
)

// blocks are the fenced blocks of a page: what follows the fence, and the text.
var blocks = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// documents are the pages with examples that TestReadme runs.
var documents = []string{"README.md", "docs/contracts.md", "docs/calls.md", "docs/secrets.md", "docs/observer.md"}

// TestReadme runs the examples of each page as they are written, in order, in one directory. A block whose first line
// is a comment with a file's name is that file. In the others, a line after "$ " is a command; it succeeds, unless
// "echo $?" follows. A block of a console has all that its commands print; README=write writes it.
func TestReadme(t *testing.T) {
	for _, program := range []string{"go", "make", "ssh-keygen", "python3", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the examples use %s: %v", program, err)
		}
	}
	bin, err := recordertest.Build()
	if err != nil {
		t.Fatal(err)
	}
	observes := recordertest.Observes(t, bin)
	if !recordertest.LimitsMemory(t, bin) {
		t.Skip("the examples limit memory, which needs a cgroup that can be written")
	}
	named := regexp.MustCompile(`^# (\S+\.[a-z]+)\n`)
	for _, name := range documents {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("..", "..", name)
			page, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			home, err := os.MkdirTemp("/var/tmp", "readme-") // in /tmp, every command of a sandbox can write
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(home) })
			dir := filepath.Join(home, "square")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			env := append(os.Environ(), "HOME="+home, "SHELL=/bin/bash", "GOCACHE="+goEnv(t, "GOCACHE"),
				"GOPATH="+goEnv(t, "GOPATH"), "PATH="+bin+":"+os.Getenv("PATH"))
			e := example{t: t, dir: dir, env: env, observes: observes,
				places: strings.NewReplacer(home, "/home/you", bin, "/usr/local/bin")}
			written := blocks.ReplaceAllStringFunc(string(page), func(block string) string {
				b := blocks.FindStringSubmatch(block)
				switch f := named.FindStringSubmatch(b[2]); {
				case f != nil:
					if err := os.WriteFile(filepath.Join(e.dir, f[1]), []byte(b[2]), 0o644); err != nil {
						t.Fatal(err)
					}
				case b[1] == "console":
					said := e.console(b[2])
					if os.Getenv("README") == "write" {
						return "```console\n" + said + "```"
					}
					alike := func(s string) string {
						return varying.ReplaceAllString(slow.ReplaceAllString(s, ""), "0")
					}
					if observes && alike(b[2]) != alike(said) {
						t.Errorf("the page:\n%s\nwhat was said:\n%s", b[2], said)
					}
				default:
					e.block(b[2])
				}
				return block
			})
			if written != string(page) {
				if err := os.WriteFile(file, []byte(written), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if e.ran == 0 {
				t.Error("no command was found")
			}
		})
	}
}

// varying is what differs between runs: ids, digests, numbers with their units, and the widths of columns.
var varying = regexp.MustCompile(`run_[0-9a-z]{26}|[0-9a-f]{64}|\d+(\.\d+)?( [KMG]i?B| B|ms|µs|s\b)?| +`)

// slow is what assay-run also says where /tmp has many files and the host is busy.
var slow = regexp.MustCompile(`(?m)^assay-run: searching .*\n`)

// goEnv is a setting of the go command.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// example is a directory in which examples are run.
type example struct {
	t      *testing.T
	dir    string
	env    []string
	ran    int
	said   string // by the last command
	status int

	observes bool
	places   *strings.Replacer // directories of the test to those of a reader
}

// console runs the commands of a block, and returns them with what they print.
func (e *example) console(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		if command = strings.TrimSuffix(command, "\n"); command == "echo $?" {
			fmt.Fprintf(&out, "$ %s\n%d\n", command, e.status)
			e.status = 0
			continue
		}
		if e.status != 0 {
			e.t.Errorf("exit status %d:\n%s", e.status, e.said)
		}
		e.said = e.shell(command)
		e.ran++
		fmt.Fprintf(&out, "$ %s\n%s", command, e.places.Replace(e.said))
	}
	if e.status != 0 {
		e.t.Errorf("exit status %d:\n%s", e.status, e.said)
	}
	e.status = 0
	return out.String()
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
		if strings.Contains(command, " observe ") && !e.observes {
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
