package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// touchAll does something of every kind that a capability surface tells of.
const touchAll = `
import os, socket, subprocess, tempfile
os.mkdir("d"); os.chdir("d")
open("new", "w").write("x"); os.rename("new", "moved"); os.link("moved", "linked"); os.symlink("moved", "sym")
os.chmod("moved", 0o600); os.truncate("moved", 0); os.chown("moved", 0, 0); os.utime("moved")
os.setxattr("moved", "user.a", b"1"); os.removexattr("moved", "user.a")
os.mkfifo("fifo"); os.unlink("linked"); os.mkdir("gone"); os.rmdir("gone")
for name in ["missing", "/no/such/dir/file", "/proc/self/status", "/proc/1/stat", b"bad\xff", b"bad\xfe"]:
    try: open(name)
    except OSError: pass
t = tempfile.NamedTemporaryFile(); t.write(b"x"); t.flush(); t.close()
fd, name = tempfile.mkstemp(); os.close(fd); os.rename(name, "kept")
tcp = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(tcp.getsockname()); tcp.accept(); c.close()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("127.0.0.1", 0)); udp.sendto(b"x", udp.getsockname())
u = socket.socket(socket.AF_UNIX); u.bind("sock"); u.listen(); socket.socket(socket.AF_UNIX).connect("sock")
for to in [("127.0.0.1", 1), ("::1", 2)]:
    try: socket.create_connection(to, 1)
    except OSError: pass
subprocess.run(["sh", "-c", "ls -l; cat moved /etc/hostname; true"], stdout=subprocess.DEVNULL)
subprocess.run(["./kept"], check=False, stderr=subprocess.DEVNULL) if os.access("kept", os.X_OK) else None
try: os.execv("./moved", ["moved"])
except OSError: pass
`

// runUnsealed runs a command whose bundle cannot be written, and returns its spool.
func runUnsealed(t *testing.T, dir string, args ...string) string {
	t.Helper()
	id, state, gone := uniqueID(), filepath.Join(dir, "state"), filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	command := append([]string{"sh", "-c", `rmdir "$0" && exec "$@"`, gone}, args...)
	cmd := self(t, dir, append([]string{"-q", "--kernel", "require", "--run-id", id, "--spool-dir", state, "-o",
		filepath.Join(gone, "a.tar.gz"), "--"}, command...)...)
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 125 ||
		!strings.Contains(string(out), "the evidence is kept") {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(state, id)
}

// What recover makes of a run's lines is what the run had made of its events.
func TestRecoveredSurfaceIsTheLiveOne(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	need(t, "python3")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "touch.py"), []byte(touchAll), 0o600); err != nil {
		t.Fatal(err)
	}
	spool := runUnsealed(t, dir, "python3", filepath.Join(dir, "touch.py"))
	const surface = "capability-surface.json"
	recovered := func(spool, name string) string {
		bundle := filepath.Join(dir, name)
		if out, err := self(t, dir, "recover", "--spool-dir", filepath.Dir(spool), "-o", bundle,
			filepath.Base(spool)).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		verifyBundle(t, bundle, 0)
		return member(t, bundle, surface)
	}
	// Killed before it wrote its documents, the runner would have left this.
	cut := filepath.Join(dir, "cut", filepath.Base(spool))
	if out, err := exec.Command("cp", "-a", "-T", filepath.Dir(spool), filepath.Dir(cut)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, document := range []string{"result.json", "observation-health.json", "correlation-report.json", surface} {
		if err := os.Remove(filepath.Join(cut, document)); err != nil {
			t.Fatal(err)
		}
	}
	live := recovered(spool, "live.tar.gz")
	for _, want := range []string{"/d/moved", "/d/missing", "/d/sym", "/d/fifo", "unix:", "bind 127.0.0.1:<ephemeral>",
		"[::1]:2", "127.0.0.1:1", "ls"} {
		if !strings.Contains(live, want) {
			t.Errorf("the live surface does not tell of %q:\n%s", want, live)
		}
	}
	if diff := cmp.Diff(live, recovered(cut, "cut.tar.gz")); diff != "" {
		t.Errorf("-live +recovered:\n%s", diff)
	}
}

// A surface that is larger than verify reads is cut, and health says so.
func TestHugeSurface(t *testing.T) {
	layertest.Host(t)
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	need(t, "python3")
	dir := t.TempDir()
	const paths = 60_000
	script := fmt.Sprintf(`
import os, time
for i in range(%d):
    if i %% 200 == 0: time.sleep(0.005) # the ring has time to be drained
    try: os.open("/nowhere/" + "".join(chr(97 + int(d)) for d in str(i)) + 4 * ("/" + "x" * 220), os.O_RDONLY)
    except OSError: pass
`, paths)
	bundle := filepath.Join(dir, "a.tar.gz")
	cmd := self(t, dir, "-q", "--kernel", "require", "--kernel-buffer", "64M", "-o", bundle, "--", "python3", "-c",
		script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	verifyBundle(t, bundle, 0)
	surface := member(t, bundle, "capability-surface.json")
	listed, size := strings.Count(surface, "/nowhere/"), len(surface)
	health := member(t, bundle, "observation-health.json")
	t.Logf("%d of %d paths in %d bytes", listed, paths, size)
	if size > 42<<20 || listed == paths || !strings.Contains(health, `"surface_cut"`) {
		t.Errorf("%d paths in %d bytes; health is\n%s", listed, size, health)
	}
}
