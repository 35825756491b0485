package rpc

import (
	"time"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// Limits limit what clients can make a server hold or wait for. Sizes are in bytes. Zero fields mean the default in
// the comment.
type Limits struct {
	Connections    int           // at the same time; 256
	Message        int           // of one message from a client; 4 MiB
	Depth          int           // nesting of a message; 64
	InFlight       int           // running requests per connection; 1,024
	InFlightAll    int           // running requests of all connections; 8,192
	InFlightBytes  int           // of running and waiting requests, per connection; 96 MiB
	HeldBytes      int           // the same for all connections, and of partly read messages; 128 MiB
	Outbox         int           // unsent bytes for a client that does not read; 1 MiB
	MessageTimeout time.Duration // from a message's first byte to its last; 30 s
	WriteTimeout   time.Duration // for a client that does not read; 30 s
	// PingEvery is the time between pings of a WebSocket client, within which it must answer, and between checks of a
	// unix socket's client; 10 s.
	PingEvery    time.Duration
	DrainTimeout time.Duration // how long Close waits for clients to finish; 200 ms
}

func (l *Limits) setDefaults() {
	for at, value := range map[*int]int{
		&l.Connections: 256, &l.Message: jsonrpc.DefaultMessage, &l.Depth: jsonrpc.DefaultDepth,
		&l.InFlight: 1024, &l.InFlightAll: 8192, &l.InFlightBytes: 96 << 20, &l.HeldBytes: 128 << 20,
		&l.Outbox: 1 << 20,
	} {
		if *at == 0 {
			*at = value
		}
	}
	for at, value := range map[*time.Duration]time.Duration{
		&l.MessageTimeout: 30 * time.Second, &l.WriteTimeout: 30 * time.Second,
		&l.PingEvery: 10 * time.Second, &l.DrainTimeout: 200 * time.Millisecond,
	} {
		if *at == 0 {
			*at = value
		}
	}
}
