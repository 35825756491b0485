// Package listening finds the TCP servers in the network namespace of a process.
package listening

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Sockets returns the listening TCP sockets in the network namespace of a process that have one of the ports: the
// port, by what a descriptor of the socket is a link to.
func Sockets(pid int, ports []int) map[string]int {
	sockets := map[string]int{}
	for _, table := range []string{"tcp", "tcp6"} { // proc_pid_net(5)
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" { // TCP_LISTEN of net/tcp_states.h
				continue
			}
			port, err := strconv.ParseUint(f[1][strings.LastIndexByte(f[1], ':')+1:], 16, 16)
			if err == nil && slices.Contains(ports, int(port)) {
				sockets["socket:["+f[9]+"]"] = int(port)
			}
		}
	}
	return sockets
}
