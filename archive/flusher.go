package archive

import (
	"sync"
	"time"
)

const (
	batchInterval = 200 * time.Millisecond // kernel lines are written this often: 250 ms at most after the event
	syncInterval  = time.Second            // dirty files are synced this often
)

// flusher writes batches every batchInterval, and syncs files and makes a checkpoint every syncInterval, in a goroutine
// of its own. It sleeps while there is nothing to do.
type flusher struct {
	wake chan struct{} // something is buffered or dirty
	stop chan struct{}
	done sync.WaitGroup
}

func newFlusher() *flusher { return &flusher{wake: make(chan struct{}, 1), stop: make(chan struct{})} }

// start begins to call flush after each batchInterval and sync after each syncInterval, while something is touched.
func (f *flusher) start(flush, sync func()) {
	f.done.Go(func() { f.run(flush, sync) })
}

func (f *flusher) run(flush, sync func()) {
	tick := time.NewTicker(batchInterval)
	defer tick.Stop()
	for {
		tick.Stop()
		select {
		case <-f.stop:
			return
		case <-f.wake:
		}
		tick.Reset(batchInterval)
		for range int(syncInterval / batchInterval) {
			select {
			case <-f.stop:
				return
			case <-tick.C:
				flush()
			}
		}
		sync()
	}
}

// touched tells the flusher that there is something to write or sync.
func (f *flusher) touched() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// end ends the goroutine, and waits for it.
func (f *flusher) end() {
	close(f.stop)
	f.done.Wait()
}
