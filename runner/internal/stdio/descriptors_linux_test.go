package stdio

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

func TestStdinIsNotConsumed(t *testing.T) {
	const lines = "one\ntwo\nthree\n"
	for _, from := range []string{`printf 'one\ntwo\nthree\n' |`, `cat $D/in |`, ``} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "in"), []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
		script := from + ` { "$R" bash -c 'read l; echo "child $l"'; while read l; do echo "next $l"; done; }`
		if from == "" {
			script += ` <$D/in`
		}
		out, err := runShell(t, dir, script)
		if want := "child one\nnext two\nnext three\n"; err != nil || out != want {
			t.Errorf("%s: %q %v", from, out, err)
		}
	}
}

func TestStdinEnds(t *testing.T) {
	out, err := runShell(t, t.TempDir(),
		`head -c 10000000 /dev/zero | "$R" wc -c; "$R" cat </dev/null; "$R" sh -c 'cat; echo closed' <&-`)
	if err != nil || strings.TrimSpace(out) != "10000000\nclosed" {
		t.Errorf("%q %v", out, err)
	}
}

func TestSameFileKeepsOrder(t *testing.T) {
	const script = `"$R" sh -c 'for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done'`
	var want strings.Builder
	for i := 1; i <= 9; i++ {
		fmt.Fprintf(&want, "out%d\nerr%d\n", i, i)
	}
	for _, to := range []string{` 2>&1 | cat`, ` >$D/out 2>&1; cat $D/out`, ` >>$D/out 2>&1; cat $D/out`} {
		dir := t.TempDir()
		out, err := runShell(t, dir, script+to)
		if err != nil || out != want.String() {
			t.Errorf("%s: %q %v", to, out, err)
		}
		if got := string(member(t, dir, schema.StdoutPath)); got != want.String() {
			t.Errorf("%s: copy %q", to, got)
		}
		n := int64(want.Len())
		wantIO := schema.Stdio{Mode: modePipe, Stdout: &schema.Stream{Bytes: n, Captured: n}, StderrInStdout: true}
		if d := cmp.Diff(wantIO, readReport(t, dir).Stdio); d != "" {
			t.Error(d)
		}
	}
	// Two open file descriptions of one file have an offset each: no merging.
	dir := t.TempDir()
	if _, err := runShell(t, dir, script+` >$D/out 2>$D/out`); err != nil {
		t.Fatal(err)
	}
	if r := readReport(t, dir).Stdio; r.StderrInStdout || r.Stderr == nil || r.Stderr.Bytes != 45 {
		t.Errorf("%+v", r)
	}
}

func TestPassthroughLeavesTheDescriptorsAlone(t *testing.T) {
	dir := t.TempDir()
	out, err := runShell(t, dir,
		`export STDIO_TEST_NO_CAPTURE=1; readlink /proc/self/fd/2 >&2; "$R" readlink /proc/self/fd/1 >$D/out 2>&1 </dev/null; cat $D/out; ls $D`)
	if err != nil || !strings.Contains(out, filepath.Join(dir, "out")) {
		t.Errorf("%q %v", out, err)
	}
	if d := cmp.Diff(schema.Stdio{Mode: modePassthrough}, readReport(t, dir).Stdio); d != "" {
		t.Error(d)
	}
}

func TestFlagsOfOurStreamsStay(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	flags := func() uintptr {
		fd, _ := rawFD(w)
		f, _, _ := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
		return f
	}
	before := flags() // os.Pipe made it non-blocking, as node makes its children's pipes
	s, err := Open(Config{Stdout: w, Capture: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Finish(0)
	if after := flags(); after != before || before&syscall.O_NONBLOCK == 0 {
		t.Errorf("flags were %#x, are %#x", before, after)
	}
}
