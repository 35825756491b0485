//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
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

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/recordertest"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/schema"
)

// natsNode makes this test binary a NATS server. The argument is its configuration file.
func natsNode() {
	options, err := server.ProcessConfigFile(os.Args[1])
	if err == nil {
		var s *server.Server
		if s, err = server.NewServer(options); err == nil {
			s.Start()
			select {}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// process is this test binary as another program. It can be started again.
type process struct {
	*testing.T
	dir  string
	args []string
	said *saying
	cmd  *exec.Cmd
}

func (p *process) start() {
	p.Helper()
	exe, err := os.Executable()
	if err != nil {
		p.Fatal(err)
	}
	p.cmd = exec.Command(exe, p.args[1:]...)
	p.cmd.Args[0] = p.args[0] // testscript.Main chooses the program by this name
	p.cmd.Dir, p.cmd.Stderr, p.cmd.Env = p.dir, p.said, append(os.Environ(), "HOME="+p.dir)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		p.Fatal(err)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Errorf("%s: %v", p.args, err)
	}
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// end ends the process with SIGTERM, and checks that it exits with 0.
func (p *process) end() {
	p.Helper()
	p.signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		p.Errorf("%s ended with %v\n%s", p.args, err, p.said)
	}
}

// site is a directory with a suite, its processes, and assay-run.
type site struct {
	*testing.T
	dir, program string
}

func newSite(t *testing.T, suite string) *site {
	t.Helper()
	program, err := recordertest.Build()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t, t.TempDir(), filepath.Join(program, "assay-run")}
	s.file("suite.yaml", suite)
	return s
}

func (s *site) file(name, text string) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// process starts a process, which is killed when the test ends.
func (s *site) process(args ...string) *process {
	s.Helper()
	p := &process{T: s.T, dir: s.dir, args: args, said: &saying{}}
	p.start()
	s.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if s.Failed() {
			s.Logf("%s:\n%s", args, p.said)
		}
	})
	return p
}

func (s *site) run(flags ...string) *process {
	s.Helper()
	return s.process(append([]string{"assay-suite", "run", "suite.yaml", "--dir", "out", "--assay-run", s.program},
		flags...)...)
}

func (s *site) worker(name, url string, flags ...string) *process {
	s.Helper()
	return s.process(append([]string{"assay-suite", "worker", "--nats", url, "--name", name, "--dir", name,
		"--assay-run", s.program}, flags...)...)
}

// clean checks that the workers left nothing in their directories, and that nothing runs any more.
func (s *site) clean(workers ...string) {
	s.Helper()
	for _, w := range workers {
		if left, err := os.ReadDir(filepath.Join(s.dir, w)); err != nil || len(left) > 0 {
			s.Errorf("%s left %v, %v", w, left, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "out", "work", "*", "*")); len(left) > 0 {
		s.Errorf("the coordinator left %v", left)
	}
	if left := holding(s.T, "ASSAY_TASK_PROMPT_FILE="+s.dir); len(left) > 0 {
		s.Errorf("processes live on: %v", left)
	}
}

// verdicts counts the verdicts in the ledger.
func (s *site) verdicts() (n int) {
	lines, _ := ledger.Read(filepath.Join(s.dir, "out"))
	for _, l := range lines {
		if l.Kind == ledger.Verdict {
			n++
		}
	}
	return n
}

// until waits until the ledger has that many more verdicts.
func (s *site) until(more int) {
	s.Helper()
	for want, began := s.verdicts()+more, time.Now(); s.verdicts() < want; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			s.Fatalf("there are %d verdicts, want %d", s.verdicts(), want)
		}
	}
}

// refused reports whether a message of the worker was refused.
func (s *site) refused(worker string) bool {
	lines, _ := ledger.Read(filepath.Join(s.dir, "out"))
	return slices.ContainsFunc(lines, func(l ledger.Line) bool {
		return l.Kind == ledger.Refused && l.Worker == worker
	})
}

// running waits until the worker runs an attempt of the agent slow.
func (s *site) running(worker string) {
	s.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		lines, _ := ledger.Read(filepath.Join(s.dir, "out"))
		open := map[string]bool{}
		for _, l := range lines {
			if l.Kind == ledger.Began && l.Worker == worker && l.Agent == "slow" {
				open[l.Token] = true
			} else if l.Kind == ledger.Ended || l.Kind == ledger.Verdict {
				delete(open, l.Token)
			}
		}
		if len(open) > 0 {
			return
		}
		if time.Since(began) > 2*time.Minute {
			s.Fatalf("%s runs nothing", worker)
		}
	}
}

