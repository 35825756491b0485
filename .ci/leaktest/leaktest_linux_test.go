package leaktest_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/leaktest"
)

// leaks are things that tests can leave, and what the checker says about each.
var leaks = map[string]struct {
	leave func()
	said  string
}{
	"nothing": {func() {}, ""},
	"a child": {func() { _ = exec.Command("sleep", "60").Start() }, "sleep 60"},
	"a daemon": {func() {
		_ = exec.Command("sh", "-c", `setsid sleep 61 >/dev/null 2>&1 </dev/null &`).Run()
	}, "sleep 61"},
	"another role of the binary": {func() {
		cmd := exec.Command("setsid", "-f", "/proc/self/exe", "sleep")
		cmd.Path, cmd.Dir, cmd.Env = "/usr/bin/setsid", "/", []string{"LEAK=sleep"}
		exe, _ := os.Executable()
		cmd.Args[2] = exe
		up, _ := cmd.StdoutPipe()
		_ = cmd.Start()
		_, _ = up.Read(make([]byte, 1)) // until setsid has executed the command
		_ = cmd.Wait()
	}, "process"},
	"a descriptor": {func() { _, _ = unix.Open("/etc/passwd", unix.O_RDONLY, 0) }, "/etc/passwd"},
	"a BPF object": {func() {
		kept, _ = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	}, "bpf-map map_id"},
	"a stream that never waits": {
		func() { _ = unix.SetNonblock(1, true) }, "O_NONBLOCK on standard output",
	},
	"a goroutine": {func() { go leaktest.Within(time.Hour, func() bool { return false }) }, "leaktest.Within"},
	"a file":      {func() { _ = os.WriteFile(os.TempDir()+"/kept", nil, 0o600) }, "/kept"},
	"a cgroup":    {func() { _ = os.MkdirAll(cgroup(os.Getppid())+"/assay-run/leak", 0o755) }, "/assay-run/leak"},
}

var kept *ebpf.Map

// cgroup is a directory that no run sweeps.
func cgroup(pid int) string { return fmt.Sprintf("/sys/fs/cgroup/unified/leaktest-%d", pid) }

type tests func()

func (f tests) Run() int { f(); return 0 }

func TestMain(m *testing.M) {
	switch name := os.Getenv("LEAK"); name {
	case "":
		os.Exit(m.Run())
	case "sleep":
		fmt.Println("up")
		time.Sleep(time.Minute)
	default:
		os.Exit(leaktest.Of(tests(leaks[name].leave)).Run())
	}
}

func TestWhatIsLeftIsNamed(t *testing.T) {
	layertest.Host(t)
	for name, l := range leaks {
		t.Run(name, func(t *testing.T) {
			if name == "a cgroup" {
				dir := cgroup(os.Getpid())
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Skip("no cgroup2 hierarchy to leave one in: ", err)
				}
				defer func() {
					for _, below := range []string{"/assay-run/leak", "/assay-run", ""} {
						_ = os.Remove(dir + below)
					}
				}()
			}
			if name == "a BPF object" && os.Geteuid() != 0 {
				t.Skip("making a BPF map needs root")
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "LEAK="+name)
			out, err := cmd.CombinedOutput()
			if (err == nil) != (l.said == "") || !strings.Contains(string(out), l.said) {
				t.Errorf("%v, want %q in:\n%s", err, l.said, out)
			}
			for _, line := range strings.Split(string(out), "\n") {
				var pid int
				if n, _ := fmt.Sscanf(line, "process %d", &pid); n == 1 {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
		})
	}
}
