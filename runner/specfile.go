package runner

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/internal/strict"
)

// maxSpecFile bounds a spec file, in bytes: no command line is longer than
// the kernel's own 2 MiB for arguments and environment.
const maxSpecFile = 4 << 20

// fields is a Spec without its methods: its tags say how it is written.
type fields Spec

// LoadFile overlays s with the file at path, which may be a pipe. The notation
// is told by the name (.json, .yaml, .yml), else by the first character. Keys it
// does not know and keys given twice are errors that name the file and the line.
// A relative workdir, contract, policy or log is relative to the file.
func (s *Spec) LoadFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSpecFile+1))
	if err != nil {
		return fmt.Errorf("read spec %s: %w", path, err)
	}
	if len(data) > maxSpecFile {
		return fmt.Errorf("read spec %s: larger than %d bytes", path, maxSpecFile)
	}
	before := *s
	for _, p := range s.pathFields() {
		*p = "" // what the file says is relative to the file
	}
	if err := strict.Decode(data, strict.FormatOf(path, data), (*fields)(s)); err != nil {
		return fmt.Errorf("spec %s: %w", path, err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("spec %s: %w", path, err)
	}
	for i, p := range s.pathFields() {
		switch {
		case *p == "":
			*p = *before.pathFields()[i]
		case !filepath.IsAbs(*p):
			*p = filepath.Join(dir, *p)
		}
	}
	return nil
}

// pathFields are the fields that name files.
func (s *Spec) pathFields() []*string {
	return []*string{&s.Workdir, &s.Contract, &s.SDKEventLog, &s.PolicyDecisionLog, &s.Policy}
}

// Absolute is the spec with paths that mean the same in any directory. The
// command's directory is filled in.
func (s *Spec) Absolute() (*Spec, error) {
	dir, err := s.workdir()
	if err != nil {
		return nil, err
	}
	abs := *s
	for _, p := range abs.pathFields() {
		if *p == "" {
			continue
		}
		if *p, err = filepath.Abs(*p); err != nil {
			return nil, fmt.Errorf("path %q: %w", *p, err)
		}
	}
	abs.Workdir = dir
	return &abs, nil
}

// UnmarshalJSON overlays s with a spec as it is written in a file; a zero Spec
// gets the defaults first, as those of New. Keys that it does not know and keys
// given twice are errors that name the key.
func (s *Spec) UnmarshalJSON(data []byte) error {
	if reflect.ValueOf(s).Elem().IsZero() {
		*s = *New()
	}
	return strict.Decode(data, strict.JSON, (*fields)(s))
}

// MarshalJSON writes the spec as LoadFile reads it, without what is zero, and
// with the values of Env. Strings that are not UTF-8 are an error.
func (s Spec) MarshalJSON() ([]byte, error) {
	return json.Marshal(fields(s), json.Deterministic(true), json.WithMarshalers(duration()))
}

// duration writes a time as strict.Decode reads it.
var duration = sync.OnceValue(func() *json.Marshalers {
	return json.MarshalToFunc(func(e *jsontext.Encoder, d time.Duration) error {
		return e.WriteToken(jsontext.String(d.String()))
	})
})

// withoutEnv is the spec for the bundle, which never has a value of Env.
func (s *Spec) withoutEnv() ([]byte, error) {
	return json.Marshal(struct {
		fields
		Env struct{} `json:"env,omitzero"`
	}{fields: fields(*s)}, json.Deterministic(true), json.WithMarshalers(duration()), jsontext.AllowInvalidUTF8(true))
}
