package gateway

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// envClient makes the test binary a client of the socket that it names.
const envClient = "GATEWAY_TEST_CLIENT"

func init() {
	socket := os.Getenv(envClient)
	if socket == "" {
		return
	}
	conn, err := net.Dial("unix", socket)
	if err == nil {
		fmt.Fprintln(conn, `{"jsonrpc":"2.0","id":1,"method":"runs.start","params":{"agent_id":"a","intent":""}}`)
		bufio.NewReader(conn).ReadString('\n')
		fmt.Println("started")
		time.Sleep(10 * time.Minute)
	}
	os.Exit(1)
}

// A stopped client of a unix socket is disconnected, and leaves its run; a silent one is not.
func TestAStoppedClientIsNoticed(t *testing.T) {
	s := serveRuns(t, func(c *Config) {
		c.Limits.PingEvery, c.Limits.Grace = 100*time.Millisecond, 100*time.Millisecond
	})
	quiet := dial(t, s.path)
	s.start(t, quiet, `{"agent_id":"quiet","intent":""}`)
	client := exec.Command(os.Args[0])
	client.Env = append(os.Environ(), envClient+"="+s.path)
	out, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { client.Process.Kill(); client.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	client.Process.Signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		list := quiet.must("runs.list", "{}")
		if strings.Contains(list, `"state":"incomplete"`) {
			if strings.Count(list, `"state":"open"`) != 1 {
				t.Errorf("the client that was not stopped lost its run: %s", list)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the run goes on: %s", list)
		}
	}
}
