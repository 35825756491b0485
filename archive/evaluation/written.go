package evaluation

import "strings"

// written is the set of files that the run made or wrote.
type written struct {
	paths map[string]bool // true if another program than a package manager wrote the file
	bytes int             // size of the names
	full  bool            // more than maxWritten: any file may have been written
}

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

// has reports whether the run may have written the file.
func (w *written) has(name string) bool {
	_, ok := w.paths[name]
	return name != "" && (w.full || ok)
}

// own reports whether something else than a package manager may have written the file.
func (w *written) own(name string) bool { return name != "" && (w.full || w.paths[name]) }
