package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// single is a measurement without a bare counterpart. value is in unit, and has to be at most
// floor.
type single struct {
	name    string
	unit    string
	floor   float64
	measure func() float64
}

var noFloor = math.Inf(1)

func singles(b *bench) []single {
	self, err := os.Executable()
	check(err)
	verify := sync.OnceValues(b.verifyLarge)
	exits := sync.OnceValue(func() []float64 { return b.exitInPlace(self) })
	one := []string{"taskset", "-c", "0"}
	unixOne, wsOne := b.dispatched(self, "unix", one...), b.dispatched(self, "ws", one...)
	unix, ws := b.dispatched(self, "unix"), b.dispatched(self, "ws")
	return slices.Concat(limits(b, self, filepath.Join(b.files, "0")), b.starts(), b.sandboxes(), b.crowd(self), b.mcpCases(self), []single{
		{"an unrelated getpid while a run is on, over one without", "ns", 120, func() float64 { return b.unrelated(self) }},
		{"from a child's exit to ours, after 100 events", "ms", 5, func() float64 { return b.exitToExit(b.run(nil, b.exiting(self)...))[0] }},
		{"from a child's exit to ours, after 100 events, observer in place", "ms", noFloor, func() float64 { return exits()[0] }},
		{"the limit: from a child's exit to that of the least that a run has to do, observer in place", "ms", noFloor, func() float64 { return exits()[1] }},
		{"dropped at 300,000 events/s for 10 s", "events", 0, func() float64 { return b.drops(self) }},
		{"recorder RSS, 10 million events", "MiB", 64, func() float64 { return b.rss(self) }},
		{"recorder RSS, 10 million lines", "MiB", 40, b.linesRSS},
		{"verify, 10 million lines", "s", 100, func() float64 { s, _ := verify(); return s }},
		{"verify RSS, 10 million lines", "MiB", 128, func() float64 { _, mib := verify(); return mib }},
		{"inspect RSS, a million lines", "MiB", 128, func() float64 { return b.inspectRSS() }},
		{"inspect --json RSS, a million lines", "MiB", 128, func() float64 { return b.inspectRSS("--json") }},
		{"gateway, a call over the unix socket, over the bare exchange of its messages, on one CPU", "us", 50, func() float64 { return unixOne().over }},
		{"gateway, a call over a WebSocket, over the bare exchange of its messages, on one CPU", "us", 50, func() float64 { return wsOne().over }},
		{"gateway, a call over the unix socket, in all with client and sockets, on any CPU", "us", noFloor, func() float64 { return unix().total }},
		{"gateway, the bare exchange of its messages, on any CPU", "us", noFloor, func() float64 { return unix().bare }},
		{"gateway, a call over a WebSocket, in all with client and sockets, on any CPU", "us", noFloor, func() float64 { return ws().total }},
		{"gateway, the bare exchange of its messages over a WebSocket, on any CPU", "us", noFloor, func() float64 { return ws().bare }},
		{"gateway, a call of many over unix sockets (50 us are 20,000/s)", "us", 50, func() float64 { return b.gateway(self, "calls", "unix", 20_000) }},
		{"gateway, a call of many over WebSockets", "us", 50, func() float64 { return b.gateway(self, "calls", "ws", 20_000) }},
		{"bundle, git clone", "bytes/event", 35, func() float64 {
			return b.bytesPerEvent("git", "clone", "-q", "--no-local", b.repository(), filepath.Join(b.dir, "clone"))
		}},
		{"bundle, go build with a cold cache", "bytes/event", 35, func() float64 {
			return b.bytesPerEvent("env", "GOCACHE="+filepath.Join(b.dir, "cache"), "go", "build", "-o", filepath.Join(b.dir, "out"), "./cmd/assay-run")
		}},
	})
}

