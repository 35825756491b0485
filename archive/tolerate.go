package archive

import (
	"errors"
	"iter"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// Tolerate makes the Reader read what it can of a bundle that does not verify: it
// takes members whose digest is wrong, skips those that the manifest does not list
// and up to 100 invalid lines of a layer, ends where the archive is damaged, and leaves documents empty
// that are missing, invalid or beyond the damage. Call it before reading, and only
// with the report of [Verify] at hand: the Reader itself no longer says what is
// wrong.
func (r *Reader) Tolerate() { r.tolerant = true }

// validLines are the lines of a layer up to the damage, without those that are
// invalid. Behind too many of these it ends.
func (m *Member) validLines() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		checker, err := schema.NewLineChecker(lineSchemas(m.Path)...)
		if err != nil {
			yield(nil, err)
			return
		}
		invalid := 0
		valid := func(line []byte) bool {
			_, err := checker.Check(line)
			if err == nil && m.Path == schema.EventsPath {
				err = json.Unmarshal(line, new(schema.Event)) // numbers that fit
			}
			return err == nil
		}
		for line, err := range m.lines() {
			if isProblem(err) {
				return
			}
			if err == nil && !valid(line) {
				if invalid++; invalid >= maxProblems {
					return
				}
				continue
			}
			if !yield(line, err) {
				return
			}
		}
	}
}

// isProblem tells what is wrong with a bundle from what keeps it from being read.
func isProblem(err error) bool {
	var p *Problem
	return errors.As(err, &p)
}
