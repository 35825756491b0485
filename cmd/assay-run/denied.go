package main

import (
	"sync"
	"time"

	"github.com/assay-run/assay-run/cmd/internal/console"
)

// deniedConnections tells which connections the sandbox denied: at the end of the run, and
// on a terminal also while the command may be waiting for one.
type deniedConnections struct {
	say      *console.Messages
	terminal bool // say writes to one

	mu    sync.Mutex // guards what follows
	list  []denied
	told  int // how many of list a terminal has shown
	timer *time.Timer
	ended bool
}

type denied struct{ target, remedy string }

const (
	// deniedAfter is how long a command goes on after a denial before a terminal shows it:
	// one that ends earlier did not hang on it.
	deniedAfter = 5 * time.Second
	// maxDeniedShown is how many targets are named.
	maxDeniedShown = 5
)

// add is [runner.Options.OnDenied].
func (d *deniedConnections) add(target, remedy string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, denied{target, remedy})
	if d.terminal && !d.ended && d.timer == nil {
		d.timer = time.AfterFunc(deniedAfter, d.meanwhile)
	}
}

// meanwhile shows what was denied since it last did.
func (d *deniedConnections) meanwhile() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = nil
	if d.ended || d.say.Quiet {
		return
	}
	d.show(d.list[min(d.told, len(d.list)):])
	d.told = len(d.list)
}

// end shows all that was denied.
func (d *deniedConnections) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if d.timer != nil {
		d.timer.Stop()
	}
	if !d.say.Quiet {
		d.show(d.list)
	}
}

func (d *deniedConnections) show(list []denied) {
	for i, c := range list {
		if i == maxDeniedShown {
			d.say.Warning("the sandbox denied %d more connections; assay-run inspect lists them", len(list)-i)
			return
		}
		d.say.Warning("the sandbox denied the connection to %s; to allow it, %s", c.target, c.remedy)
	}
}
