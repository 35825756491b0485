package rpc

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// untilStopped calls gone when the process that connected was stopped (SIGSTOP) at two checks in a row. It is for
// unix sockets, whose clients need not answer pings.
func untilStopped(conn net.Conn, every time.Duration, gone func()) (stop func()) {
	none := func() {}
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return none
	}
	var peer *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if cerr != nil || err != nil || peer.Pid <= 0 {
		return none
	}
	process, err := os.OpenRoot(fmt.Sprintf("/proc/%d", peer.Pid)) // stays this process even if its number is reused
	if err != nil {
		return none
	}
	done := make(chan struct{})
	go func() {
		defer process.Close()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for was := false; ; {
			select {
			case <-tick.C:
			case <-done:
				return
			}
			stat, err := process.ReadFile("stat")
			if err != nil {
				return // it has ended; it is not known who has the socket now
			}
			state := stat[bytes.LastIndexByte(stat, ')')+1:] // skip the name, which may contain anything
			is := bytes.HasPrefix(state, []byte(" T"))
			if was && is {
				gone()
				return
			}
			was = is
		}
	}()
	return func() { close(done) }
}