// open lists the tokens of the tries that the worker began and that have no verdict yet.
func (s *site) open(worker string) map[string]bool {
	lines, _ := ledger.Read(filepath.Join(s.dir, "out"))
	open := map[string]bool{}
	for _, l := range lines {
		if l.Kind == ledger.Began && l.Worker == worker {
			open[l.Token] = true
		} else if l.Kind == ledger.Verdict {
			delete(open, l.Token)
		}
	}
	return open
}

// lost counts the tries that were given up because the worker was silent.
func (s *site) lost(worker string) (n int) {
	lines, _ := ledger.Read(filepath.Join(s.dir, "out"))
	for _, l := range lines {
		if l.Kind == ledger.Verdict && l.Verdict.Class == schema.SuiteWorkerLost && l.Verdict.Host != nil &&
			l.Verdict.Host.Worker == worker {
			n++
		}
	}
	return n
}

// loses harms a worker with running tries, and waits until the coordinator gives one up. If all of them ended before
// that, it heals the worker and tries again.
func (s *site) loses(worker string, harm, heal func()) {
	s.Helper()
	for before := s.lost(worker); ; heal() {
		s.running(worker)
		harm()
		for held := s.open(worker); len(held) > 0; time.Sleep(20 * time.Millisecond) {
			open := s.open(worker)
			maps.DeleteFunc(held, func(token string, _ bool) bool { return !open[token] })
		}
		if s.lost(worker) > before {
			return
		}
	}
}

// passed checks that all n attempts passed, and that their bundles verify.
func (s *site) passed(n int) {
	s.Helper()
	r := results(s.T, s.dir)
	if len(r.Attempts) != n {
		s.Errorf("there are %d attempts, want %d", len(r.Attempts), n)
	}
	for _, a := range r.Attempts {
		if a.Verdict == nil || *a.Verdict != schema.SuitePassed || a.Bundle == "" {
			s.Errorf("%s has the verdict %v: %s; bundle %q", a.ID, a.Verdict, a.Reason, a.Bundle)
		}
	}
	oneVerdictEach(s.T, s.dir, n)
}

// ports returns free ports of this host.
func ports(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		all = append(all, port)
	}
	return all
}

// attemptsOf is how many attempts a test makes: n, or ASSAY_TEST_SUITE_ATTEMPTS if that is more.
func attemptsOf(t *testing.T, n int) int {
	if text := os.Getenv("ASSAY_TEST_SUITE_ATTEMPTS"); text != "" {
		more, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return max(n, more)
	}
	return n
}

func seeded(t *testing.T) *rand.Rand {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(uint64(seed), 0))
}

// cluster starts n NATS servers with the configuration of docs/suites.md, where a second worker, w2, has the rights of
// the first. It returns their processes and the URLs of all.
func (s *site) cluster(n int) (nodes []*process, url string) {
	s.Helper()
	page, err := os.ReadFile("../../docs/suites.md")
	if err != nil {
		s.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```conf\n")
	conf, _, _ := strings.Cut(rest, "```")
	user := regexp.MustCompile(`(?s)      \{ user: w1,.*?\n      \} \}\n`).FindString(conf)
	if user == "" {
		s.Fatal("the page has no configuration with a user w1")
	}
	conf = strings.Replace(conf, user, user+strings.NewReplacer("w1", "w2", "W1", "W2").Replace(user), 1)
	for user, variable := range map[string]string{"coordinator": "COORDINATOR_TOKEN", "w1": "W1_TOKEN",
		"w2": "W2_TOKEN"} {
		token := "the-token-of-user-" + user
		s.file(user+".token", token)
		s.Setenv(variable, token)
	}
	all := ports(s.T, 2*n)
	var urls, routes []string
	for i := range n {
		urls, routes = append(urls, "nats://127.0.0.1:"+all[i]), append(routes, "nats-route://127.0.0.1:"+all[n+i])
	}
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		text := fmt.Sprintf("listen: \"127.0.0.1:%s\"\nserver_name: %s\n%s", all[i], name,
			strings.Replace(conf, "store_dir: nats", "store_dir: "+filepath.Join(s.dir, name), 1))
		if n > 1 {
			text += fmt.Sprintf("cluster { name: test, listen: \"127.0.0.1:%s\", routes: [%s] }\n", all[n+i],
				strings.Join(routes, ", "))
		}
		nodes = append(nodes, s.process("nats-node", s.file(name+".conf", text)))
	}
	return nodes, strings.Join(urls, ",")
}

