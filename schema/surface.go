package schema

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// CapabilitySurface is capability-surface.json: sorted sets without repeats of
// what the run touched, and nothing about order or number.
type CapabilitySurface struct {
	Schema           string   `json:"schema"` // CapabilitySurfaceV0
	RunID            string   `json:"run_id"`
	FilesystemPaths  []string `json:"filesystem_paths"`
	NetworkEndpoints []string `json:"network_endpoints"`
	ProcessExecs     []string `json:"process_execs"`
	MCPTools         []string `json:"mcp_tools"`
	PolicyDecisions  []string `json:"policy_decisions"`
}

// UnsortedError is the error of [ReadSurface] for a list that is no sorted set.
type UnsortedError struct {
	List  string // filesystem_paths, ...
	Index int    // of the first string that does not come after the one before it
}

func (e *UnsortedError) Error() string {
	return fmt.Sprintf("%s[%d] does not come after the one before it: the list must be a sorted set", e.List, e.Index)
}

// ReadSurface reads a capability-surface.json as strictly as its JSON Schema, without
// holding it in memory: it may have 64 MiB. item is called with each string of
// each list, in their order; nil is fine.
//
// Errors wrap [ErrSyntax], [ErrDuplicateKey] or [ErrSchema],
// or are those of r. Where all that is wrong is the order of a list, the error is
// the first [UnsortedError], and the document was read to its end.
func ReadSurface(r io.Reader, item func(list, value string)) (runID string, err error) {
	d := surfaceReader{in: jsontext.NewDecoder(r), item: item, missing: map[string]bool{"schema": true, "run_id": true}}
	for _, list := range surfaceLists {
		d.missing[list] = true
	}
	if err := d.document(); err != nil {
		if errors.Is(err, ErrSchema) {
			err = cmp.Or(d.rest(), err)
		}
		return "", d.classify(err)
	}
	if d.unsorted != nil {
		return d.runID, d.unsorted
	}
	return d.runID, nil
}

var surfaceLists = []string{"filesystem_paths", "network_endpoints", "process_execs", "mcp_tools", "policy_decisions"}

var errMore = fmt.Errorf("%w: more than one value", ErrSyntax)

type surfaceReader struct {
	in       *jsontext.Decoder
	item     func(list, value string)
	missing  map[string]bool
	runID    string
	unsorted *UnsortedError
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSchema, oneLine(fmt.Sprintf(format, args...)))
}

// rest reads on to the end: what is no JSON is that first of all.
func (d *surfaceReader) rest() error {
	for {
		ended := d.in.StackDepth() == 0
		switch t, err := d.in.ReadToken(); {
		case err == io.EOF && ended:
			return nil
		case err != nil:
			return err
		case ended:
			return errMore
		case t.Kind() == '0':
			if err := checkNumber(t.String()); err != nil {
				return err
			}
		}
	}
}

// classify tells what is no JSON from what cannot be read.
func (d *surfaceReader) classify(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return fmt.Errorf("%w at byte %d", ErrDuplicateKey, d.in.InputOffset())
	case errors.As(err, &syntax):
		return fmt.Errorf("%w at byte %d: %v", ErrSyntax, d.in.InputOffset(), syntax.Err)
	case err == io.EOF:
		return fmt.Errorf("%w: it is empty", ErrSyntax)
	}
	return err
}

func (d *surfaceReader) document() error {
	if err := d.open('{'); err != nil {
		return err
	}
	for d.in.PeekKind() != '}' {
		key, err := d.in.ReadToken()
		if err != nil {
			return err
		}
		if err := d.member(key.String()); err != nil {
			return err
		}
	}
	if _, err := d.in.ReadToken(); err != nil {
		return err
	}
	for key := range d.missing {
		return refuse("%s is missing", key)
	}
	switch _, err := d.in.ReadToken(); err {
	case io.EOF:
		return nil
	case nil:
		return errMore
	default:
		return err
	}
}

func (d *surfaceReader) open(kind jsontext.Kind) error {
	t, err := d.in.ReadToken()
	if err == nil && t.Kind() != kind {
		err = refuse("%v stands where %v is due", t.Kind(), kind)
	}
	return err
}

func (d *surfaceReader) member(key string) error {
	delete(d.missing, key)
	if slices.Contains(surfaceLists, key) {
		return d.list(key)
	}
	switch key {
	case "schema":
		s, err := d.text()
		if err == nil && s != CapabilitySurfaceV0 {
			err = refuse("schema is %.100q", s)
		}
		return err
	case "run_id":
		s, err := d.text()
		if err == nil && !isRunID(s) || len(s) > 128 {
			err = refuse("run_id is %.128q", s)
		}
		d.runID = s
		return err
	}
	return lineReader{d.in}.skip()
}

func (d *surfaceReader) text() (string, error) {
	t, err := d.in.ReadToken()
	if err != nil {
		return "", err
	}
	if t.Kind() != '"' {
		return "", refuse("%v stands where a text is due", t.Kind())
	}
	return t.String(), nil
}

func (d *surfaceReader) list(key string) error {
	if err := d.open('['); err != nil {
		return err
	}
	last := ""
	for i := 0; d.in.PeekKind() != ']'; i++ {
		s, err := d.text()
		if err != nil {
			return err
		}
		if i > 0 && s <= last && d.unsorted == nil {
			d.unsorted = &UnsortedError{key, i}
		}
		if last = s; d.item != nil {
			d.item(key, s)
		}
	}
	_, err := d.in.ReadToken()
	return err
}
