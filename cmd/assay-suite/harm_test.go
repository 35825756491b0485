//go:build linux

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/schema"
)

// TestAgentsSeeNoSecretOfNATS runs an agent that looks for its worker's token. The token must not be in the environment
// or the arguments of any process, and reading its file must be a suspicion.
func TestAgentsSeeNoSecretOfNATS(t *testing.T) {
	layertest.Host(t)
	s := newSite(t, `name: secrets
tasks: [{name: t, command: "true"}]
agents:
- {name: looks, command: '! grep -qa "a-token[-]of-all" /proc/[0-9]*/environ /proc/[0-9]*/cmdline'}
- {name: reads, command: cat "$HOME/token"}
`)
	newAuthority(s, "cert", "127.0.0.1")
	s.file("token", "a-token-of-all-workers")
	address := "127.0.0.1:" + ports(t, 1)[0]
	coordinator := s.run("--jobs", "0", "--listen", address, "--tls-cert", "cert.pem", "--tls-key", "cert.key",
		"--token-file", "token")
	w := s.worker("w1", "tls://"+address, "--tls-ca", "cert.pem", "--token-file", "token")
	if err := coordinator.cmd.Wait(); err != nil {
		t.Fatalf("the suite ended with %v", err)
	}
	s.passed(2)
	for _, a := range results(t, s.dir).Attempts {
		reads := slices.ContainsFunc(a.Suspicions, func(f schema.Finding) bool { return f.Rule == "reads_hidden" })
		if kernel := a.Tries[0].KernelState != "absent"; reads != (a.Agent == "reads" && kernel) {
			t.Errorf("the suspicions of %s are %+v", a.ID, a.Suspicions)
		}
	}
	w.end()
	s.clean("w1")
}

// TestAWorkerEndsWhatItsPredecessorLeft kills a worker whose recorder is stopped, so that the recorder does not notice.
// The next worker in its directory must end the run, and leave other processes alone.
func TestAWorkerEndsWhatItsPredecessorLeft(t *testing.T) {
	layertest.Host(t)
	s := newSite(t, `name: predecessor
tasks: [{name: t, command: "true"}]
agents: [{name: slow, command: 'if mkdir "$HOME/first"; then sleep 1000; fi'}]
`)
	address := "127.0.0.1:" + ports(t, 1)[0]
	coordinator := s.run("--jobs", "0", "--lease", "2s", "--listen", address)
	w := s.worker("w1", "nats://"+address, "--jobs", "1")
	spec := filepath.Join(s.dir, "w1", "slot-0", "spec.json")
	beside := exec.Command("sleep", "1000")
	beside.Args = []string{"--spec=" + spec, "1000"}
	if err := beside.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = beside.Process.Kill(); _ = beside.Wait() }()
	s.running("w1")
	s.file(filepath.Join("w1", "kept"), "a file of somebody else")
	for _, err := os.Stat(filepath.Join(s.dir, "first")); err != nil; _, err = os.Stat(filepath.Join(s.dir, "first")) {
		time.Sleep(10 * time.Millisecond)
	}
	recorder := 0
	for _, pid := range processesWith(t, "\x00run\x00--spec\x00"+spec) {
		if parent := parentOf(pid); parent == w.cmd.Process.Pid {
			recorder = pid
		}
	}
	if recorder == 0 {
		t.Fatal("there is no recorder")
	}
	if err := syscall.Kill(recorder, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.kill()
	w.start()
	if err := coordinator.cmd.Wait(); err != nil {
		t.Fatalf("the suite ended with %v", err)
	}
	s.passed(1)
	w.end()
	if err := beside.Process.Signal(syscall.SIGCONT); err != nil || len(processesWith(t, "--spec="+spec)) != 1 {
		t.Errorf("a process that is nobody's was ended: %v", err)
	}
	if err := os.Remove(filepath.Join(s.dir, "w1", "kept")); err != nil {
		t.Error(err)
	}
	s.clean("w1")
}

