package facts

import (
	"path"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// File is a file or directory that the run made, changed or gave a name. It is the same File whatever its names are.
type File struct {
	// First is the name under which the file was first seen.
	First string
	// Line is the sequence number of the line that first made, wrote or named it, and By the instance that did so;
	// nil if that is not known.
	Line uint64
	By   *Instance
	// Last is the instance that wrote the file last, or that removed, moved or changed it if none wrote it; nil if that
	// is not known. See [Reader.Changer].
	Last *Instance
	// Link is the content of a symbolic link; empty for other files.
	Link string
	// Note is for the reader of the lines, which keeps there what only it knows of the file.
	Note any
	// Wrote is true if the run made the file or wrote its content, or may have.
	Wrote bool
	// Directory is true if the run made it as a directory.
	Directory bool
	// Restored is true if the recorder, a check or a container engine was the last to write it.
	Restored bool
}

// Name is a name in a directory. It moves with the directory, and with its own renames.
type Name struct {
	parent *Name
	name   string
	file   *File  // nil: nothing is known of it but of what is below it
	line   uint64 // sequence number of the last line by which the run moved or linked something to it
	// over is what was mounted on the name; nil for none.
	over *Name
	// also is where the name led once, or perhaps leads: the directory that was renamed.
	also *Name
	// given is true if the run gave the file this name.
	given bool
	// gone is true if the name was removed or renamed. Lines about it may still come.
	gone bool
	// left is true if a rename took what was here: also is where that is now.
	left bool
}

// slot is a place in a directory.
type slot struct {
	in   *Name
	name string
}

// files is the tree of the names that the run made, gave or changed.
type files struct {
	root           Name
	entries        map[slot]*Name
	notes          map[*Name]any // of the reader
	bytes          int
	beyond         uint64 // names that were not kept
	links, moves   uint64 // hard links and renames that were not followed for that
	all            bool   // keep names that were removed or changed in another way, too
	last, lastMade directory
}

// directory is the last directory of a search, with its entry; nil if it has none.
type directory struct {
	path  string
	at    *Name
	valid bool
}

const (
	// maxNameBytes limits the size of the tree. About 160,000 names fit.
	maxNameBytes = 32 << 20
	// entryBytes is what an entry takes beside its name.
	entryBytes = 190
	// maxWays limits how many directories are tried for one name.
	maxWays = 8
)

// mounted returns the directory that an entry stands for, which is another one where something is mounted on it.
func (e *Name) mounted() *Name {
	for n := 0; e.over != nil && n < maxWays; n++ {
		e = e.over
	}
	return e
}

// child returns the entry of a name in a directory; nil if there is none. A name that is gone is returned only if the
// directory led nowhere else.
func (f *files) child(in *Name, name string) (found *Name) {
	for n := 0; in != nil && n < maxWays; n++ {
		for _, dir := range [...]*Name{in.mounted(), in} {
			if e := f.entries[slot{dir, name}]; e != nil && !e.gone {
				return e
			} else if found == nil {
				found = e
			}
			if in.over == nil {
				break
			}
		}
		in = in.also
	}
	return found
}

// find returns the entry of an absolute path, by all ways that may lead there; nil if there is none.
func (f *files) find(p string) *Name {
	if len(f.entries) == 0 || p == "" || p[0] != '/' {
		return nil
	}
	at := strings.LastIndexByte(p, '/')
	if !f.last.valid || f.last.path != p[:at] {
		f.last = directory{strings.Clone(p[:at]), &f.root, true}
		for rest := p[:at]; rest != "" && f.last.at != nil; {
			var name string
			if name, rest, _ = strings.Cut(rest, "/"); name != "" {
				f.last.at = f.child(f.last.at, name)
			}
		}
	}
	if f.last.at == nil || at == len(p)-1 {
		return f.last.at
	}
	return f.child(f.last.at, p[at+1:])
}

// exact returns the entry of an absolute path as the names are now; nil if there is none. If add is true, it is added,
// and nil means that it is beyond the bound.
func (f *files) exact(p string, add bool) *Name {
	if len(p) < 2 || p[0] != '/' {
		return nil
	}
	at := strings.LastIndexByte(p, '/')
	if f.lastMade.valid && f.lastMade.path == p[:at] && at < len(p)-1 {
		return f.step(f.lastMade.at, p[at+1:], add)
	}
	e := &f.root
	for rest := p[:at]; rest != ""; {
		var name string
		if name, rest, _ = strings.Cut(rest, "/"); name != "" {
			if e = f.step(e, name, add); e == nil {
				return nil
			}
		}
	}
	if at == len(p)-1 {
		return e
	}
	f.lastMade = directory{strings.Clone(p[:at]), e, true}
	return f.step(e, p[at+1:], add)
}

func (f *files) step(in *Name, name string, add bool) *Name {
	in = in.mounted()
	e := f.entries[slot{in, name}]
	if e == nil && add {
		e = f.put(slot{in, name}, &Name{})
	}
	return e
}

// put adds an entry in a slot that is free; nil beyond the bound.
func (f *files) put(at slot, e *Name) *Name {
	if f.bytes+entryBytes+len(at.name) > maxNameBytes {
		f.beyond++
		return nil
	}
	if f.entries == nil {
		f.entries = map[slot]*Name{}
	}
	at.name = strings.Clone(at.name)
	f.bytes += entryBytes + len(at.name)
	f.set(at, e)
	return e
}

func (f *files) set(at slot, e *Name) {
	e.parent, e.name = at.in, at.name
	f.entries[at] = e
	f.last.valid = false
}

// fileOf returns the file of a name, which it adds if it is not known; nil beyond the bound.
func (f *files) fileOf(p string) (*Name, *File) {
	e := f.exact(p, true)
	if e == nil {
		return nil, nil
	}
	if e.file == nil {
		e.file = &File{First: strings.Clone(p)}
	}
	return e, e.file
}

// rename gives what is at old the name new. If it is not sure that it happened, or when, both names lead there.
func (f *files) rename(old, new string, sure bool) {
	src, _ := f.fileOf(old)
	dst := f.exact(new, true)
	if src == nil || dst == nil || src == dst {
		if src == nil || dst == nil {
			f.moves++
		}
		return
	}
	if !sure || src.gone || below(dst, src) || below(src, dst) {
		if dst.file == nil || src.gone {
			dst.file = src.file
		}
		if dst.also == nil {
			dst.also = src
		}
		dst.gone = false
		return
	}
	at, was := slot{dst.parent, dst.name}, slot{src.parent, src.name}
	f.set(at, src)
	f.set(was, &Name{file: src.file, given: src.given, gone: true, also: src, left: true})
	f.lastMade.valid = false
}

// exchange swaps two names.
func (f *files) exchange(a, b string, sure bool) {
	x, _ := f.fileOf(a)
	y, _ := f.fileOf(b)
	if x == nil || y == nil || x == y {
		if x == nil || y == nil {
			f.moves++
		}
		return
	}
	if !sure || below(x, y) || below(y, x) {
		if x.also == nil && y.also == nil {
			x.also, y.also = y, x
		}
		return
	}
	at, to := slot{x.parent, x.name}, slot{y.parent, y.name}
	f.set(at, y)
	f.set(to, x)
	x.gone, y.gone, f.lastMade.valid = false, false, false
}

// below reports whether e is dir or is below it, as far as their own names say.
func below(e, dir *Name) bool {
	for ; e != nil; e = e.parent {
		if e == dir {
			return true
		}
	}
	return false
}

// mount makes the names below a mount point lead to those below the source.
func (f *files) mount(at, source string) {
	from, to := f.exact(source, true), f.exact(at, true)
	if to != nil && from != nil && to.over == nil && !below(from, to) && !below(to, from) {
		to.over = from
	}
	f.last.valid, f.lastMade.valid = false, false
}

// names returns a path and other names of the same file; see [Reader.Names].
func (f *files) names(p string) []string {
	all := []string{p}
	for n := 0; n < len(all) && len(all) < maxWays; n++ {
		in := &f.root
		for at := 0; in != nil && at < len(all[n]); {
			at++ // the slash
			end := len(all[n])
			if i := strings.IndexByte(all[n][at:], '/'); i >= 0 {
				end = at + i
			}
			in = f.child(in, all[n][at:end])
			at = end
			for _, way := range in.ways() {
				if name := way + all[n][at:]; len(all) < maxWays && !slices.Contains(all, name) {
					all = append(all, name)
				}
			}
		}
	}
	return all
}

// ways returns the paths to which an entry leads, or once led.
func (e *Name) ways() (ways []string) {
	if e == nil {
		return nil
	}
	if e.file != nil {
		ways = append(ways, e.file.First)
	}
	if e.also != nil && !e.left {
		ways = append(ways, e.also.Path())
	}
	if e.over != nil {
		ways = append(ways, e.mounted().Path())
	}
	return ways
}

// Path returns the path of the name as the names are now.
func (e *Name) Path() string {
	if e.parent == nil {
		return ""
	}
	return e.parent.Path() + "/" + e.name
}

// resolve follows the symbolic links in a path as far as the run made them.
func (f *files) resolve(p string) string {
	p = path.Clean(p)
	for range maxWays {
		e, rest, done := &f.root, p, ""
		link := ""
		for rest != "" && e != nil && link == "" {
			var name string
			name, rest, _ = strings.Cut(rest, "/")
			if name == "" {
				continue
			}
			if e = f.child(e, name); e == nil || e.file == nil || e.file.Link == "" || e.gone {
				done += "/" + name
				continue
			}
			if link = e.file.Link; !path.IsAbs(link) {
				link = done + "/" + link
			}
		}
		if link == "" {
			return p
		}
		p = path.Clean(link + "/" + rest)
	}
	return p
}

// apply notes what a line did to the files. ours says that not the run did it.
func (f *files) apply(e *schema.KernelEvent, by *Instance, ours bool) {
	sure := !e.Attempted && !e.Repeat
	switch e.Kind {
	case schema.KindRename:
		if e.Flags&renameExchange != 0 {
			f.exchange(e.Value, e.Target, sure)
			f.give(e, by, ours, e.Value, false)
		} else {
			f.rename(e.Value, e.Target, sure)
			if x := f.exact(e.Target, false); ours && x != nil && x.file != nil {
				x.file.First = strings.Clone(e.Target) // the recorder put it there
			}
		}
		f.give(e, by, ours, e.Target, false)
		return
	case schema.KindLink:
		lost := f.beyond
		_, file := f.fileOf(e.Value)
		if to := f.exact(e.Target, true); to != nil && file != nil {
			to.file, to.gone = file, false
			f.give(e, by, ours, e.Target, false)
		} else if f.beyond > lost {
			f.links++
		}
		return
	case schema.KindUnlink, schema.KindRmdir:
		if x := f.exact(e.Value, f.all && !ours); x != nil && sure {
			x.gone = true
		}
		f.change(e, by, ours, e.Value, schema.AccessRemove)
		return
	case schema.KindMount:
		if (e.Call == "mount" || e.Call == "move_mount") && strings.HasPrefix(e.Target, "/") &&
			!strings.HasPrefix(e.Target, "/dev/") {
			f.give(e, by, ours, e.Value, false) // what is mounted on a file has the name that the run gave
			f.mount(e.Value, e.Target)
		}
		return
	case schema.KindBind:
		if file, ok := strings.CutPrefix(e.Value, "unix:"); ok {
			f.give(e, by, ours, file, true)
		}
		return
	case schema.KindIOUringOp:
		f.give(e, by, ours, e.Value, true)
		f.give(e, by, ours, e.Target, true)
		return
	}
	for name, how := range e.Touches() {
		if how&(schema.AccessCreate|schema.AccessWrite) == 0 {
			if how&schema.AccessChange != 0 {
				f.change(e, by, ours, name, how)
			}
			continue
		}
		file := f.give(e, by, ours, name, true)
		if file != nil {
			file.Directory = e.Kind == schema.KindMkdir
		}
		if file != nil && e.Kind == schema.KindSymlink && sure {
			file.Link = strings.Clone(e.Target)
		}
	}
}

const renameExchange = 2 // linux/fs.h

// give notes that a line made a name, or wrote the file behind it.
func (f *files) give(e *schema.KernelEvent, by *Instance, ours bool, name string, wrote bool) *File {
	if ours {
		if x := f.find(name); x != nil && x.file != nil && wrote {
			x.file.Restored = true
		}
		return nil
	}
	x, file := f.fileOf(name)
	if file == nil {
		return nil
	}
	if x.gone && wrote && e.Makes() { // another file returns under the name
		file = &File{First: file.First}
		if x.file.First != name {
			file.First = strings.Clone(name)
		}
		x.file = file
	}
	if !x.given && !file.Wrote {
		file.Line, file.By = e.Seq, by
	}
	x.gone, file.Restored = false, file.Restored && !wrote
	if !wrote || e.Kind == schema.KindSymlink {
		x.line = e.Seq
	}
	if wrote {
		file.Wrote = true
	}
	if (wrote || file.Last == nil) && CertaintyOf(e) != OtherMounts {
		file.Last = by
	}
	x.given = x.given || !wrote || e.Kind != schema.KindWrite && e.Kind != schema.KindTruncate &&
		e.Kind != schema.KindMmapShared
	return file
}

// change notes that a line removed a file, or changed it without writing it.
func (f *files) change(e *schema.KernelEvent, by *Instance, ours bool, name string, how schema.Access) {
	if !f.all || ours || CertaintyOf(e) == OtherMounts {
		return
	}
	if _, file := f.fileOf(name); file != nil && (file.Last == nil || how == schema.AccessRemove) {
		file.Last = by
	}
}

// Line returns the sequence number of the last line by which the run moved or linked something to the name; 0 for none.
func (e *Name) Line() uint64 { return e.line }

// moved reports whether the run moved what has the name there.
func (e *Name) moved() bool {
	return e.given && e.file != nil && (e.also != nil && !e.left || e.file.First != e.Path())
}

// above returns the directory above an absolute path that the run moved there; nil if there is none.
func (f *files) above(p string) *Name {
	dir := path.Dir(p)
	x := f.find(dir)
	for x == nil && len(dir) > 1 {
		dir = path.Dir(dir)
		x = f.find(dir)
	}
	for x != nil && !x.moved() {
		x = x.parent
	}
	return x
}

// arrived reports whether the run made the file that an absolute path leads to, or moved what is there.
func (f *files) arrived(p string) bool {
	x := f.find(p)
	return f.made(x) && (x.file == nil || !x.file.Directory) || x != nil && x.moved() || f.above(p) != nil
}

// maxBrought limits the names that brought finds.
const maxBrought = 1_000_000

// brought is [Reader.Brought].
func (f *files) brought(found func(path string, file *File, line uint64)) (whole bool) {
	below := map[*Name][]*Name{}
	for _, e := range f.entries {
		if !e.gone {
			below[e.parent] = append(below[e.parent], e)
		}
	}
	left := maxBrought
	var walk func(at string, in *Name, line uint64)
	walk = func(at string, in *Name, line uint64) {
		for _, e := range below[in] {
			if left--; left < 0 {
				return
			}
			if e.file != nil {
				found(at+"/"+e.name, e.file, line)
			}
			walk(at+"/"+e.name, e, line)
		}
	}
	for _, e := range f.entries {
		switch {
		case e.gone || e.file == nil:
		case e.file.Link != "":
			at, to := e.Path(), e.file.Link
			if !path.IsAbs(to) {
				to = path.Dir(at) + "/" + to
			}
			walk(at, f.find(f.resolve(to)), e.line)
		case (len(below[e]) > 0 || e.also != nil) && e.moved():
			walk(e.Path(), e, e.line)
			if e.also != nil && !e.left {
				walk(e.Path(), e.also, e.line)
			}
		}
	}
	return left >= 0
}

// made reports whether the run gave a name to a file, or wrote the file behind it.
func (f *files) made(x *Name) bool { return x != nil && (x.given || x.file != nil && x.file.Wrote) }
