package archive

import (
	"os"
	"sync"
)

// runFile is run.json of a spool. It is locked while this process lives.
type runFile struct {
	sum   string // its digest
	lock  *os.File
	lossy sync.Once
}

// markLossy marks the run on disk as one of which lines were dropped, since the count is lost if this process dies.
func (r *runFile) markLossy() { r.lossy.Do(func() { _ = r.lock.Chmod(lossyMode) }) }