// TestAnAgentStopsItsWorker runs an agent that stops its worker for longer than a lease, and continues it: whenever the
// attempt would fail. Its attempts must not be left out of its rate.
func TestAnAgentStopsItsWorker(t *testing.T) {
	layertest.Host(t)
	s := newSite(t, `name: stops
attempts: 2
tasks: [{name: t, command: "true"}]
agents:
- {name: honest, command: "true"}
- {name: stops, command: 'until w=$(cat "$HOME/pid") && [ "$w" ]; do sleep 0.1; done; kill -STOP $w; sleep 5;
    kill -CONT $w; sleep 100'}
`)
	address := "127.0.0.1:" + ports(t, 1)[0]
	coordinator := s.run("--jobs", "0", "--lease", "2s", "--listen", address)
	w := s.worker("w1", "nats://"+address, "--jobs", "1")
	s.file("pid", strconv.Itoa(w.cmd.Process.Pid))
	if err := coordinator.cmd.Wait(); err == nil || coordinator.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("the suite ended with %v", err)
	}
	for _, a := range results(t, s.dir).Attempts {
		want := schema.SuitePassed
		if a.Agent == "stops" {
			want = schema.SuiteFailed
		}
		if a.Verdict == nil || *a.Verdict != want || (want == schema.SuiteFailed) != (len(a.Suspicions) > 0) {
			t.Errorf("%s has the verdict %v: %s; suspicions %+v", a.ID, a.Verdict, a.Reason, a.Suspicions)
		}
		if len(a.Tries) > 2 {
			t.Errorf("%s was tried %d times", a.ID, len(a.Tries))
		}
	}
	if status, _, err := suite.Read(filepath.Join(s.dir, "out")); err != nil || status.Failed != 2 {
		t.Errorf("the status is %+v, %v", status, err)
	}
	w.end()
	s.clean("w1")
}

// processesWith lists the processes whose command line contains the text.
func processesWith(t *testing.T, text string) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if line, _ := os.ReadFile(filepath.Join(d, "cmdline")); bytes.Contains(line, []byte(text)) {
			pid, _ := strconv.Atoi(filepath.Base(d))
			pids = append(pids, pid)
		}
	}
	return pids
}

func parentOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	if words := strings.Fields(rest); len(words) > 1 {
		parent, _ := strconv.Atoi(words[1])
		return parent
	}
	return 0
}

// private gives the test, and what it starts from now on, a mount namespace of its own. It skips the test if that is
// not allowed.
func private(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its mounts with it
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("mounts of its own: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

// disk mounts a sparse image with a file system of size bytes.
func disk(t *testing.T, size int64, at string) (image string) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "image")
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-N", "8192", "-J", "size=16", "-E",
		"lazy_itable_init=0,lazy_journal_init=0", image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v %s", err, out)
	}
	mountImage(t, image, at)
	return image
}

func mountImage(t *testing.T, image, at string) {
	t.Helper()
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	// During a test, nothing may reach the image without a sync by the test or assay-suite.
	if out, err := exec.Command("mount", "-o", "loop,commit=300", image, at).CombinedOutput(); err != nil {
		t.Skipf("mount an image: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v %s", at, err, out)
		}
	})
}