// unrelated is the median of how much longer getpid takes in another process while a run
// exists.
func (b *bench) unrelated(self string) float64 {
	loop := func() float64 {
		out, err := exec.Command(self, "getpid", "5000000").Output()
		check(err)
		ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		check(err)
		return ns
	}
	var over []float64
	for range b.rounds(9) {
		before := loop()
		run := b.run(nil, "sh", "-c", "echo ready; exec sleep 1000")()
		run.Dir = b.dir
		out, err := run.StdoutPipe()
		check(err)
		check(run.Start())
		_, err = io.ReadFull(out, make([]byte, 5))
		check(err)
		over = append(over, loop()-before)
		check(run.Process.Signal(syscall.SIGTERM))
		_ = run.Wait() // 143
		b.clean()
	}
	return median(over)
}

// exiting is a child that writes down when it ends.
func (b *bench) exiting(self string) []string {
	return []string{self, "exit-time", filepath.Join(b.dir, "stamp"), b.files, "80"}
}

// exitToExit are the median times from the child's last action to the end of each command.
func (b *bench) exitToExit(commands ...func() *exec.Cmd) []float64 {
	took := make([][]float64, len(commands))
	for range b.rounds(31) {
		for i, command := range commands {
			cmd := command()
			cmd.Dir = b.dir
			check(cmd.Run())
			end := time.Now().UnixNano()
			data, err := os.ReadFile(filepath.Join(b.dir, "stamp"))
			check(err)
			took[i] = append(took[i], float64(end-int64(number(string(data))))/1e6)
			b.clean()
		}
	}
	var medians []float64
	for _, t := range took {
		medians = append(medians, median(t))
	}
	return medians
}

// exitInPlace are those of a run and of the least one, with the observer in place.
func (b *bench) exitInPlace(self string) []float64 {
	pinned, end := b.inPlace()
	defer end()
	child := b.exiting(self)
	return b.exitToExit(b.run(nil, child...), b.least()(pinned, child...))
}

func (b *bench) drops(self string) float64 {
	h := b.health(self, "flood", b.files, "300000", strconv.Itoa(b.rounds(10)))
	return float64(h.RingbufDrops)
}

// rss is the recorder's largest resident set while a child makes ten million opens of a
// hundred thousand files.
func (b *bench) rss(self string) float64 {
	cmd := b.run(nil, "sh", "-c", fmt.Sprintf("for i in $(seq %d); do %s open-distinct %s 100000; done", b.rounds(100), self, b.files))()
	cmd.Dir = b.dir
	defer b.clean()
	return largestSet(cmd)
}

// health runs a command and reads its bundle's health.
func (b *bench) health(args ...string) schema.ObservationHealth {
	cmd := b.run(nil, args...)()
	cmd.Dir = b.dir
	defer b.clean()
	check(cmd.Run())
	return b.readHealth()
}

// readHealth reads the health of the only bundle in b.dir.
func (b *bench) readHealth() (h schema.ObservationHealth) {
	b.eachMember(func(name string, r io.Reader) {
		if name == schema.HealthPath {
			check(json.NewDecoder(r).Decode(&h))
		}
	})
	return h
}

// bytesPerEvent is the size of a bundle without captured output, per event.
func (b *bench) bytesPerEvent(args ...string) float64 {
	out := filepath.Join(b.dir, "size.tar.gz")
	cmd := exec.Command(b.bin, append([]string{"-q", "--capture-bytes", "0", "-o", out, "--"}, args...)...)
	check(cmd.Run())
	info, err := os.Stat(out)
	check(err)
	events := 0
	b.eachMember(func(name string, r io.Reader) {
		if strings.HasSuffix(name, ".ndjson") {
			data, err := io.ReadAll(r)
			check(err)
			events += strings.Count(string(data), "\n")
		}
	})
	check(os.RemoveAll(filepath.Join(b.dir, "clone")))
	b.clean()
	return float64(info.Size()) / float64(events)
}

// eachMember calls f with each member of the only bundle in b.dir.
func (b *bench) eachMember(f func(name string, r io.Reader)) {
	for _, path := range glob(filepath.Join(b.dir, "*.tar.gz")) {
		file, err := os.Open(path)
		check(err)
		defer file.Close()
		z, err := gzip.NewReader(file)
		check(err)
		for t := tar.NewReader(z); ; {
			h, err := t.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			check(err)
			f(h.Name, t)
		}
	}
}