// gathered waits until a stream can be kept on that many servers. A coordinator waits only a few seconds, which is
// too short on a busy machine.
func (s *site) gathered(url string, servers int) {
	s.Helper()
	a := carrier.Access{URL: url, TokenFile: filepath.Join(s.dir, "coordinator.token")}
	try := func() error {
		nc, err := a.Connect("", "")
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err == nil {
			_, err = js.CreateStream(s.Context(), jetstream.StreamConfig{Name: "GATHERED", Replicas: servers})
		}
		if err == nil {
			err = js.DeleteStream(s.Context(), "GATHERED")
		}
		return err
	}
	for began, err := time.Now(), try(); err != nil; err = try() {
		if time.Since(began) > 2*time.Minute {
			s.Fatalf("the servers do not find each other: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// streams lists the names of the streams in NATS.
func (s *site) streams(url string) (names []string) {
	s.Helper()
	a := carrier.Access{URL: url, TokenFile: filepath.Join(s.dir, "coordinator.token")}
	nc, err := a.Connect("", "")
	if err != nil {
		s.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		s.Fatal(err)
	}
	list := js.StreamNames(s.Context())
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		s.Error(err)
	}
	return names
}

// TestASuiteOverThreeServers runs a suite over a cluster. It kills a server, a worker and the coordinator, and stops a
// worker for longer than its lease.
func TestASuiteOverThreeServers(t *testing.T) {
	layertest.Host(t)
	n := attemptsOf(t, 32)
	s := newSite(t, fmt.Sprintf(`name: cluster
attempts: %d
retries: 20
tasks: [{name: t, command: "true"}]
agents:
- {name: fast, command: touch it}
- {name: slow, command: 'sleep 1; while [ -e "$HOME/hold" ]; do sleep 0.1; done'}
`, n/2))
	nodes, url := s.cluster(3)
	s.gathered(url, 3)
	coordinator := s.run("--jobs", "0", "--lease", "3s", "--nats", url, "--token-file", "coordinator.token")
	w1 := s.worker("w1", url, "--token-file", "w1.token", "--jobs", "2")
	w2 := s.worker("w2", url, "--token-file", "w2.token", "--jobs", "2")
	coordinator.said.await(t, "keeps each message 3 times")

	random := seeded(t)
	s.until(3)
	dead := nodes[random.IntN(3)]
	dead.kill()
	s.until(2)
	hold := s.file("hold", "") // while it exists, the agent slow does not end
	s.loses("w1", func() { w1.kill(); w1.start() }, func() {})
	dead.start()
	s.loses("w2", func() { w2.signal(syscall.SIGSTOP) }, func() { w2.signal(syscall.SIGCONT) })
	coordinator.said.await(t, "the worker w2 has been silent for 3s")
	coordinator.kill()
	w2.signal(syscall.SIGCONT)
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	coordinator.start()
	if err := coordinator.cmd.Wait(); err != nil {
		t.Errorf("the suite ended with %v", err)
	}
	s.passed(n / 2 * 2)
	if !s.refused("w2") && !strings.Contains(w2.said.String(), "the try is not this worker's any more") {
		t.Error("the worker that was stopped came to nothing, and nobody says so")
	}
	if left := s.streams(url); len(left) > 0 {
		t.Errorf("the streams %v are left", left)
	}
	w1.end()
	w2.end()
	s.clean("w1", "w2")
}

// TestEverythingIsKilledAtRandom kills the coordinator, which is the server, and two workers at random moments. With
// ASSAY_TEST_SUITE_ATTEMPTS=500 it makes 500 attempts, and kills until they are done.
func TestEverythingIsKilledAtRandom(t *testing.T) {
	layertest.Host(t)
	// So many agents, and so long attempts, that all kills come before the end, and no agent is there at each death of
	// a worker, for which it would be blamed.
	names := strings.Split("abcdefghijklmnop", "")
	var agents []string
	for _, name := range names {
		agents = append(agents, "{name: "+name+", command: sleep 1}")
	}
	n := attemptsOf(t, 64) / len(names) * len(names)
	s := newSite(t, fmt.Sprintf(`name: killed
attempts: %d
retries: 100
tasks: [{name: t, command: "true"}]
agents: [%s]
`, n/len(names), strings.Join(agents, ", ")))
	s.file("token", "a-token-that-is-long")
	address := "127.0.0.1:" + ports(t, 1)[0]
	coordinator := s.run("--jobs", "0", "--lease", "2s", "--listen", address, "--token-file", "token")
	all := []*process{coordinator}
	for _, name := range []string{"w1", "w2"} {
		all = append(all, s.worker(name, "nats://"+address, "--token-file", "token", "--jobs", "2"))
	}
	random := seeded(t)
	for kills := 0; kills < n/8 && s.verdicts() < n; kills++ {
		time.Sleep(time.Duration(200+random.IntN(1800)) * time.Millisecond)
		p := all[random.IntN(len(all))]
		p.kill()
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		p.start()
	}
	for err := coordinator.cmd.Wait(); err != nil; err = coordinator.cmd.Wait() {
		// If five workers in a row die with attempts of one agent, that agent is not tried again until the next run.
		for _, a := range results(t, s.dir).Attempts {
			if a.Verdict == nil || *a.Verdict != schema.SuitePassed && (*a.Verdict != schema.SuiteInfrastructure ||
				a.Tries[len(a.Tries)-1].Class != schema.SuiteWorkerLost) {
				t.Fatalf("the suite ended with %v: %s has the verdict %v: %s", err, a.ID, a.Verdict, a.Reason)
			}
		}
		coordinator.start()
	}
	s.passed(n)
	for _, w := range all[1:] {
		w.end()
	}
	s.clean("w1", "w2")
}

// TestNATSLosesEverything kills the NATS server in the middle of a suite and deletes its data. Work that was on its way
// must be done again.
func TestNATSLosesEverything(t *testing.T) {
	layertest.Host(t)
	s := newSite(t, `name: lost
attempts: 6
retries: 10
tasks: [{name: t, command: "true"}]
agents: [{name: fast, command: touch it}, {name: slow, command: sleep 1}]
`)
	nodes, url := s.cluster(1)
	coordinator := s.run("--jobs", "0", "--lease", "3s", "--nats", url, "--token-file", "coordinator.token")
	w := s.worker("w1", url, "--token-file", "w1.token", "--jobs", "2")
	coordinator.said.await(t, "keeps each message 1 time")
	s.until(3)
	s.running("w1")
	nodes[0].kill()
	if err := os.RemoveAll(filepath.Join(s.dir, "n0")); err != nil {
		t.Fatal(err)
	}
	nodes[0].start()
	coordinator.said.await(t, "NATS lost its data: attempts that no worker has taken are published again")
	if err := coordinator.cmd.Wait(); err != nil {
		t.Errorf("the suite ended with %v", err)
	}
	s.passed(12)
	w.end()
	s.clean("w1")
}

// TestTheServersDirectoryIsDeleted deletes the data of the server in a running coordinator.
func TestTheServersDirectoryIsDeleted(t *testing.T) {
	layertest.Host(t)
	s := newSite(t, `name: deleted
attempts: 10
retries: 10
tasks: [{name: t, command: "true"}]
agents: [{name: slow, command: sleep 0.5}]
`)
	address := "127.0.0.1:" + ports(t, 1)[0]
	coordinator := s.run("--jobs", "1", "--lease", "3s", "--listen", address)
	w := s.worker("w1", "nats://"+address, "--jobs", "1")
	coordinator.said.await(t, "every process of this machine, an agent too, can take work")
	s.until(3)
	s.running("w1")
	if err := os.RemoveAll(filepath.Join(s.dir, "out", "work", "nats")); err != nil {
		t.Fatal(err)
	}
	if err := coordinator.cmd.Wait(); err != nil {
		t.Errorf("the suite ended with %v", err)
	}
	s.passed(10)
	w.end()
	s.clean("w1")
}

// elsewhere calls do in a thread that sees the directory empty. Processes that do starts see the same.
func elsewhere(t *testing.T, dir string, do func()) {
	t.Helper()
	ready, done := make(chan error), make(chan bool)
	go func() { // the thread ends here
		defer close(done)
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS)
		if err == nil {
			err = errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
				unix.Mount("none", dir, "tmpfs", 0, ""))
		}
		if ready <- err; err == nil {
			do()
		}
	}()
	if err := <-ready; err != nil {
		t.Skipf("a mount namespace of its own: %v", err)
	}
	<-done
}

// TestAWorkerWithoutTheWorkspaceIsSentIt has a worker without the workspaces on its machine. An agent that changes the
// worker's copies must not affect other attempts.
func TestAWorkerWithoutTheWorkspaceIsSentIt(t *testing.T) {
	s := newSite(t, `name: sent
attempts: 2
tasks:
- {name: dir, prompt: p, workspace: there/ws, contract: whole.yaml}
- {name: other, prompt: p, workspace: there/other, contract: whole.yaml}
agents:
- {name: honest, command: "ls ../../workspaces/*/tree"}
- {name: spoiler, command: 'for f in ../../workspaces/*/tree/input; do echo bad >$f; done'}
`)
	s.file("whole.yaml", `description: d
checks: [{name: whole, command: "test $(cat input) = data && test -x tool && test $(readlink link) = tool"}]
`)
	script := `mkdir -p there/ws && cd there/ws && echo data >input && echo >tool && chmod +x tool && ln -s tool link &&
		cp -a . ../other && touch ../other/more`
	make := exec.Command("sh", "-c", script)
	make.Dir = s.dir
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	address := "127.0.0.1:" + ports(t, 1)[0]
	var w *process
	elsewhere(t, filepath.Join(s.dir, "there"), func() { w = s.worker("w1", "nats://"+address, "--jobs", "1") })
	coordinator := s.run("--jobs", "0", "--listen", address)
	if err := coordinator.cmd.Wait(); err != nil {
		t.Errorf("the suite ended with %v", err)
	}
	s.passed(8)
	w.end()
	s.clean("w1")
}

// TestATaskThatKillsItsWorker has an agent that kills its worker each time. Only its own attempts may lose tries by
// that.
func TestATaskThatKillsItsWorker(t *testing.T) {
	layertest.Host(t)
	s := newSite(t, `name: killer
attempts: 1
tasks: [{name: t, command: "true"}, {name: u, command: "true"}, {name: v, command: "true"}]
agents:
- {name: killer, command: 'kill -9 $(cat "$HOME/pid"); sleep 100'}
- {name: slow, command: sleep 0.2}
exclude: [{task: u, agent: killer}, {task: v, agent: killer}]
`)
	address := "127.0.0.1:" + ports(t, 1)[0]
	coordinator := s.run("--jobs", "0", "--lease", "2s", "--listen", address)
	w := s.worker("w1", "nats://"+address, "--jobs", "1")
	ended := make(chan error, 1)
	go func() { ended <- coordinator.cmd.Wait() }()
	killed := 0
	for over := false; !over; {
		s.file("pid", strconv.Itoa(w.cmd.Process.Pid))
		died := make(chan struct{})
		go func() { _ = w.cmd.Wait(); close(died) }()
		select {
		case <-died:
			killed++
			w.start()
		case err := <-ended:
			over = true
			if exit := coordinator.cmd.ProcessState.ExitCode(); exit != 1 {
				t.Errorf("the suite ended with %v", err)
			}
			w.signal(syscall.SIGTERM)
			<-died
		}
	}
	if killed != 2 {
		t.Errorf("the worker was killed %d times, want 2", killed)
	}
	for _, a := range results(t, s.dir).Attempts {
		want := schema.SuitePassed
		if a.Agent == "killer" {
			want = schema.SuiteFailed // twice with this agent at this task, and with no other
			if !slices.ContainsFunc(a.Suspicions, func(f schema.Finding) bool { return f.Rule == suite.RuleProvokes }) {
				t.Errorf("%s has the suspicions %v", a.ID, a.Suspicions)
			}
			for _, try := range a.Tries {
				if try.Class != schema.SuiteWorkerLost {
					t.Errorf("%s: a try is %s %s: %s", a.ID, try.Verdict, try.Class, try.Reason)
				}
			}
		}
		if a.Verdict == nil || *a.Verdict != want {
			t.Errorf("%s has the verdict %v, want %s", a.ID, a.Verdict, want)
		}
	}
	s.clean("w1")
}

// TestAWorkerWhoseCoordinatorIsGone kills a coordinator while an attempt runs. Its worker must end the run within ten
// leases, work for the next suite, and end at the first SIGTERM, also while no coordinator answers.
func TestAWorkerWhoseCoordinatorIsGone(t *testing.T) {
	layertest.Host(t)
	s := newSite(t, `name: gone
tasks: [{name: t, command: "true"}]
agents: [{name: slow, command: 'touch "$HOME/began"; sleep 1000'}]
`)
	address := "127.0.0.1:" + ports(t, 1)[0]
	coordinator := s.run("--jobs", "0", "--lease", "1s", "--listen", address)
	w := s.worker("w1", "nats://"+address, "--jobs", "1")
	await := func(name string) {
		for _, err := os.Stat(filepath.Join(s.dir, name)); err != nil; _, err = os.Stat(filepath.Join(s.dir, name)) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	await("began")
	coordinator.kill()
	w.said.await(t, "gave up t/slow/1, try 1: no coordinator has answered for too long")
	s.file("suite.yaml", `name: next
tasks: [{name: t, command: "true"}]
agents: [{name: quick, command: 'true'}, {name: slow, command: 'touch "$HOME/again"; sleep 1000'}]
`)
	next := s.process("assay-suite", "run", "suite.yaml", "--dir", "next", "--jobs", "0", "--lease", "1s", "--listen",
		address)
	await("again")
	next.kill()
	w.signal(syscall.SIGTERM)
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("the worker ended with %v", err)
	}
	if left := processesWith(t, filepath.Join(s.dir, "w1", "slot-0", "spec.json")); len(left) > 0 {
		t.Errorf("its runs %v live on", left)
	}
}

// TestAnInterruptedSuiteEndsWhatOthersRun interrupts a suite twice. The running tries of workers must be cancelled, the
// others taken back, and the suite must continue later.
func TestAnInterruptedSuiteEndsWhatOthersRun(t *testing.T) {
	layertest.Host(t)
	s := newSite(t, `name: interrupted
attempts: 8
tasks: [{name: t, command: "true"}]
agents: [{name: slow, command: 'while [ ! -e "$HOME/go" ]; do sleep 0.05; done'}]
`)
	address := "127.0.0.1:" + ports(t, 1)[0]
	coordinator := s.run("--jobs", "0", "--lease", "6s", "--listen", address)
	w := s.worker("w1", "nats://"+address, "--jobs", "2")
	s.running("w1")
	coordinator.signal(syscall.SIGINT)
	coordinator.said.await(t, "interrupted: ")
	coordinator.signal(syscall.SIGINT)
	if _ = coordinator.cmd.Wait(); coordinator.cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("it ended with %v", coordinator.cmd.ProcessState)
	}
	w.said.await(t, "the try is not this worker's any more")
	s.file("go", "")
	coordinator.start()
	if err := coordinator.cmd.Wait(); err != nil {
		t.Errorf("the suite ended with %v", err)
	}
	s.passed(8)
	w.end()
	s.clean("w1")
}

