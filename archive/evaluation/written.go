package evaluation

import "github.com/assay-run/assay-run/schema/facts"

// written knows which files the run made or wrote before the line that is judged. The note of a file is true if
// another program than a package manager wrote it.
type written struct {
	facts *facts.Reader
	now   []writing // by the line that is judged
}

// writing is a file that the line that is judged made or wrote.
type writing struct {
	name string
	own  bool
}

func newWritten() written { return written{facts: facts.NewReader(false)} }

// add notes that the line that is judged made or wrote a file.
func (w *written) add(name string, own bool) { w.now = append(w.now, writing{name, own}) }

// next has to be called after a line was judged.
func (w *written) next() {
	l := w.facts.Apply()
	for i := range l.Acts {
		if a := &l.Acts[i]; a.File != nil && a.Replaced != nil && a.Replaced.Note == true {
			a.File.Note = true // a counted line may still be about the file before
		}
	}
	for _, x := range w.now {
		if f := w.facts.File(x.name); f != nil && x.own {
			f.Note = true
		}
	}
	w.now = w.now[:0]
}

// has reports whether the run may have written the file.
func (w *written) has(name string) bool { return name != "" && w.facts.MayHaveMade(name) }

// wrote reports whether something else than a package manager wrote the file for certain.
func (w *written) wrote(name string) bool {
	f := w.facts.File(name)
	return f != nil && f.Note == true
}

// own reports whether something else than a package manager may have written the file.
func (w *written) own(name string) bool {
	if name == "" {
		return false
	}
	f := w.facts.File(name)
	return w.facts.MayMake() || f != nil && f.Note == true
}
