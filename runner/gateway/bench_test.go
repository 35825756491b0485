package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"
)

// rawClient speaks the protocol with as little work as possible, so that a benchmark measures the gateway.
type rawClient struct {
	conn net.Conn
	br   *bufio.Reader
}

func (c *rawClient) send(b *testing.B, line []byte) {
	if _, err := c.conn.Write(line); err != nil {
		b.Fatal(err)
	}
}

func (c *rawClient) next(b *testing.B) []byte {
	line, err := c.br.ReadSlice('\n')
	if err != nil {
		b.Fatal(err)
	}
	return line
}

func benchClient(b *testing.B, f *fixture, startRun bool) *rawClient {
	conn, err := net.Dial("unix", f.path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	c := &rawClient{conn, bufio.NewReaderSize(conn, 1<<16)}
	if startRun {
		c.send(b, []byte(`{"jsonrpc":"2.0","id":1,"method":"runs.start","params":{"agent_id":"bench","intent":""}}`+
			"\n"))
		c.next(b)
	}
	c.send(b, []byte(`{"jsonrpc":"2.0","id":2,"method":"tools.register","params":[{"name":"read_file","description":"","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}]}`+"\n"))
	c.next(b)
	return c
}

var benchProposal = []byte(
	`{"jsonrpc":"2.0","id":7,"method":"proposal.submit","params":{"proposal":{"id":"p1","source":"agent","actions":[{"id":"a1","type":"tool_call","tool":"read_file","parameters":{"path":"/home/user/project/main.go"}}]}}}` + "\n")

// answerTo is the client's answer to a tools.execute line.
func answerTo(line []byte) []byte {
	_, rest, _ := bytes.Cut(line, []byte(`"id":`))
	id, _, _ := bytes.Cut(rest, []byte(","))
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"content":"package main"}}`+"\n", id)
}

var isExecute = []byte(`"method":"tools.execute"`)

// BenchmarkDispatch is one call after another: proposal, callback, result,
// turn, decision and call event on disk, answer. "p50-us" is the median.
func BenchmarkDispatch(b *testing.B) {
	f := start(b, nil)
	c := benchClient(b, f, true)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		c.send(b, benchProposal)
		c.send(b, answerTo(c.next(b)))
		c.next(b)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-us")
}

// BenchmarkEcho is the minimum for BenchmarkDispatch: the same four messages over the same kind of socket, without
// any processing.
func BenchmarkEcho(b *testing.B) {
	ln, err := net.Listen("unix", b.TempDir()+"/s")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		br := bufio.NewReader(conn)
		for {
			line, err := br.ReadSlice('\n')
			if err != nil {
				return
			}
			conn.Write(line)
		}
	}()
	conn, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	c := &rawClient{conn, bufio.NewReader(conn)}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		for range 2 {
			c.send(b, benchProposal)
			c.next(b)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-us")
}

// BenchmarkSustained keeps 64 proposals in flight on each of 4 connections.
func BenchmarkSustained(b *testing.B) {
	f := start(b, nil)
	const conns, window = 4, 64
	clients := make([]*rawClient, conns)
	for i := range clients {
		clients[i] = benchClient(b, f, i == 0)
	}
	b.ResetTimer()
	began := time.Now()
	done := make(chan int, conns)
	for i, c := range clients {
		go func() {
			n := b.N / conns
			if i == 0 {
				n += b.N % conns
			}
			sent, got := 0, 0
			var out []byte
			for got < n {
				for sent < n && sent-got < window {
					// An id in flight is not used again.
					out = append(out, bytes.Replace(benchProposal, []byte(`"id":7`),
						fmt.Appendf(nil, `"id":%d`, 1000+sent), 1)...)
					sent++
				}
				if len(out) > 0 {
					c.send(b, out)
					out = out[:0]
				}
				for {
					line := c.next(b)
					if bytes.Contains(line, isExecute) {
						out = append(out, answerTo(line)...)
					} else {
						got++
					}
					if c.br.Buffered() == 0 {
						break
					}
				}
			}
			done <- n
		}()
	}
	for range clients {
		<-done
	}
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "calls/s")
	if m := f.Metrics(); m.Turns != uint64(b.N) || m.Events != uint64(b.N) {
		b.Errorf("%d calls, metrics %+v", b.N, m)
	}
}
