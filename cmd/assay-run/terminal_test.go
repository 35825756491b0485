package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A full-screen program in a terminal: it is drawn, resized, typed at and left,
// and the session is kept as a cast.
func TestFullScreenProgramInATerminal(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "assay-run")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("the first line\n"+strings.Repeat("more\n", 200)+"the last line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "tmux")
	tmux := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("tmux", append([]string{"-S", socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	waitFor := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited in vain for %s; the screen is\n%s", what, tmux("capture-pane", "-p"))
			}
		}
	}
	shows := func(s string) func() bool {
		return func() bool { return strings.Contains(tmux("capture-pane", "-p"), s) }
	}

	result := filepath.Join(dir, "result.json")
	cmd := "XDG_STATE_HOME=" + filepath.Join(dir, ".state") + " " + link + " -q -o " + filepath.Join(dir, "a.tar.gz") + " --result " + result +
		" -- sh -c 'stty size; LESS= less " + text + "; exit 5'; echo status $?; cat"
	tmux("new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", cmd)
	defer exec.Command("tmux", "-S", socket, "kill-server").Run()
	waitFor("the first page", shows("the first line"))
	tmux("send-keys", "G")
	waitFor("the last page", shows("the last line"))
	tmux("send-keys", "g")
	waitFor("the first page again", shows("the first line"))
	tmux("resize-window", "-x", "60", "-y", "12")
	waitFor("a page of eleven lines", func() bool {
		screen := strings.Split(strings.TrimRight(tmux("capture-pane", "-p"), "\n"), "\n")
		return len(screen) == 12 && screen[11] == ":" && strings.Count(strings.Join(screen, " "), "more") == 10
	})
	tmux("send-keys", "q")
	waitFor("the exit code", shows("status 5"))

	if r := readResult(t, result); r.Stdio.Mode != "terminal" || r.Stdio.Terminal == nil || r.Stdio.Terminal.Bytes == 0 {
		t.Errorf("stdio: %+v", r.Stdio)
	}
	cast := readCast(t, filepath.Join(dir, "a.tar.gz"))
	for _, want := range []string{"24 80", "the first line", "the last line", "60x12"} {
		if !strings.Contains(cast, want) {
			t.Errorf("the cast does not hold %q", want)
		}
	}
	verifyBundle(t, filepath.Join(dir, "a.tar.gz"), 0)
}

// readCast returns what a player of the bundle's asciicast would be given.
func readCast(t *testing.T, bundle string) string {
	t.Helper()
	out, err := exec.Command("tar", "-xOf", bundle, "stdio/terminal.cast").Output()
	if err != nil {
		t.Fatalf("tar: %v", err)
	}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	if !lines.Scan() {
		t.Fatal("the cast is empty")
	}
	var header struct{ Version int }
	if err := json.Unmarshal(lines.Bytes(), &header); err != nil || header.Version != 3 {
		t.Fatalf("header %s: version %d, %v", lines.Bytes(), header.Version, err)
	}
	var all strings.Builder
	for lines.Scan() {
		var event []any
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil || len(event) != 3 {
			t.Fatalf("line %s: %v", lines.Bytes(), err)
		}
		all.WriteString(event[2].(string))
	}
	return all.String()
}
