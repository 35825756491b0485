package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/schema"
)

// suites measures assay-suite, which is beside assay-run: a suite of `true` beside xargs with as many runs at once,
// with verification and the rules for evaluations; how it goes on where all is done; and its server.
func (b *bench) suites() []single {
	plain := sync.OnceValue(func() ratios { return b.besideXargs() })
	kept := sync.OnceValue(func() ratios { return b.besideXargs("--keep-observer", "3s") })
	resume := sync.OnceValues(b.resume)
	var trials []single
	if exec.Command("docker", "version").Run() == nil {
		trials = []single{{"attempts of an agent of 10 s at a task in a folder, over the same by Docker's client: " +
			"wall clock", "times", 1.25, b.trials}}
	}
	return append(trials, []single{
		{"a suite of 1,000 attempts of true, over xargs -P assay-run: CPU", "times", 1.35,
			func() float64 { return plain().cpu }},
		{"a suite of 1,000 attempts of true, over xargs -P assay-run: wall clock", "times", 1.4,
			func() float64 { return plain().wall }},
		{"the same over xargs -P assay-run --keep-observer: CPU", "times", noBound,
			func() float64 { return kept().cpu }},
		{"the same over xargs -P assay-run --keep-observer: wall clock", "times", noBound,
			func() float64 { return kept().wall }},
		{"going on with a suite of 10,000 finished attempts", "s", 1, func() float64 { s, _ := resume(); return s }},
		{"going on with a suite of 10,000 finished attempts, RSS", "MiB", 100,
			func() float64 { _, mib := resume(); return mib }},
		{"start of the NATS server of a suite", "ms", 100, b.natsStart},
		{"bundles of 85 MB over NATS from two jobs of a worker, RSS of the coordinator", "MiB", 256, b.largeBundles},
	}...)
}

// byClient attempts a task in a folder as often as $1 says, by Docker's client alone: run, exec, commit, and the tests
// in a fresh container.
const byClient = `set -e
for i in $(seq $1); do
  docker run -d --name bench-agent --network none assay-bench sh -c 'sleep infinity'
  docker exec -w /work bench-agent sh -c "$2"
  docker stop --time 0 bench-agent
  left=$(docker commit bench-agent)
  docker run -d --name bench-judge --network none -v "$PWD/logs:/logs/verifier" "$left" sh -c 'sleep infinity'
  docker cp task/tests/. bench-judge:/tests
  docker exec bench-judge sh /tests/test.sh
  docker rm -f bench-agent bench-judge
  docker rmi -f "$left"
done >/dev/null
`

// trials compares attempts at a task in a folder with the same by Docker's client.
func (b *bench) trials() float64 {
	n, agent := 3, "sleep 10; echo 42 >answer"
	if b.quick {
		n, agent = 1, "echo 42 >answer"
	}
	dir := filepath.Join(b.dir, "trials")
	for name, text := range map[string]string{
		"task/task.toml": "[environment]\ndocker_image = 'assay-bench'\n" +
			"allow_internet = false\nworkdir = '/work'\n",
		"task/instruction.md": "Write 42 to /work/answer.\n",
		"task/tests/test.sh":  "test \"$(cat /work/answer)\" = 42 && echo 1 >/logs/verifier/reward.txt\n",
		"logs/none":           "",
	} {
		at := filepath.Join(dir, name)
		check(os.MkdirAll(filepath.Dir(at), 0o755))
		check(os.WriteFile(at, []byte(text), 0o644))
	}
	defer func() { check(os.RemoveAll(dir)) }()
	image := `mkdir -p root/bin root/work root/tmp && cp "$(command -v busybox)" root/bin/ &&
		for name in sh sleep cat test mkdir chmod; do ln -s busybox root/bin/$name; done &&
		tar -C root -c . | docker import - assay-bench`
	run := func(name string, args ...string) time.Duration {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		start := time.Now()
		check(cmd.Run())
		return time.Since(start)
	}
	run("sh", "-c", image)
	defer run("docker", "rmi", "-f", "assay-bench")
	bare := run("sh", "-c", byClient, "sh", fmt.Sprint(n), agent)
	ours := run(filepath.Join(filepath.Dir(b.bin), "assay-suite"), "run", "-q", "--tasks", "task", "--dir", "out",
		"--jobs", "1", "--attempts", fmt.Sprint(n), "--agent", "a="+agent, "--assay-run", b.bin)
	return ours.Seconds() / bare.Seconds()
}

// suiteCommand goes on with a suite of so many attempts of each of two agents at five tasks.
func (b *bench) suiteCommand(dir string, attempts, jobs int) *exec.Cmd {
	text := fmt.Sprintf("name: bench\nattempts: %d\ntasks:\n", attempts)
	for i := range 5 {
		text += fmt.Sprintf("- {name: t%d, command: \"true\"}\n", i)
	}
	text += "agents:\n- {name: a, command: \"true\"}\n- {name: b, command: \"true\"}\n"
	check(os.MkdirAll(dir, 0o755))
	check(os.WriteFile(filepath.Join(dir, "suite.yaml"), []byte(text), 0o644))
	cmd := exec.Command(filepath.Join(filepath.Dir(b.bin), "assay-suite"), "run", "suite.yaml", "--dir", "out", "-q",
		"--jobs", fmt.Sprint(jobs), "--assay-run", b.bin)
	cmd.Dir = dir
	return cmd
}

