package surface

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// made is a file or directory that the run made, where there was none, under a name
// that looks random. What becomes of it decides: one that the run removes, or gives
// another name, was random; one that is still there at the end has the name that
// somebody chose. Until then paths at and below it wait in held.
type made struct {
	base string // what the surface has in place of the last part of its path, if it is random
	sure bool   // its making shows that it is: nothing waits
	held map[string]struct{}
	// maker is set where a random name looks like a word once in twelve times:
	// Python tries a temporary directory with a file of such a name, makes it,
	// writes to it and removes it. It is the process instance that made it; what
	// anything else touches has the name that it was given.
	maker uint64
}

// Bounds: how many of them are remembered at a time, how many paths wait for all of
// them, and how many words of arguments are remembered.
const (
	maxMade  = 8192
	maxHeld  = 1 << 15
	maxWords = 1 << 16
)

// remember takes note of what e makes.
func (b *Builder) remember(e *schema.KernelEvent) {
	if len(b.temp) >= maxMade || e.Failed() || !e.Makes() && !b.renamesMade(e) {
		return
	}
	path := e.Value
	if e.Kind == schema.KindLink || e.Kind == schema.KindRename {
		path = e.Target
	}
	n := plainPath(path, e.PID)
	dir, base := cutLast(n)
	if name := byName(n, len(dir), len(n)); name != n { // a known maker's, whatever becomes of it
		b.madePiece(randomPiece(base, name[len(dir):]))
		return
	}
	var m made
	if name := byForm(base, inHome(dir), b.spelled); name != base {
		m.base, m.sure = cmp.Or(ownPID(name, e.PID), name), true
		for start, end := range unique(base, true) {
			b.madePiece(base[start:end])
		}
	} else if name := byPID(base, strconv.FormatUint(uint64(e.PID), 10)); name != "" {
		m.base, m.sure = name, true
	} else if m.base = b.generated(e, n); m.base == "" {
		return
	}
	if e.Kind == schema.KindMkdir {
		b.dirs++
	} else if !m.sure && len(base) == 8 && looksChosen(base) {
		m.maker = e.ExecID
	}
	b.temp[n] = m
}

// generated returns the last part of path, which e makes, as the surface has it if it is gone at the
// end; "" if nobody makes such names by chance, or the event does not show that nothing was there.
func (b *Builder) generated(e *schema.KernelEvent, path string) (name string) {
	dir, base := cutLast(path)
	if name := byPlace(dir, base, true); name != "" {
		return name
	}
	if e.Kind == schema.KindRename {
		return ""
	}
	if e.Kind == schema.KindOpen && e.Flags&openExcl == 0 {
		return b.beside(dir, base)
	}
	if name := ownPID(base, e.PID); name != "" {
		return name
	}
	_, perl := b.perls[e.ExecID]
	if e.Kind == schema.KindOpen {
		name = madeByMkstemp(path, perl, e.Flags, e.Mode)
	} else {
		name = madeByMkdtemp(path, perl, e.Mode)
	}
	if name == "" {
		return ""
	}
	piece := randomPiece(base, name)
	if b.spelled(piece) {
		return ""
	}
	b.madePiece(piece)
	return name
}

// renamesMade reports whether e gives another name to what the run made under a name
// that is random by its form: the new one often has a part of it.
func (b *Builder) renamesMade(e *schema.KernelEvent) bool {
	return e.Kind == schema.KindRename && b.temp[plainPath(e.Value, e.PID)].sure
}

// cutLast cuts behind the last slash.
func cutLast(path string) (dir, base string) {
	i := strings.LastIndexByte(path, '/') + 1
	return path[:i], path[i:]
}

// find returns which of all that was made path is, or is below.
func (b *Builder) find(path string) (root string, m made, ok bool) {
	return innermost(b.temp, path, b.dirs > 0)
}

// innermost finds path in what, or the longest of its parents.
func innermost[T any](what map[string]T, path string, parents bool) (root string, v T, ok bool) {
	if v, ok = what[path]; ok {
		return path, v, true
	}
	for i := strings.LastIndexByte(path, '/'); parents && i > 0; i = strings.LastIndexByte(path[:i], '/') {
		if v, ok = what[path[:i]]; ok {
			return path[:i], v, true
		}
	}
	return "", v, false
}

// path adds a path of an event.
func (b *Builder) path(e *schema.KernelEvent, p string) error {
	n := nameless(plainPath(p, e.PID), e.Marks)
	root, m, ok := b.find(n)
	if ok && m.maker != 0 && !m.tries(e) {
		if err := b.decide(root, ""); err != nil {
			return err
		}
		ok = false
	}
	// What was made is spoken of after it was gone, too.
	gone := e.Repeat || e.Marks&schema.MarkDeleted != 0 || e.Result == enoent
	if !ok {
		if name := b.strangers(e, n); name != n {
			return b.put(e.Name(name), strings.LastIndexByte(name, '/'), gone)
		}
	}
	return b.put(e.Name(n), len(n), gone)
}

// beside is a file that is named after another, which the run made exclusively: further files of
// gcc's, and what is called as a directory with an end of its own.
func (b *Builder) beside(dir, base string) string {
	if name := byMaker(base, true); name != "" && b.ours(base, name) {
		return name
	}
	for i := len(base) - 1; i > 0; i-- {
		if strings.IndexByte(".-_", base[i]) < 0 {
			continue
		}
		if m, ok := b.temp[dir+base[:i]]; ok && !m.sure {
			return m.base + base[i:]
		}
	}
	return ""
}