// TestPowerLossLosesNoVerdict copies the block device of a suite's directory while the suite runs. The copy is what a
// power failure would leave. It must have each verdict that was printed, with its bundle, and the suite must continue
// from there.
func TestPowerLossLosesNoVerdict(t *testing.T) {
	private(t)
	s := newSite(t, `name: power
attempts: 30
tasks: [{name: t, command: "true"}]
agents: [{name: a, command: touch it}]
`)
	image := disk(t, 4<<30, filepath.Join(s.dir, "out"))
	coordinator := s.run("--jobs", "2")
	s.until(12)
	_ = syscall.Kill(-coordinator.cmd.Process.Pid, syscall.SIGSTOP)
	told := regexp.MustCompile(`(?m)^assay-suite: (t/a/\d+): passed`).FindAllStringSubmatch(coordinator.said.String(), -1)
	copied := image + ".copy"
	for same := false; !same; { // nothing may have been written meanwhile
		for _, to := range []string{copied, copied + "2"} {
			if out, err := exec.Command("cp", "--sparse=always", image, to).CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
		}
		same = dataOf(t, copied) == dataOf(t, copied+"2")
	}
	_ = syscall.Kill(-coordinator.cmd.Process.Pid, syscall.SIGKILL)
	_ = coordinator.cmd.Wait()
	if len(told) == 0 { // a verdict is in the ledger before it is printed
		t.Fatalf("%d verdicts were told", len(told))
	}

	after := filepath.Join(s.dir, "after")
	mountImage(t, copied, filepath.Join(after, "out"))
	lines, err := ledger.Read(filepath.Join(after, "out"))
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]*schema.SuiteTry{}
	for _, l := range lines {
		if l.Kind == ledger.Verdict {
			kept[l.Attempt.String()] = l.Verdict
			report, err := archive.Verify(t.Context(), filepath.Join(after, "out", l.Verdict.Bundle))
			if err != nil || !report.OK() {
				t.Errorf("%s: the bundle does not verify: %v", l.Attempt, err)
			}
		}
	}
	for _, m := range told {
		if kept[m[1]] == nil {
			t.Errorf("the verdict on %s is lost", m[1])
		}
	}
	t.Logf("%d verdicts were told, %d are kept", len(told), len(kept))
	s.dir = after
	s.file("suite.yaml", readFile(t, filepath.Join(filepath.Dir(after), "suite.yaml")))
	if again := s.run("--jobs", "2"); again.cmd.Wait() != nil {
		t.Error("the suite does not go on")
	}
	s.passed(30)
	s.clean()
}

