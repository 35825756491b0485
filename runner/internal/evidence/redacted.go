package evidence

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// redacted is a Recorder that removes secrets before it passes on anything: every line, document and captured byte.
type redacted struct {
	Recorder
	r    *redact.Redactor
	head []byte // the start of each line of the kernel layer

	appends *sync.Pool // of *oneAppend
}

func newRedacted(to Recorder, r *redact.Redactor, runID string) redacted {
	return redacted{
		to, r, fmt.Appendf(nil, `{"schema":"%s","run_id":"%s","seq":`, schema.KernelEventV1, runID),
		&sync.Pool{New: newAppend},
	}
}

// Append redacts the line that encode makes.
func (r redacted) Append(layer string, encode func(dst []byte, seq uint64) []byte) error {
	a := r.appends.Get().(*oneAppend)
	a.r, a.layer, a.encode = r, layer, encode
	err := r.Recorder.Append(layer, a.redact)
	a.encode = nil
	r.appends.Put(a)
	return err
}

// oneAppend is the reusable state of a call of Append, which is called for each event.
type oneAppend struct {
	r      redacted
	layer  string
	encode func(dst []byte, seq uint64) []byte
	redact func(dst []byte, seq uint64) []byte // redacts the line
}

func newAppend() any {
	a := new(oneAppend)
	a.redact = func(dst []byte, seq uint64) []byte { return a.r.line(a.layer, a.encode(dst, seq), len(dst)) }
	return a
}

// line redacts what was appended to dst after at.
func (r redacted) line(layer string, dst []byte, at int) []byte {
	made := dst[at:]
	head := 0
	if bytes.HasPrefix(made, r.head) {
		head = len(r.head)
	}
	clean := r.r.Line(layer, made, head)
	if len(made) == 0 || len(clean) == len(made) && &clean[0] == &made[0] {
		return dst
	}
	return append(dst[:at], clean...)
}

// AppendBatch redacts each line that encode makes.
func (r redacted) AppendBatch(layer string, n int, encode func(dst []byte, seq uint64, i int) []byte) error {
	return r.Recorder.AppendBatch(layer, n, func(dst []byte, seq uint64, i int) []byte {
		return r.line(layer, encode(dst, seq, i), len(dst))
	})
}

// Create redacts a stream, including secrets that are split over writes.
func (r redacted) Create(path string) (io.WriteCloser, error) {
	w, err := r.Recorder.Create(path)
	if err != nil {
		return nil, err
	}
	return r.r.Writer(path, w), nil
}

// Put redacts a document. A blob is named by its digest, so its text must be redacted before with RedactText or
// RedactJSON.
func (r redacted) Put(path string, data []byte) error {
	return r.Recorder.Put(path, r.r.JSON(path, data))
}

// RedactText and RedactJSON remove the secrets from what is cut, hashed or compared before it is recorded. RedactJSON
// accepts any JSON value.
func (r redacted) RedactText(path string, b []byte) []byte { return r.r.Text(path, b) }
func (r redacted) RedactJSON(path string, b []byte) []byte { return r.r.Value(path, b) }

// receipt returns what observation-health.json says about the redaction.
func receipt(r *redact.Redactor) *schema.Redaction {
	if r == nil {
		return &schema.Redaction{Mode: schema.RedactionDisabled, ByRule: map[string]uint64{},
			ByField: map[string]uint64{}}
	}
	total, rules, fields := r.Counts()
	scope, id := r.Key()
	return &schema.Redaction{
		Mode: schema.RedactionEnabled, RedactedCount: total, ByRule: rules, ByField: fields, KeyScope: scope, KeyID: id,
		NotSearched: r.NotSearched(),
	}
}