func (b *bench) besideXargs(flags ...string) ratios {
	const jobs = 2
	n := 1000
	if b.quick {
		n = 20
	}
	dir := filepath.Join(b.dir, "suite")
	ours := func() cost {
		defer func() { check(os.RemoveAll(dir)) }()
		return b.cost(b.suiteCommand(dir, n/10, jobs))
	}
	bare := func() cost {
		script := fmt.Sprintf(`seq %d | xargs -P %d -I N "$@" -q -o N.tar.gz -- sh -c true`, n, jobs)
		args := append([]string{"-c", script, "sh", b.bin}, flags...)
		defer b.clean()
		return b.cost(exec.Command("sh", args...))
	}
	var pairs []ratios
	for i := range b.rounds(3) {
		if i%2 == 0 {
			first := bare()
			pairs = append(pairs, ours().over(first))
		} else {
			first := ours()
			pairs = append(pairs, first.over(bare()))
		}
	}
	return medians(pairs)
}

// resume is how long it takes to go on with a suite that is finished, in seconds, and its largest RSS in MiB.
func (b *bench) resume() (seconds, mib float64) {
	dir := filepath.Join(b.dir, "finished")
	defer func() { check(os.RemoveAll(dir)) }()
	cmd := b.suiteCommand(dir, 1000, 1)
	b.finish(dir)
	start := time.Now()
	mib = largestSet(cmd)
	return time.Since(start).Seconds(), mib
}

// finish writes the ledger of a suite in a directory, as if all had passed.
func (b *bench) finish(dir string) {
	f, err := suite.Load(filepath.Join(dir, "suite.yaml"), nil)
	check(err)
	asks, err := f.Describe()
	check(err)
	out := filepath.Join(dir, "out")
	check(os.MkdirAll(out, 0o755))
	l, _, _, err := ledger.Open(out)
	check(err)
	all := f.Attempted()
	lines := []ledger.Line{{Kind: ledger.Created, Suite: f.Name, Token: "0", Definitions: asks.Definitions,
		Attempts: len(all)}}
	host := &schema.SuiteHost{Worker: "host", AssayRun: "assay-run 0.1.0", Kernel: "Linux 6.12.0",
		AgentDigest: fmt.Sprintf("sha256:%064d", 0)}
	for i, a := range all {
		line := ledger.Line{Kind: ledger.Opened, Attempt: a, Try: 1, Token: fmt.Sprintf("%032d", i),
			Identity: asks.Identities[a], Inputs: "inputs/0123456789abcdef"}
		lines = append(lines, line)
		line.Kind, line.Identity, line.Inputs, line.Worker, line.Host = ledger.Began, "", "", "host", host
		lines = append(lines, line)
		line.Kind, line.Worker, line.Host = ledger.Ended, "", nil
		lines = append(lines, line)
		line.Kind = ledger.Verdict
		line.Verdict = &schema.SuiteTry{Try: 1, Verdict: schema.SuitePassed, RunID: "try_" + line.Token,
			Bundle:   fmt.Sprintf("attempts/%s/%s/%d/try-1/run.tar.gz", a.Task, a.Agent, a.Attempt),
			Identity: fmt.Sprintf("sha256:%064d", i), ExitCode: new(0), Seconds: new(0.5),
			KernelState: schema.Complete, Host: host}
		lines = append(lines, line)
	}
	check(l.Append(lines...))
	check(l.Close())
}

// natsStart is the median of what a server in this process takes to start, in milliseconds.
func (b *bench) natsStart() float64 {
	var took []time.Duration
	for range b.rounds(11) {
		start := time.Now()
		s, err := carrier.Serve(filepath.Join(b.dir, "nats"), carrier.ListenConfig{})
		check(err)
		took = append(took, time.Since(start))
		check(s.Close())
	}
	return float64(median(took)) / float64(time.Millisecond)
}

// largeBundles is the largest RSS of a coordinator that is the server, in MiB. A run keeps 64 MiB of what its agent
// wrote at most, which is 85 MB in its bundle.
func (b *bench) largeBundles() float64 {
	dir := filepath.Join(b.dir, "large")
	check(os.MkdirAll(dir, 0o755))
	defer func() { check(os.RemoveAll(dir)) }()
	text := "name: large\nattempts: 6\ntasks: [{name: t, command: \"true\"}]\n" +
		"agents: [{name: a, command: head -c 66000000 /dev/urandom >large}]\n"
	check(os.WriteFile(filepath.Join(dir, "suite.yaml"), []byte(text), 0o644))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	address := l.Addr().String()
	check(l.Close())
	program := filepath.Join(filepath.Dir(b.bin), "assay-suite")
	worker := exec.Command(program, "worker", "--nats", "nats://"+address, "--dir", "worker", "--jobs", "2",
		"--assay-run", b.bin)
	worker.Dir = dir
	check(worker.Start())
	defer func() { check(worker.Wait()) }()
	defer worker.Process.Signal(os.Interrupt)
	run := exec.Command(program, "run", "suite.yaml", "--dir", "out", "--jobs", "0", "--listen", address)
	run.Dir = dir
	return largestSet(run)
}
