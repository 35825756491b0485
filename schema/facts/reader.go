package facts

import (
	"path"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Reader reads the lines of one kernel layer. Make it with [NewReader]. It is not safe for concurrent use.
type Reader struct {
	*Table
	files files
	line  Line
	ran   map[string][]Amendment // programs that were executed and that the run had not made, by name
	kept  int                    // of all of ran
}

// Line is what one line says.
type Line struct {
	Event *schema.KernelEvent
	// By is the instance that acted; on a fork, the child; on an exec, the new one. It is nil if it is not known.
	By *Instance
	// Ours is true if the recorder, a check or a container engine did it, and not the run.
	Ours bool
	// Outcome says whether it was done.
	Outcome Outcome
	// InMemory is true if the file lives in anonymous memory, Unlinked if it has no name any more.
	InMemory, Unlinked bool
	// Names is the certainty of the names, Arguments of the arguments of a program that is executed.
	Names, Arguments Certainty
	// Acts are what was done to which files, programs and endpoints; empty if the call failed.
	Acts []Act
	// Amends are earlier lines of which this one shows more.
	Amends []Amendment
}

// Doubtful reports whether the line may be about other files than it names, or about nothing that happened.
func (l *Line) Doubtful() bool { return l.Outcome == Tried || l.Names.Doubtful() }

// Doubt returns why the line is doubtful; empty if it is not.
func (l *Line) Doubt() string {
	if !l.Names.Doubtful() && l.Outcome == Tried {
		return "it was seen before it was made, and how it ended is not known"
	}
	return string(l.Names)
}

// Changes reports whether the line changed a file, or may have.
func (l *Line) Changes() bool {
	for i := range l.Acts {
		if l.Acts[i].How&schema.AccessModify != 0 {
			return true
		}
	}
	return false
}

// Act is what was done to one object.
type Act struct {
	Name string
	How  schema.Access
	// File is the file behind the name; nil for an endpoint, and if the run has not changed the file so far or the
	// name is beyond the bound.
	File *File
	// Replaced is the file that the name led to until this line; nil if it led to none or still leads to it.
	Replaced *File
	// Made is true if the run had made the file, or given it its name, before this line.
	Made bool
}

// Amendment is an earlier line that executed a program, of which a later line shows that the run had made it.
type Amendment struct {
	Line uint64 // its seq
	TNS  int64
	Name string
	By   *Instance
}

// maxRan limits the lines that can be amended.
const maxRan = 10_000

// NewReader returns a reader. If forgets is true, it drops what it knows of a process some time after its end, and
// Table.All stays empty.
func NewReader(forgets bool) *Reader {
	r := &Reader{Table: NewTable(), ran: map[string][]Amendment{}}
	r.forgets = forgets
	return r
}

// Read reads the next line. The result is valid until the next call, the event as long as the caller's.
func (r *Reader) Read(e *schema.KernelEvent) *Line {
	r.Look(e)
	return r.Apply()
}

// NewChangeReader returns a reader that forgets, and that also keeps the names of what the run removed, or changed
// without writing it, for [Reader.Changer].
func NewChangeReader() *Reader {
	r := NewReader(true)
	r.files.all = true
	return r
}

// Look is the first half of [Reader.Read], for readers that judge a line by the files as they were before it: it says
// who acted on what, and [Reader.Apply] must follow.
func (r *Reader) Look(e *schema.KernelEvent) *Line {
	l := &r.line
	*l = Line{Event: e, By: r.Add(e), Ours: notOfTheRun(e.Class), Outcome: OutcomeOf(e), Names: CertaintyOf(e),
		InMemory: InMemory(e), Unlinked: Unlinked(e),
		Acts: l.Acts[:0], Amends: l.Amends[:0]}
	if e.Kind == schema.KindExec {
		l.Arguments = ArgumentsOf(e)
	}
	if l.Outcome == Failed {
		return l
	}
	for name, how := range e.Touches() {
		a := Act{Name: name, How: how}
		if how != schema.AccessConnect {
			x := r.files.find(name)
			if x != nil {
				a.File = x.file
			}
			a.Made = r.files.made(x)
		}
		l.Acts = append(l.Acts, a)
	}
	if e.Kind == schema.KindExec {
		r.executes(l)
	}
	return l
}

// Apply is the second half of [Reader.Read]: it notes what the line changed.
func (r *Reader) Apply() *Line {
	l := &r.line
	e := l.Event
	if l.Outcome == Failed || e.Kind == schema.KindExec {
		return l
	}
	r.files.apply(e, l.By, l.Ours)
	for i := range l.Acts {
		a := &l.Acts[i]
		if a.How&(schema.AccessCreate|schema.AccessWrite) == 0 {
			continue
		}
		if x := r.files.exact(a.Name, false); x != nil && x.file != a.File {
			a.File, a.Replaced = x.file, a.File
		}
	}
	if (e.Late || e.Repeat) && !l.Ours && len(r.ran) > 0 {
		r.amend(l)
	}
	return l
}

// notOfTheRun reports whether lines of a class are not the run's doing.
func notOfTheRun(c schema.Class) bool {
	return c == schema.ClassRunner || c == schema.ClassCheck || c == schema.ClassSetup
}

// executes notes that a program was executed.
func (r *Reader) executes(l *Line) {
	e := l.Event
	made := l.InMemory || r.Made(e.Value) || e.Loader != "" && r.Made(e.Loader)
	for i := range l.Acts {
		l.Acts[i].Made = made
	}
	l.By.Made = made
	if made || l.Ours || e.Value == "" {
		return
	}
	if r.kept < maxRan {
		r.ran[l.By.Exe] = append(r.ran[l.By.Exe], Amendment{Line: e.Seq, TNS: e.TNS, Name: l.By.Exe, By: l.By})
		r.kept++
	}
}

// amend finds the earlier lines that executed what this line made.
func (r *Reader) amend(l *Line) {
	e := l.Event
	since := e.TNS
	if e.Repeat {
		since = e.TFirstNS
	}
	for _, name := range []string{e.Value, e.Target} {
		if name == "" {
			continue
		}
		for program, runs := range r.ran {
			if rest, ok := strings.CutPrefix(program, name); !ok || rest != "" && rest[0] != '/' ||
				!r.Made(program) {
				continue
			}
			for _, run := range runs {
				if run.TNS >= since {
					run.By.Made = true
					l.Amends = append(l.Amends, run)
				}
			}
			r.kept -= len(runs)
			delete(r.ran, program)
		}
	}
}

// Made reports whether the run has made the file of that name, or has given it that name.
func (r *Reader) Made(name string) bool { return r.files.made(r.files.find(name)) }

// MayHaveMade reports the same, and is true of every name once names were not kept.
func (r *Reader) MayHaveMade(name string) bool { return r.MayMake() || r.Made(name) }

// Arrived reports whether the run made the file of that name, or moved it there, perhaps with a directory above it. A
// directory that it made has not arrived.
func (r *Reader) Arrived(name string) bool { return r.files.arrived(name) }

// Above returns the directory above a name that the run moved there; nil if there is none.
func (r *Reader) Above(name string) *Name { return r.files.above(name) }

// Brought calls found, in no order, for each name that a file has because a directory above it was moved or is reached
// through a symbolic link. line is the sequence number of the line that moved or linked the directory. Brought returns
// false if it had to leave out names.
func (r *Reader) Brought(found func(name string, file *File, line uint64)) (whole bool) {
	return r.files.brought(found)
}

// Name returns what is known of a name, or nil if nothing is known. Place finds the name as it is now, and adds it if
// it was not kept; it returns nil if there is no room.
func (r *Reader) Name(name string) *Name  { return r.files.find(name) }
func (r *Reader) Place(name string) *Name { return r.files.exact(name, true) }

// Note returns the note of a name, and SetNote sets it: what only the reader of the lines knows of it. A name without a
// note has nil.
func (r *Reader) Note(of *Name) any { return r.files.notes[of] }
func (r *Reader) SetNote(of *Name, note any) {
	if r.files.notes == nil {
		r.files.notes = map[*Name]any{}
	}
	r.files.notes[of] = note
}

// Changer returns the instance that last wrote the file of a name. If none wrote it, Changer returns the instance that
// moved, removed or changed the file, or nil if that is not known. It is for readers made by [NewChangeReader].
func (r *Reader) Changer(name string) *Instance {
	if x := r.files.find(name); x != nil && !x.left && x.file != nil {
		return x.file.Last
	}
	return nil
}

// MadeArgument reports the same of an argument of a process: a name relative to its directory, whose symbolic links
// are followed as far as the run made them.
func (r *Reader) MadeArgument(name, cwd string) bool {
	if name == "" {
		return false
	}
	if name[0] != '/' {
		name = cwd + "/" + name
	}
	return r.files.made(r.files.find(path.Clean(name))) || r.files.made(r.files.find(r.files.resolve(name)))
}

// File returns what is known of the file of that name; nil if the run has not changed it.
func (r *Reader) File(name string) *File {
	if x := r.files.find(name); x != nil {
		return x.file
	}
	return nil
}

// Names returns a name and others of the same file: those that the file, or a directory above it, had when it was first
// seen, and those that are below what is mounted on a directory above it. There are at most eight.
func (r *Reader) Names(name string) []string { return r.files.names(name) }

// Linked returns the name under which the file of a hard link was first seen; empty if that is the name itself, or no
// longer leads to the file.
func (r *Reader) Linked(name string) string {
	x := r.files.find(name)
	if x == nil || x.file == nil {
		return ""
	}
	if y := r.files.exact(x.file.First, false); y == nil || y == x || y.file != x.file || y.gone {
		return ""
	}
	return x.file.First
}

// Beyond returns the number of names that were not kept, and how many hard links and renames could not be followed for
// that.
func (r *Reader) Beyond() (names, links, moves uint64) {
	return r.files.beyond, r.files.links, r.files.moves
}

// MayMake reports whether names were not kept, so that the run may have made any file.
func (r *Reader) MayMake() bool { return r.files.beyond > 0 }