// ours reports whether the run made a file with the piece that is <random> in name.
func (b *Builder) ours(base, name string) bool {
	_, ok := b.pieces[randomPiece(base, name)]
	return ok
}

// strangers returns a path that the run did not make without what its last part has of the process
// itself, or of chance where there is nothing.
func (b *Builder) strangers(e *schema.KernelEvent, path string) string {
	dir, base := cutLast(path)
	if name := byPID(base, strconv.FormatUint(uint64(e.PID), 10)); name != "" {
		return dir + name
	}
	if e.Kind == schema.KindOpen && e.Result == enoent {
		// not even its directory is there
		if name := byMaker(base, true); name != "" && (e.Flags&openExcl != 0 || b.ours(base, name)) {
			return dir + name
		}
		if below(temporaryDirs, path) {
			parts := strings.Split(path, "/")
			for i := range parts {
				parts[i] = byForm(parts[i], false, b.spelled)
			}
			return strings.Join(parts, "/")
		}
	}
	return path
}

// executed gives a program that is executed, and the directories that it is in, the names that they
// were given. A script is a program too: its interpreter is the value, and the script the target.
func (b *Builder) executed(e *schema.KernelEvent) error {
	script := e.Target
	if script != "" && script[0] != '/' {
		script = path.Join(e.Cwd, script)
	}
	for _, p := range []string{plainPath(e.Value, e.PID), plainPath(script, e.PID)} {
		for i := len(p); i > 0 && len(b.temp) > 0; i = strings.LastIndexByte(p[:i], '/') {
			if m, ok := b.temp[p[:i]]; ok && !m.sure {
				if err := b.decide(p[:i], ""); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// put adds the path s, whose end from at on has been settled. gone says that the rest
// may be something that was there before.
func (b *Builder) put(s string, at int, gone bool) error {
	for {
		root, m, ok := b.find(s[:max(at, 0)])
		base := m.base
		if gone {
			if was, name, is := innermost(b.past, s[:max(at, 0)], true); is && len(was) > len(root) {
				root, base, ok, m = was, name, true, made{sure: true}
			}
		}
		if !ok {
			return b.paths.add(b.clean(byName(s, 0, at)))
		}
		s = byName(s, len(root), at)
		if !m.sure && b.held == maxHeld {
			if err := b.decide(root, ""); err != nil {
				return err
			}
			_, base = cutLast(root) // it has the name that it was given
		} else if !m.sure {
			if m.held == nil {
				m.held = make(map[string]struct{})
				b.temp[root] = m
			}
			if _, ok := m.held[s]; !ok {
				m.held[strings.Clone(s)] = struct{}{} // s may be part of a whole line
				b.held++
			}
			return nil
		}
		dir, _ := cutLast(root)
		s, at = dir+base+s[len(root):], len(dir)-1
	}
}

// tries reports whether e may be a part of Python's try of a directory.
func (m *made) tries(e *schema.KernelEvent) bool {
	return m.maker == e.ExecID &&
		(e.Kind == schema.KindOpen || e.Kind == schema.KindWrite || e.Kind == schema.KindUnlink)
}

// gone takes note that a path is no longer there.
func (b *Builder) gone(path string) error {
	m, ok := b.temp[path]
	if !ok {
		return nil
	}
	if len(b.past) < maxMade {
		b.past[path] = m.base
	}
	return b.decide(path, m.base)
}

// decide adds what waits for root, whose last part is base in the surface, or what
// it is where base is empty, and forgets it.
func (b *Builder) decide(root, base string) error {
	dir, own := cutLast(root)
	if base == "" {
		base = own
	}
	held := b.temp[root].held
	delete(b.temp, root)
	b.held -= len(held)
	for h := range held {
		if err := b.put(dir+base+h[len(root):], len(dir)-1, true); err != nil {
			return err
		}
	}
	return nil
}

// decideAll adds what still waits: nothing removed it. What is in a directory that
// was made comes before the directory.
func (b *Builder) decideAll() error {
	byLength := func(a, c string) int { return len(c) - len(a) }
	for _, path := range slices.SortedFunc(maps.Keys(b.temp), byLength) {
		base := ""
		if m := b.temp[path]; m.sure {
			base = m.base
		}
		if err := b.decide(path, base); err != nil {
			return err
		}
	}
	return nil
}

// hear remembers the ends of the words of a program's arguments: a name that was
// spelled there before it was made is no chance, unless it is that of another file
// that was.
func (b *Builder) hear(argv []string) {
	for _, arg := range argv {
		for start, end := range unique(arg, true) {
			b.word(arg[start:end])
		}
		for _, word := range strings.FieldsFunc(arg, func(r rune) bool { return !strings.ContainsRune(alnum, r) }) {
			if len(word) >= 6 {
				b.word(word[len(word)-6:])
			}
		}
	}
}

func (b *Builder) word(piece string) {
	if _, ok := b.pieces[piece]; !ok && len(b.words) < maxWords {
		b.words[strings.Clone(piece)] = struct{}{} // it is part of a whole line
	}
}

// madePiece takes note of a piece of a name that the run made.
func (b *Builder) madePiece(piece string) {
	if piece != "" && len(b.pieces) < maxWords {
		b.pieces[strings.Clone(piece)] = struct{}{}
	}
}

func (b *Builder) spelled(piece string) bool {
	_, ok := b.words[piece]
	return ok
}

// randomPiece is the end of the piece of base that is <random> in name, "" if none is.
func randomPiece(base, name string) string {
	const random = "<random>"
	i := strings.LastIndex(name, random)
	if i < 0 {
		return ""
	}
	end := i + len(random) + len(base) - len(name)
	return base[max(end-6, 0):max(end, 0)]
}
