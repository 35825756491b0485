package evidence

import (
	"bytes"
	"errors"
	"io"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// Exact records contents that a digest names: as they are, or not at all if they hold a secret.
type Exact struct {
	to Recorder
	r  *redact.Redactor
}

// Secret reports whether a content holds a secret, which counts as taken out. Whoever asks does not record it.
func (e Exact) Secret(content []byte) bool {
	return e.r != nil && !bytes.Equal(e.r.Text(schema.ChangesPath, content), content)
}

// Create opens a member for contents that hold no secret.
func (e Exact) Create(path string) (io.WriteCloser, error) { return e.to.Create(path) }

var errSecret = errors.New("it holds a secret")

// Put writes a member. One that holds a secret is an error.
func (e Exact) Put(path string, data []byte) error {
	if e.Secret(data) {
		return errSecret
	}
	return e.to.Put(path, data)
}
