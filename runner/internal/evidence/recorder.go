package evidence

import (
	"io"

	"github.com/assay-run/assay-run/schema"
)

// Recorder is where a run, recorded or served, leaves what it observed: the one
// way into a bundle. archive.Spool is one, and so is redacted, in front of it.
// All methods are safe for concurrent use.
type Recorder interface {
	// Append adds one line to a layer, named by its path in the bundle. encode
	// appends the line's JSON, without the newline, to dst, using the sequence
	// number it is given: the recorder alone stamps seq, under one lock per
	// layer. After a write error the layer stays broken: every further line is
	// counted as dropped and the same error comes back.
	Append(layer string, encode func(dst []byte, seq uint64) []byte) error
	// AppendBatch adds n lines in one write, with no other line between them;
	// encode appends line i. All of them are written or none.
	AppendBatch(layer string, n int, encode func(dst []byte, seq uint64, i int) []byte) error
	// Create opens a member that is written piece by piece:
	// schema.StdoutPath and its like, and schema.SurfacePath.
	Create(path string) (io.WriteCloser, error)
	// Put writes a whole document.
	Put(path string, data []byte) error
	// Sync puts everything appended so far on disk.
	Sync() error
	// Counts tells what a layer has written and dropped so far.
	Counts(layer string) schema.LayerCounts
}
