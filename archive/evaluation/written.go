package evaluation

import "strings"

// written are files that the run made or wrote, and of each whether something else than a manager of packages did.
type written struct {
	paths map[string]bool
	bytes int
	full  bool
}

// maxWritten bounds what is kept of their names, in bytes. Beyond it any file may have been written.
const maxWritten = 16 << 20

func (w *written) add(name string, own bool) {
	if w.full {
		return
	}
	if known, ok := w.paths[name]; ok {
		if own && !known {
			w.paths[name] = true
		}
		return
	}
	if w.bytes += len(name) + 32; w.bytes > maxWritten {
		w.full = true
		return
	}
	if w.paths == nil {
		w.paths = map[string]bool{}
	}
	w.paths[strings.Clone(name)] = own
}

func (w *written) has(name string) bool {
	_, ok := w.paths[name]
	return name != "" && (w.full || ok)
}

func (w *written) own(name string) bool { return name != "" && (w.full || w.paths[name]) }
