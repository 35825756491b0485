package archive

import (
	"github.com/assay-run/assay-run/schema"
)

// complete adds what a bundle must hold and the spool does not: empty layers,
// run.json without its output, and missing documents.
func complete(dir string, run schema.Run, sources []source) ([]source, error) {
	have := map[string]bool{}
	for _, src := range sources {
		have[src.path] = true
	}
	add := func(path string, v any) error {
		data, err := schema.Document(v)
		sources = append(sources, source{path: path, size: int64(len(data)), data: data})
		return err
	}
	for _, p := range schema.Layers {
		if !have[p] {
			sources = append(sources, source{path: p})
		}
	}
	run.Output = ""
	if err := add(schema.RunPath, run); err != nil {
		return nil, err
	}
	return sources, nil
}
