package surface

import (
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// made is a file or directory that the run made under a name that looks random,
// and that is still there.
type made struct {
	name string // what the surface has in place of its path, if it is random
	// sure: its making shows that it is. Otherwise what becomes of it decides: one
	// that the run removes, or gives another name, was random; one that is still
	// there at the end has the name that somebody chose. Until then paths at and
	// below it wait in held.
	sure bool
	held []string
	// maker is set where a random name looks like a word once in twelve times:
	// Python tries a temporary directory with a file of such a name, makes it,
	// writes to it and removes it. It is the process instance that made it; what
	// anything else touches has the name that it was given.
	maker uint64
}

// Bounds: how many of them are remembered at a time, how many paths wait for one,
// and how many words of arguments are remembered.
const (
	maxMade  = 8192
	maxHeld  = 256
	maxWords = 1 << 16
)

// remember takes note of what e makes.
func (b *Builder) remember(e *schema.KernelEvent) {
	if len(b.temp) >= maxMade || e.Failed() {
		return
	}
	n := normalizePath(e.Value, e.PID)
	var m made
	if m.name, m.sure = ownPID(n, e.PID); !m.sure {
		if e.Kind == schema.KindOpen {
			m.name, m.sure = madeByMkstemp(n, e.Flags, e.Mode)
		} else {
			m.name = randomEnd(n, 6, alnum) // perhaps by mkdtemp
		}
		if b.spelled(n, m.name) {
			return
		}
	}
	if base := n[strings.LastIndexByte(n, '/')+1:]; e.Kind == schema.KindMkdir {
		b.dirs++
	} else if !m.sure && len(base) == 8 && looksChosen(base) {
		m.maker = e.ExecID
	}
	b.temp[n] = m
}

// find returns what of all that was made path is, or is below.
func (b *Builder) find(path string) (root string, m made, ok bool) {
	if m, ok = b.temp[path]; ok || b.dirs == 0 {
		return path, m, ok
	}
	for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
		if m, ok = b.temp[path[:i]]; ok {
			return path[:i], m, true
		}
	}
	return "", made{}, false
}

// path adds a path of an event.
func (b *Builder) path(e *schema.KernelEvent, p string) error {
	n := nameless(normalizePath(p, e.PID), e.Marks)
	root, m, ok := b.find(n)
	past, was := b.past[n]
	switch {
	case e.Repeat && was: // of before it was gone
		n = past
	case !ok:
		n, _ = ownPID(n, e.PID)
	case m.sure:
		n = m.name + n[len(root):]
	case m.maker != 0 && !m.tries(e), len(m.held) == maxHeld:
		if err := b.decide(root, root); err != nil {
			return err
		}
	case slices.Contains(m.held, n):
		return nil
	default:
		m.held = append(m.held, e.Name(n))
		b.temp[root] = m
		return nil
	}
	return b.paths.add(b.clean(e.Name(n)))
}

// tries reports whether e may be a part of Python's try of a directory.
func (m *made) tries(e *schema.KernelEvent) bool {
	return m.maker == e.ExecID && (e.Kind == schema.KindOpen || e.Kind == schema.KindWrite || e.Kind == schema.KindUnlink)
}

// gone takes note that a path is no longer there.
func (b *Builder) gone(path string) error {
	m, ok := b.temp[path]
	if !ok {
		return nil
	}
	if len(b.past) < maxMade {
		b.past[path] = m.name
	}
	return b.decide(path, m.name)
}

// decide adds what waits for path, under the name that it has in the surface, and
// forgets it.
func (b *Builder) decide(path, name string) error {
	for _, h := range b.temp[path].held {
		if err := b.paths.add(b.clean(name + h[len(path):])); err != nil {
			return err
		}
	}
	delete(b.temp, path)
	return nil
}

// decideAll adds what still waits: nothing removed it.
func (b *Builder) decideAll() error {
	for path := range b.temp {
		if err := b.decide(path, path); err != nil {
			return err
		}
	}
	return nil
}

// hear remembers the ends of the words of a program's arguments: a name that was
// spelled there before it was made is no chance.
func (b *Builder) hear(argv []string) {
	for _, arg := range argv {
		for _, word := range strings.FieldsFunc(arg, func(r rune) bool { return !strings.ContainsRune(alnum, r) }) {
			if len(word) >= 6 && len(b.words) < maxWords {
				b.words[word[len(word)-6:]] = struct{}{}
			}
		}
	}
}

// spelled reports whether the piece of path that is <random> in name is no chance;
// so it is where name is empty.
func (b *Builder) spelled(path, name string) bool {
	const random = "<random>"
	at := strings.LastIndex(name, random)
	if at < 0 {
		return true
	}
	end := at + len(path) - len(name) + len(random)
	_, ok := b.words[path[end-6:end]]
	return ok
}