// TestAWorkerGoesOnWithTheNextSuite has two suites of the same name on one server, and a worker that works for the
// first and then for the second.
func TestAWorkerGoesOnWithTheNextSuite(t *testing.T) {
	layertest.Host(t)
	s := newSite(t, `name: twice
attempts: 3
tasks: [{name: t, command: "true"}]
agents: [{name: a, command: sleep 0.2}]
`)
	_, url := s.cluster(1)
	flags := []string{"--lease", "3s", "--nats", url, "--token-file", "coordinator.token"}
	first := s.run(append(flags, "--jobs", "1")...) // its own worker takes part
	second := s.process(append([]string{"assay-suite", "run", "suite.yaml", "--dir", "second", "--jobs", "0"},
		flags...)...)
	w := s.worker("w1", url, "--token-file", "w1.token", "--jobs", "1")
	for _, p := range []*process{first, second} {
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("a suite ended with %v", err)
		}
	}
	s.passed(3)
	if left := s.streams(url); len(left) > 0 {
		t.Errorf("the streams %v are left", left)
	}
	w.end()
	s.clean("w1")
	if err := errors.Join(os.RemoveAll(filepath.Join(s.dir, "out")),
		os.Rename(filepath.Join(s.dir, "second"), filepath.Join(s.dir, "out"))); err != nil {
		t.Fatal(err)
	}
	s.passed(3)
}
