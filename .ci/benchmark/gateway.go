package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Messages that a client of the gateway sends for one call. The client does as little work
// as possible, so that the figures show the gateway's cost.
const (
	proposal = `{"jsonrpc":"2.0","id":7,"method":"proposal.submit","params":{"proposal":{"id":"p1","source":"agent","actions":[{"id":"a1","type":"tool_call","tool":"read_file","parameters":{"path":"/home/user/project/main.go"}}]}}}`
	openRun  = `{"jsonrpc":"2.0","id":1,"method":"runs.start","params":{"agent_id":"bench","intent":""}}`
	register = `{"jsonrpc":"2.0","id":2,"method":"tools.register","params":[{"name":"read_file","description":"","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}]}`
)

// wire carries messages to and from the gateway of the run around this process.
type wire interface {
	send(messages ...[]byte)
	read() ([]byte, error) // valid until the next call
	waiting() bool         // another message has already arrived
}

func next(w wire) []byte {
	message, err := w.read()
	check(err)
	return message
}

type unixWire struct {
	net.Conn
	br *bufio.Reader
}

func (w *unixWire) send(messages ...[]byte) {
	_, err := w.Write(append(bytes.Join(messages, []byte("\n")), '\n'))
	check(err)
}

func (w *unixWire) read() ([]byte, error) { return w.br.ReadSlice('\n') }

func (w *unixWire) waiting() bool { return w.br.Buffered() > 0 }

type webSocketWire struct{ *websocket.Conn }

func (w webSocketWire) send(messages ...[]byte) {
	for _, m := range messages {
		check(w.Write(context.Background(), websocket.MessageText, m))
	}
}

func (w webSocketWire) read() ([]byte, error) {
	_, m, err := w.Read(context.Background())
	return m, err
}

func (w webSocketWire) waiting() bool { return false }

// connect opens a connection over unix or ws, and registers a tool.
func connect(network string) wire {
	var w wire
	if network == "unix" {
		conn, err := net.Dial("unix", os.Getenv("ASSAY_RUN_SOCKET"))
		check(err)
		w = &unixWire{conn, bufio.NewReaderSize(conn, 1<<16)}
	} else {
		conn, _, err := websocket.Dial(context.Background(),
			os.Getenv("ASSAY_RUN_URL")+"/?token="+os.Getenv("ASSAY_RUN_TOKEN"), nil)
		check(err)
		w = webSocketWire{conn}
	}
	for _, m := range []string{openRun, register} {
		w.send([]byte(m))
		next(w)
	}
	return w
}

// answerTo is the answer to a tools.execute. It is nil for another message.
func answerTo(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"method":"tools.execute"`)) {
		return nil
	}
	_, rest, _ := bytes.Cut(message, []byte(`"id":`))
	id, _, _ := bytes.Cut(rest, []byte(","))
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"content":"package main"}}`, id)
}

// dispatch NETWORK N prints the median time of a call in microseconds, from the proposal to
// its result, with the client's own part.
func dispatch(args []string) {
	w := connect(args[0])
	took := make([]float64, number(args[1]))
	for i := range took {
		began := time.Now()
		w.send([]byte(proposal))
		w.send(answerTo(next(w)))
		next(w)
		took[i] = float64(time.Since(began).Nanoseconds()) / 1000
	}
	slices.Sort(took)
	fmt.Println(took[len(took)/2])
}

// calls NETWORK N prints the microseconds per call, for N calls on each of 4 connections
// with 64 calls in flight.
func calls(args []string) {
	const conns, window = 4, 64
	n := number(args[1])
	wires := make([]wire, conns)
	for i := range wires {
		wires[i] = connect(args[0])
	}
	began := time.Now()
	var work sync.WaitGroup
	for _, w := range wires {
		work.Go(func() {
			var out [][]byte
			for sent, got := 0, 0; got < n; {
				for ; sent < n && sent-got < window; sent++ {
					// Do not use the id of a call in flight again.
					out = append(out, bytes.Replace([]byte(proposal), []byte(`"id":7`),
						fmt.Appendf(nil, `"id":%d`, 1000+sent%window), 1))
				}
				if len(out) > 0 {
					w.send(out...)
					out = out[:0]
				}
				for more := true; more; more = w.waiting() {
					if answer := answerTo(next(w)); answer != nil {
						out = append(out, answer)
					} else {
						got++
					}
				}
			}
		})
	}
	work.Wait()
	fmt.Println(float64(time.Since(began).Nanoseconds()) / 1000 / float64(conns*n))
}

// gateway runs a role in a few runs, and returns the median of what it printed.
func (b *bench) gateway(self, role, network string, n int) float64 {
	var got []float64
	for range b.rounds(5) {
		got = append(got, b.printed(b.run([]string{"--kernel", "off", "--gateway", "ws"}, self, role, network,
			strconv.Itoa(n))()))
	}
	return median(got)
}

// dispatched measures calls under a run and, in turns, the bare exchange of their messages.
// It returns medians of the rounds' medians, and of their differences. The messages of a
// call wake each side twice. On one CPU that is a context switch. With two CPUs it may have
// to wake a halted CPU, which takes longer than the call: the bare exchange then takes 25 or
// 100 us by chance. So the gateway is measured on one CPU.
func (b *bench) dispatched(self, network string, where ...string) func() exchanged {
	return sync.OnceValue(func() exchanged {
		role := []string{self, "dispatch", network, "20000"}
		var bare, total, over []float64
		for range b.rounds(7) {
			alone := b.printed(command(where, self, append([]string{"exchange"}, role...)...))
			run := b.run([]string{"--kernel", "off", "--gateway", "ws"}, role...)()
			under := b.printed(command(where, run.Path, run.Args[1:]...))
			bare, total, over = append(bare, alone), append(total, under), append(over, under-alone)
		}
		return exchanged{median(bare), median(total), median(over)}
	})
}

// exchanged are the microseconds of a call's messages: in the bare exchange, under a run,
// and the difference.
type exchanged struct{ bare, total, over float64 }

// command is a command behind a prefix such as taskset.
func command(by []string, name string, args ...string) *exec.Cmd {
	all := append(append(slices.Clone(by), name), args...)
	return exec.Command(all[0], all[1:]...)
}

// printed runs a command and returns the number that it prints.
func (b *bench) printed(cmd *exec.Cmd) float64 {
	cmd.Dir, cmd.Stderr = b.dir, os.Stderr
	out, err := cmd.Output()
	check(err)
	v, err := strconv.ParseFloat(string(bytes.TrimSpace(out)), 64)
	check(err)
	b.clean()
	return v
}
