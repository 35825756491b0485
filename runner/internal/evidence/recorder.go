package evidence

import (
	"io"

	"github.com/assay-run/assay-run/schema"
)

// Recorder records what a run, recorded or served, leaves. It is the only way into a bundle. archive.Spool implements
// it, and so does redacted, in front of another Recorder. All methods are safe for concurrent use.
type Recorder interface {
	// Append adds one line to a layer, named by its path in the bundle. encode appends the line's JSON, without the
	// newline, to dst, with the given sequence number: only the recorder sets seq, with one lock per layer. After a
	// write error the layer stays broken: every further line is counted as dropped and the same error is returned.
	Append(layer string, encode func(dst []byte, seq uint64) []byte) error
	// AppendBatch adds n lines in one write, without other lines in between; encode appends line i. Either all are
	// written or none.
	AppendBatch(layer string, n int, encode func(dst []byte, seq uint64, i int) []byte) error
	// Create opens a member that is written in pieces, such as schema.StdoutPath or schema.SurfacePath.
	Create(path string) (io.WriteCloser, error)
	// Put writes a complete document.
	Put(path string, data []byte) error
	// Sync writes everything appended so far to disk.
	Sync() error
	// Failed returns the first error in writing a layer or a member of Create; nil if all was written.
	Failed() error
	// Counts returns what a layer has written and dropped so far.
	Counts(layer string) schema.LayerCounts
}
