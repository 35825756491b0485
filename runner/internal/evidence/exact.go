package evidence

import (
	"bytes"
	"errors"
	"io"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// Exact records contents that have a digest: unchanged, or not at all if they contain a secret.
type Exact struct {
	to Recorder
	r  *redact.Redactor
}

// Secret reports whether a content contains a secret, which counts as redacted. The caller must not record the
// content.
func (e Exact) Secret(content []byte) bool {
	return e.r != nil && !bytes.Equal(e.r.Text(schema.ChangesPath, content), content)
}

// Create opens a member for contents without secrets.
func (e Exact) Create(path string) (io.WriteCloser, error) { return e.to.Create(path) }

var errSecret = errors.New("it holds a secret")

// Put writes a member. If it contains a secret, that is an error.
func (e Exact) Put(path string, data []byte) error {
	if e.Secret(data) {
		return errSecret
	}
	return e.to.Put(path, data)
}