// dataOf is a digest of the data in a sparse file.
func dataOf(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	for at := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if err != nil {
			return string(sum.Sum(nil))
		}
		if at, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(sum, from, at)
		if _, err := io.Copy(sum, io.NewSectionReader(f, from, at-from)); err != nil {
			t.Fatal(err)
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestADiskThatIsFull fills the disk of a coordinator: no attempt may begin, and a message must say so. Then it fills
// the disk to the last byte; the suite must continue when there is space again. A worker must report that its disk is
// full.
func TestADiskThatIsFull(t *testing.T) {
	private(t)
	s := newSite(t, `name: full
attempts: 12
retries: 50
tasks: [{name: t, command: "true", workspace: ws}]
agents: [{name: a, command: sleep 0.2}]
`)
	if err := os.Mkdir(filepath.Join(s.dir, "ws"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.file("ws/large", strings.Repeat("x", 2<<20))
	disk(t, 4<<30, filepath.Join(s.dir, "out"))
	fill := func(size int64) {
		t.Helper()
		f, err := os.Create(filepath.Join(s.dir, "out", "filler"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for step := size; step >= 4096; step /= 2 { // to the last block, if size is more than is free
			for unix.Fallocate(int(f.Fd()), 0, end(t, f), step) == nil {
				if end(t, f) >= size {
					return
				}
			}
		}
	}
	fill(3 << 30)
	run := s.run("--jobs", "2")
	run.said.await(t, "has less than 2 GiB free: no attempt begins until it has more")
	if n := s.verdicts(); n != 0 {
		t.Errorf("there are %d verdicts", n)
	}
	fill(0)
	s.until(3)
	fill(1 << 40)
	ended := make(chan error, 1)
	go func() { ended <- run.cmd.Wait() }()
	select {
	case err := <-ended: // the ledger could not be written
		t.Logf("with a full disk it ended with %v", err)
	case <-time.After(2 * time.Second): // nothing had to be written
		t.Log("with a full disk it waits")
		_ = run.cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	}
	fill(0)
	if again := s.run("--jobs", "2"); again.cmd.Wait() != nil {
		t.Errorf("the suite does not go on")
	}
	s.passed(12)

	if err := os.Mkdir(filepath.Join(s.dir, "w1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", filepath.Join(s.dir, "w1"), "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(filepath.Join(s.dir, "w1"), 0)
	s.file("suite.yaml", strings.Replace(readFile(t, filepath.Join(s.dir, "suite.yaml")), "attempts: 12\nretries: 50",
		"attempts: 13\nretries: 0", 1))
	address := "127.0.0.1:" + ports(t, 1)[0]
	coordinator := s.run("--jobs", "0", "--listen", address)
	w := s.worker("w1", "nats://"+address, "--jobs", "1")
	_ = coordinator.cmd.Wait()
	last := results(t, s.dir).Attempts[12]
	if len(last.Tries) != 1 || last.Tries[0].Class != schema.SuiteDiskFull {
		t.Errorf("the attempt is %+v", last)
	}
	w.end()
	s.clean("w1")
}

func end(t *testing.T, f *os.File) int64 {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// network is a network namespace that exists until the test ends.
type network struct {
	*testing.T
	file *os.File
}

// newNetwork creates a network namespace with a loopback device.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{T: t}
	made := make(chan error)
	go func() { // the thread ends here
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Skipf("a network of its own: %v", err)
	}
	t.Cleanup(func() { n.file.Close() })
	n.ip("link", "set", "lo", "up")
	return n
}

// inside calls do in a thread of the network namespace. Processes that do starts are in it too.
func (n *network) inside(do func()) {
	n.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		n.Fatal(err)
	}
}

func (n *network) ip(args ...string) {
	n.Helper()
	var out []byte
	var err error
	n.inside(func() { out, err = exec.Command("ip", args...).CombinedOutput() })
	if err != nil {
		n.Skipf("ip %s: %v %s", strings.Join(args, " "), err, out)
	}
}

// TestAWorkersNetworkIsCut cuts the network between a worker and its coordinator: first for less than a lease, which
// must have no effect, and then for longer.
func TestAWorkersNetworkIsCut(t *testing.T) {
	layertest.Host(t)
	s := newSite(t, `name: cut
attempts: 6
tasks: [{name: t, command: "true"}]
agents: [{name: slow, command: sleep 2}]
`)
	here, there := newNetwork(t), newNetwork(t)
	holder := exec.Command("sleep", "1000")
	there.inside(func() {
		if err := holder.Start(); err != nil {
			t.Error(err)
		}
	})
	defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
	here.ip("link", "add", "here", "type", "veth", "peer", "name", "there", "netns", strconv.Itoa(holder.Process.Pid))
	here.ip("addr", "add", "10.77.0.1/30", "dev", "here")
	there.ip("addr", "add", "10.77.0.2/30", "dev", "there")
	here.ip("link", "set", "here", "up")
	there.ip("link", "set", "there", "up")

	newAuthority(s, "cert", "10.77.0.1")
	s.file("token", "a-token-of-all-workers")
	var coordinator, w *process
	here.inside(func() {
		coordinator = s.run("--jobs", "0", "--lease", "6s", "--listen", "10.77.0.1:4222", "--tls-cert", "cert.pem",
			"--tls-key", "cert.key", "--token-file", "token")
	})
	there.inside(func() {
		w = s.worker("w1", "tls://10.77.0.1:4222", "--tls-ca", "cert.pem", "--token-file", "token", "--jobs", "1")
	})
	s.running("w1")
	here.ip("link", "set", "here", "down")
	time.Sleep(time.Second)
	here.ip("link", "set", "here", "up")
	s.until(1)
	if said := coordinator.said.String(); strings.Contains(said, "worker_lost") {
		t.Error("a short cut loses a try")
	}
	s.running("w1")
	here.ip("link", "set", "here", "down")
	coordinator.said.await(t, "worker_lost): its worker was silent for 6s")
	here.ip("link", "set", "here", "up")
	if err := coordinator.cmd.Wait(); err != nil {
		t.Errorf("the suite ended with %v", err)
	}
	s.passed(6)
	w.end()
	s.clean("w1")
}
