package archive

import (
	"fmt"
	"iter"

	"github.com/assay-run/assay-run/schema"
)

// KernelEvents decodes lines of the kernel layer. An event is valid until the
// next one. An error names the line; there is nothing after it.
func KernelEvents(lines iter.Seq2[[]byte, error]) iter.Seq2[*schema.KernelEvent, error] {
	return func(yield func(*schema.KernelEvent, error) bool) {
		var e schema.KernelEvent
		n := 0
		for line, err := range lines {
			n++
			if err == nil {
				err = schema.DecodeKernelEvent(line, &e)
			}
			if err != nil {
				yield(nil, fmt.Errorf("%s: line %d: %w", schema.KernelPath, n, err))
				return
			}
			if !yield(&e, nil) {
				return
			}
		}
	}
}
