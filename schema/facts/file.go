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
	// Wrote is true if the run made the file or wrote its content, or may have.
	Wrote bool
	// Line is the sequence number of the line that first made, wrote or named it, and By the instance that did so;
	// nil if that is not known.
	Line uint64
	By   *Instance
	// Last is the instance that wrote the file last, or that removed, moved or changed it if none wrote it; nil if that
	// is not known. See [Reader.Changer].
	Last *Instance
	// Link is the content of a symbolic link; empty for other files.
	Link string
	// Directory is true if the run made it as a directory.
	Directory bool
	// Restored is true if the recorder, a check or a container engine was the last to write it.
	Restored bool
	// Note is for the reader of the lines, which keeps there what only it knows of the file.
	Note any
}

// entry is a name in a directory.
type entry struct {
	parent *entry
	name   string
	file   *File // nil: nothing is known of it but of what is below it
	// given is true if the run gave the file this name.
	given bool
	// gone is true if the name was removed or renamed. Lines about it may still come.
	gone bool
	// over is what was mounted on the name; nil for none.
	over *entry
	// also is where the name led once, or perhaps leads: the directory that was renamed.
	also *entry
	// left is true if a rename took what was here: also is where that is now.
	left bool
}

// slot is a place in a directory.
type slot struct {
	in   *entry
	name string
}

// files is the tree of the names that the run made, gave or changed.
type files struct {
	root           entry
	entries        map[slot]*entry
	bytes          int
	beyond         uint64 // names that were not kept
	links          uint64 // those of beyond that are hard links
	all            bool   // keep names that were removed or changed in another way, too
	last, lastMade directory
}

// directory is the last directory of a search, with its entry; nil if it has none.
type directory struct {
	path  string
	at    *entry
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
func (e *entry) mounted() *entry {
	for n := 0; e.over != nil && n < maxWays; n++ {
		e = e.over
	}
	return e
}

// child returns the entry of a name in a directory; nil if there is none. A name that is gone is returned only if the
// directory led nowhere else.
func (f *files) child(in *entry, name string) (found *entry) {
	for n := 0; in != nil && n < maxWays; n++ {
		for _, dir := range [...]*entry{in.mounted(), in} {
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
func (f *files) find(p string) *entry {
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
func (f *files) exact(p string, add bool) *entry {
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

func (f *files) step(in *entry, name string, add bool) *entry {
	in = in.mounted()
	e := f.entries[slot{in, name}]
	if e == nil && add {
		e = f.put(slot{in, name}, &entry{})
	}
	return e
}

// put adds an entry in a slot that is free; nil beyond the bound.
func (f *files) put(at slot, e *entry) *entry {
	if f.bytes+entryBytes+len(at.name) > maxNameBytes {
		f.beyond++
		return nil
	}
	if f.entries == nil {
		f.entries = map[slot]*entry{}
	}
	at.name = strings.Clone(at.name)
	f.bytes += entryBytes + len(at.name)
	f.set(at, e)
	return e
}

func (f *files) set(at slot, e *entry) {
	e.parent, e.name = at.in, at.name
	f.entries[at] = e
	f.last.valid = false
}

// fileOf returns the file of a name, which it adds if it is not known; nil beyond the bound.
func (f *files) fileOf(p string) (*entry, *File) {
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
	f.set(was, &entry{file: src.file, given: src.given, gone: true, also: src, left: true})
	f.lastMade.valid = false
}

// exchange swaps two names.
func (f *files) exchange(a, b string, sure bool) {
	x, _ := f.fileOf(a)
	y, _ := f.fileOf(b)
	if x == nil || y == nil || x == y {
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
func below(e, dir *entry) bool {
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
func (e *entry) ways() (ways []string) {
	if e == nil {
		return nil
	}
	if e.file != nil {
		ways = append(ways, e.file.First)
	}
	if e.also != nil && !e.left {
		ways = append(ways, e.also.path())
	}
	if e.over != nil {
		ways = append(ways, e.mounted().path())
	}
	return ways
}

// path returns the path of an entry as the names are now.
func (e *entry) path() string {
	if e.parent == nil {
		return ""
	}
	return e.parent.path() + "/" + e.name
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

// arrived reports whether the run made the file that an absolute path leads to, or moved what is there.
func (f *files) arrived(p string) bool {
	x := f.find(p)
	if f.made(x) && (x.file == nil || !x.file.Directory) {
		return true
	}
	for dir := path.Dir(p); x == nil && len(dir) > 1; dir = path.Dir(dir) {
		x = f.find(dir)
	}
	for ; x != nil; x = x.parent {
		if x.given && x.file != nil && (x.also != nil || x.file.First != x.path()) {
			return true
		}
	}
	return false
}

// made reports whether the run gave a name to a file, or wrote the file behind it.
func (f *files) made(x *entry) bool { return x != nil && (x.given || x.file != nil && x.file.Wrote) }
