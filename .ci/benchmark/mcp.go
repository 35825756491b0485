package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Messages that a client of an MCP server sends.
const (
	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	toolCall    = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"/home/user/project/main.go"}}}`
)

// benchPolicy has a rule of each kind that looks at a call's parameters.
const benchPolicy = `
tools: {deny: [shell, "delete_*"]}
rules:
- {name: no_etc, rule: deny_tool_param, target: read_file, key: path, value_path: /etc}
- {name: no_keys, rule: deny_tool_param_matching, target: "*", key: path, pattern: '\.pem$'}
- {name: no_secrets, rule: deny_keyword, value: password}
`

// mcpServer [http] is a server made with MCP's SDK. It serves over stdin and stdout, or over
// HTTP at the address that it prints.
func mcpServer(args []string) {
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	type in struct {
		Path string `json:"path"`
	}
	text := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "package main"}}}
	mcp.AddTool(s, &mcp.Tool{Name: "read_file"},
		func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, any, error) {
			return text, nil, nil
		})
	if len(args) == 0 {
		s.Run(context.Background(), &mcp.StdioTransport{}) // until its input ends
		return
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Printf("http://%s/mcp\n", ln.Addr())
	check(http.Serve(ln, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)))
}

// mcpCalls TRANSPORT CONNECTIONS N COMMAND... prints the microseconds per call, for N calls
// in a row on each connection. Over stdio, it starts COMMAND once for each connection. Over
// http, COMMAND is started once and prints its address.
func mcpCalls(args []string) {
	conns, n, command := number(args[1]), number(args[2]), args[3:]
	calls := make([]func(message string, id int), conns)
	if args[0] == "stdio" {
		for i := range calls {
			calls[i] = overPipes(command)
		}
	} else {
		cmd := exec.Command(command[0], command[1:]...)
		out, err := cmd.StdoutPipe()
		check(err)
		cmd.Stderr = os.Stderr
		check(cmd.Start())
		defer func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() }()
		url, err := bufio.NewReader(out).ReadString('\n')
		check(err)
		for i := range calls {
			calls[i] = overHTTP(strings.TrimSpace(url))
		}
	}
	all := func(times int) {
		var work sync.WaitGroup
		for _, call := range calls {
			work.Go(func() {
				for i := range times {
					call(fmt.Sprintf(toolCall, i+1), i+1)
				}
			})
		}
		work.Wait()
	}
	all(n/10 + 1) // warms up
	began := time.Now()
	all(n)
	fmt.Println(float64(time.Since(began).Nanoseconds()) / 1000 / float64(conns*n))
}

// overPipes starts a server, and sends it messages over its pipes.
func overPipes(command []string) func(message string, id int) {
	cmd := exec.Command(command[0], command[1:]...)
	in, err := cmd.StdinPipe()
	check(err)
	out, err := cmd.StdoutPipe()
	check(err)
	cmd.Stderr = os.Stderr
	check(cmd.Start())
	lines := bufio.NewReaderSize(out, 64<<10)
	call := func(message string, id int) {
		_, err := in.Write(append([]byte(message), '\n'))
		check(err)
		for id >= 0 {
			line, err := lines.ReadSlice('\n')
			check(err)
			if isAnswer(line, id) {
				return
			}
		}
	}
	call(initialize, 0)
	call(initialized, -1)
	return call
}

// overHTTP opens a session, and sends its messages.
func overHTTP(url string) func(message string, id int) {
	client := &http.Client{Transport: &http.Transport{}}
	session := ""
	call := func(message string, id int) {
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(message))
		check(err)
		req.Header = http.Header{"Content-Type": {"application/json"},
			"Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-06-18"}}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := client.Do(req)
		check(err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		check(err)
		if session == "" {
			session = resp.Header.Get("Mcp-Session-Id")
		}
		if id >= 0 && !isAnswer(body, id) {
			check(fmt.Errorf("%s: %s", resp.Status, body))
		}
	}
	call(initialize, 0)
	call(initialized, -1)
	return call
}

func isAnswer(text []byte, id int) bool {
	return bytes.Contains(text, []byte(`"result"`)) && bytes.Contains(text, fmt.Appendf(nil, `"id":%d`, id))
}

// mcpCases measure an MCP client's calls, direct and through mcp with a policy. Over HTTP,
// the client speaks HTTP to the server or to mcp, and mcp speaks to its server over pipes.
// In front of a remote server, mcp would need two HTTP exchanges for one.
func (b *bench) mcpCases(self string) (cases []single) {
	policy := filepath.Join(b.dir, "policy.yaml")
	ours := func(args ...string) []string {
		return append([]string{b.bin, "mcp", "--policy", policy}, args...)
	}
	listen := []string{"--no-auth", "--listen", "127.0.0.1:0", "--"}
	for _, c := range []struct {
		transport    string
		bound        float64
		direct, mcps []string
	}{
		{"stdio", noBound, []string{self, "mcp-server"}, ours("--", self, "mcp-server")},
		{"http", 1.5, []string{self, "mcp-server", "http"}, ours(append(slices.Clone(listen), self, "mcp-server")...)},
	} {
		for _, conns := range []int{1, 50} {
			n := 20_000 / conns
			role := []string{"mcp-calls", c.transport, strconv.Itoa(conns), strconv.Itoa(n)}
			timed := sync.OnceValue(func() exchanged {
				check(os.WriteFile(policy, []byte(benchPolicy), 0o600))
				var bare, total, ratio []float64
				for range b.rounds(7) {
					alone := b.printed(command(nil, self, append(slices.Clone(role), c.direct...)...))
					through := b.printed(command(nil, self, append(slices.Clone(role), c.mcps...)...))
					bare, total, ratio = append(bare, alone), append(total, through), append(ratio, through/alone)
				}
				return exchanged{median(bare), median(total), median(ratio)}
			})
			name := fmt.Sprintf("mcp, a call over %s with a policy, %d at once", c.transport, conns)
			cases = append(cases,
				single{name + ", direct", "us", noBound, func() float64 { return timed().bare }},
				single{name, "us", noBound, func() float64 { return timed().total }},
				single{name + ", of the direct exchange", "x", c.bound, func() float64 { return timed().over }})
		}
	}
	// The gateway of a run, with the same policy.
	for _, network := range []string{"unix", "ws"} {
		for _, conns := range []int{1, 50} {
			cases = append(cases, single{fmt.Sprintf("gateway, a call over %s with a policy, %d at once", network,
				conns), "us", noBound, func() float64 {
				check(os.WriteFile(policy, []byte(benchPolicy), 0o600))
				var got []float64
				for range b.rounds(5) {
					run := b.run([]string{"--kernel", "off", "--gateway", "ws", "--policy", policy}, self, "turns",
						network, strconv.Itoa(conns), strconv.Itoa(20_000/conns))
					got = append(got, b.printed(run()))
				}
				return median(got)
			}})
		}
	}
	return cases
}

// turns NETWORK CONNECTIONS N prints the microseconds per call, for N calls in a row on each
// connection.
func turns(args []string) {
	wires := make([]wire, number(args[1]))
	for i := range wires {
		wires[i] = connect(args[0])
	}
	n := number(args[2])
	began := time.Now()
	var work sync.WaitGroup
	for _, w := range wires {
		work.Go(func() {
			for range n {
				w.send([]byte(proposal))
				w.send(answerTo(next(w)))
				next(w)
			}
		})
	}
	work.Wait()
	fmt.Println(float64(time.Since(began).Nanoseconds()) / 1000 / float64(n*len(wires)))
}
