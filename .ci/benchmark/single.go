package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/schema"
)

// single is a measurement without a bare counterpart. value is in unit, and has to be at most
// bound.
type single struct {
	name    string
	unit    string
	bound   float64
	measure func() float64
}

var noBound = math.Inf(1)

func singles(b *bench) []single {
	self, err := os.Executable()
	check(err)
	verify := sync.OnceValues(b.verifyLarge)
	one := []string{"taskset", "-c", "0"}
	unixOne, wsOne := b.dispatched(self, "unix", one...), b.dispatched(self, "ws", one...)
	unix, ws := b.dispatched(self, "unix"), b.dispatched(self, "ws")
	parts := slices.Concat(b.starts(), b.sandboxes(), b.crowd(self), b.mcpCases(self), b.models(self), b.suites(),
		b.overBaseline(self))
	return slices.Concat(parts, []single{
		{"from a child's exit to ours, after 100 events", "ms", 5, func() float64 { return b.exitToExit(self) }},
		{"from a child's exit to ours, after 100 events, observer in place", "ms", noBound, func() float64 {
			defer b.inPlace()()
			return b.exitToExit(self)
		}},
		{"dropped at 300,000 events/s for 10 s", "events", 0, func() float64 { return b.drops(self) }},
		{"dropped at 200,000 failing opens/s of names of 250 bytes, beside eight busy loops, for 5 s", "events", 0,
			func() float64 { return b.besideLoops(self, 8) }},
		{"highest rate of failing opens of names of 250 bytes, from a thread for each CPU, without loss", "events/s",
			noBound,
			func() float64 { return b.highestRate(self) }},
		{"recorder RSS, 10 million events", "MiB", 64, func() float64 { return b.rss(self) }},
		{"recorder RSS, 10 million lines", "MiB", 40, b.linesRSS},
		{"verify, 10 million lines", "s", 100, func() float64 { s, _ := verify(); return s }},
		{"verify RSS, 10 million lines", "MiB", 128, func() float64 { _, mib := verify(); return mib }},
		{"gate --rules builtin:evaluation, a million lines, over verify (CPU)", "x", 1.4, b.judgedOverVerified},
		{"inspect RSS, a million lines", "MiB", 128, func() float64 { return b.inspectRSS() }},
		{"inspect --json RSS, a million lines", "MiB", 128, func() float64 { return b.inspectRSS("--json") }},
		{"gateway, a call over the unix socket, over the bare exchange of its messages, on one CPU", "us", 50,
			func() float64 {
				return unixOne().over
			}},
		{"gateway, a call over a WebSocket, over the bare exchange of its messages, on one CPU", "us", 50,
			func() float64 {
				return wsOne().over
			}},
		{"gateway, a call over the unix socket, in all with client and sockets, on any CPU", "us", noBound,
			func() float64 {
				return unix().total
			}},
		{"gateway, the bare exchange of its messages, on any CPU", "us", noBound, func() float64 {
			return unix().bare
		}},
		{"gateway, a call over a WebSocket, in all with client and sockets, on any CPU", "us", noBound, func() float64 {
			return ws().total
		}},
		{"gateway, the bare exchange of its messages over a WebSocket, on any CPU", "us", noBound, func() float64 {
			return ws().bare
		}},
		{"gateway, a call of many over unix sockets (50 us are 20,000/s)", "us", 50, func() float64 {
			return b.gateway(self, "calls", "unix", 20_000)
		}},
		{"gateway, a call of many over WebSockets", "us", 50, func() float64 {
			return b.gateway(self, "calls", "ws", 20_000)
		}},
		{"bundle, git clone", "bytes/event", 35, func() float64 {
			return b.bytesPerEvent("git", "clone", "-q", "--no-local", b.repository(), filepath.Join(b.dir, "clone"))
		}},
		{"bundle, go build with a cold cache", "bytes/event", 35, func() float64 {
			return b.bytesPerEvent("env", "GOCACHE="+filepath.Join(b.dir, "cache"), "go", "build", "-o",
				filepath.Join(b.dir, "out"), "./cmd/assay-run")
		}},
	})
}

// exiting is a child that writes down when it ends.
func (b *bench) exiting(self string) []string {
	return []string{self, "exit-time", filepath.Join(b.dir, "stamp"), b.files, "80"}
}

// exitToExit is the median time from the child's last action to the end of a run.
func (b *bench) exitToExit(self string) float64 {
	var took []float64
	for range b.rounds(31) {
		cmd := b.run(nil, b.exiting(self)...)()
		cmd.Dir = b.dir
		check(cmd.Run())
		end := time.Now().UnixNano()
		data, err := os.ReadFile(filepath.Join(b.dir, "stamp"))
		check(err)
		took = append(took, float64(end-int64(number(string(data))))/1e6)
		b.clean()
	}
	return median(took)
}

func (b *bench) drops(self string) float64 {
	h := b.health(self, "flood", b.files, "300000", strconv.Itoa(b.rounds(10)))
	return float64(h.RingbufDrops)
}

// flooded is how many events a run dropped whose command made failing opens in so many threads, and how many of those
// it made per second.
func (b *bench) flooded(self string, rate, seconds, threads int) (dropped, made float64) {
	cmd := b.run(nil, self, "flood-missing", b.dir, strconv.Itoa(rate), strconv.Itoa(seconds), strconv.Itoa(threads))()
	cmd.Dir, cmd.Stdout = b.dir, nil
	defer b.clean()
	out, err := cmd.Output()
	check(err)
	made, err = strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	check(err)
	return float64(b.readHealth().RingbufDrops), made
}

// besideLoops is how many events are dropped where n processes that do nothing but use a CPU run beside.
func (b *bench) besideLoops(self string, n int) float64 {
	for range n {
		loop := exec.Command(self, "busy")
		check(loop.Start())
		defer func() {
			_ = loop.Process.Kill()
			_ = loop.Wait()
		}()
	}
	dropped, _ := b.flooded(self, 200_000, b.rounds(5), 1)
	return dropped
}

// highestRate is the highest rate at which nothing is dropped for two seconds, to about a twentieth, while the command
// uses every CPU. It is at most what the command makes, and 0 where each rate that was tried had losses.
func (b *bench) highestRate(self string) (best float64) {
	lossless := func(rate int) bool {
		dropped, made := b.flooded(self, rate, 2, runtime.NumCPU())
		if dropped == 0 {
			best = max(best, made)
		}
		return dropped == 0 && made > 0.9*float64(rate)
	}
	rate := 25_000
	for lossless(rate) {
		rate *= 2
	}
	for step := rate / 4; step > rate/20; step /= 2 {
		if !lossless(rate - step) {
			rate -= step
		}
	}
	return best
}

// rss is the recorder's largest resident set while a child makes ten million opens of a
// hundred thousand files.
func (b *bench) rss(self string) float64 {
	cmd := b.run(nil, "sh", "-c",
		fmt.Sprintf("for i in $(seq %d); do %s open-distinct %s 100000; done", b.rounds(100), self, b.files))()
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
