package facts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts/factstest"
)

// TestMade asks of each program that is executed whether the run made it: "made", "not", or "amended" if a later line
// shows it.
func TestMade(t *testing.T) {
	for name, c := range map[string]struct{ lines, want string }{
		"a file that the run did not touch":   {"read /bin/true; exec /bin/true", "not"},
		"a file that the run made":            {"create /w/tool; exec /w/tool", "made"},
		"a file that the run wrote":           {"write /bin/true; exec /bin/true", "made"},
		"a file that it failed to make":       {"create /w/tool :failed; exec /w/tool", "not"},
		"a file that it tried to make":        {"create /w/tool :tried; exec /w/tool", "made"},
		"a file in memory":                    {"exec /memfd:x :memfd", "made"},
		"a file that a check made":            {"create /w/tool :check; exec /w/tool", "not"},
		"a file that the recorder made":       {"create /w/tool :runner; exec /w/tool", "not"},
		"a file that a container engine made": {"create /w/tool :setup; exec /w/tool", "not"},
		"a renamed file":                      {"create /w/a; rename /w/a /w/b; exec /w/b", "made"},
		"a file of others under a new name":   {"rename /bin/sh /w/tool; exec /w/tool", "made"},
		"a file under its old name":           {"create /w/a; rename /w/a /w/b; exec /w/a", "made"},
		"a rename that failed":                {"create /w/a; rename /w/a /w/b :failed; exec /w/b", "not"},
		"a rename that was tried": {
			"create /w/a; rename /w/a /w/b :tried; exec /w/b; exec /w/a",
			"made made",
		},
		"a renamed directory": {
			"mkdir /w/d1; create /w/d1/tool; rename /w/d1 /w/d2; exec /w/d2/tool",
			"made",
		},
		"a renamed directory that was tried": {
			"mkdir /w/d1; create /w/d1/tool; rename /w/d1 /w/d2 :tried; exec /w/d2/tool",
			"made",
		},
		"a directory above it, renamed twice": {
			"create /a/b/c/tool; rename /a /x; rename /x/b /y; exec /y/c/tool",
			"made",
		},
		"the old name of a renamed directory": {"create /w/d1/tool; rename /w/d1 /w/d2; exec /w/d1/tool", "made"},
		"a directory that was renamed and back": {
			"create /w/d1/tool; rename /w/d1 /w/d2; rename /w/d2 /w/d1; exec /w/d1/tool",
			"made",
		},
		"a directory made anew": {
			"create /w/d/tool; rename /w/d /w/e; mkdir /w/d; exec /w/d/tool",
			"made",
		},
		"another directory in its place": {
			"create /w/d/tool; rename /w/d /w/e; rename /opt/pkg /w/d; exec /w/d/tool; exec /w/e/tool",
			"not made",
		},
		"a file of others in a renamed one": {"rename /opt/pkg /w/d; exec /w/d/tool", "not"},
		"an exchange of files": {
			"create /w/a; exchange /w/a /bin/true; exec /bin/true; exec /w/a",
			"made made",
		},
		"an exchange of directories": {
			"create /w/d/tool; exchange /w/d /opt/pkg; exec /opt/pkg/tool; exec /w/d/tool",
			"made not",
		},
		"a hard link to what it made":         {"create /w/a; link /w/a /w/b; exec /w/b", "made"},
		"a hard link to what it did not make": {"link /bin/sh /w/tool; exec /w/tool", "made"},
		"what it wrote through a hard link":   {"link /bin/sh /w/x; write /w/x; exec /bin/sh", "made"},
		"what it linked and left alone":       {"link /bin/sh /w/x; exec /bin/sh", "not"},
		"a hard link in a renamed directory": {
			"link /bin/sh /w/d/x; rename /w/d /w/e; write /w/e/x; exec /bin/sh",
			"made",
		},
		"a bind mount of a directory":           {"create /w/d/tool; bind-mount /mnt /w/d; exec /mnt/tool", "made"},
		"what was made below a bind mount":      {"bind-mount /mnt /w/d; create /mnt/tool; exec /w/d/tool", "made"},
		"a bind mount of a directory of others": {"bind-mount /mnt /opt/pkg; exec /mnt/tool", "not"},
		"a bind mount of a file":                {"bind-mount /w/tool /bin/sh; exec /w/tool", "made"},
		"a bind mount that was renamed": {
			"create /w/d/tool; bind-mount /m/a /w/d; rename /m /n; exec /n/a/tool",
			"made",
		},
		"a removal": {"create /w/tool; unlink /w/tool; exec /w/tool", "made"},
		"a removal and a return": {
			"create /w/tool; unlink /w/tool; create /w/tool; exec /w/tool",
			"made",
		},
		"a removed link": {"create /w/a; link /w/a /w/b; unlink /w/a; exec /w/b", "made"},
		"a directory that was removed, made": {
			"create /w/d/a; unlink /w/d/a; rmdir /w/d; mkdir /w/d; create /w/d/a; exec /w/d/a",
			"made",
		},
		"a late line":                       {"read /x; exec /w/tool; create /w/tool :late0", "amended"},
		"a late line about what came later": {"exec /w/tool; create /w/tool :late9", "not"},
		"a repeat that began before":        {"read /x; exec /w/tool; create /w/tool :repeat0", "amended"},
		"a late rename of a directory": {
			"create /w/d1/tool; exec /w/d2/tool; rename /w/d1 /w/d2 :late0",
			"amended",
		},
		"a repeat after another directory's": {
			"create /w/d/tool; rename /w/d /w/e; rename /opt/p /w/d; exec /w/d/tool; create /w/d/tool :repeat1",
			"amended",
		},
		"a loop that is counted": {
			"create /w/tmp; rename /w/tmp /w/tool; rename /w/tmp /w/tool :repeat1; exec /w/tool",
			"made",
		},
		"a file in a directory with a long path": {
			"create /a/b/c/d/e/f/g/h/i/j/tool; rename /a/b/c/d/e /z; exec /z/f/g/h/i/j/tool",
			"made",
		},
		"a socket":           {"bind unix:/w/s; exec /w/s", "made"},
		"a file of io_uring": {"io_uring_op /w/tool; exec /w/tool", "made"},
	} {
		r := NewReader(true)
		var got []string
		at := map[uint64]int{}
		for i, words := range strings.Split(c.lines, "; ") {
			l := r.Read(factstest.Event(t, i, words))
			for _, a := range l.Amends {
				got[at[a.Line]] = "amended"
			}
			if l.Event.Kind != schema.KindExec {
				continue
			}
			at[l.Event.Seq] = len(got)
			if l.By.Made {
				got = append(got, "made")
			} else {
				got = append(got, "not")
			}
		}
		if g := strings.Join(got, " "); g != c.want {
			t.Errorf("%s: %s, want %s", name, g, c.want)
		}
	}
}

// TestMadeArgument asks of a script, which an event does not name, whether the run made it.
func TestMadeArgument(t *testing.T) {
	for name, c := range map[string]struct {
		lines, argument string
		want            bool
	}{
		"a file":                             {"create /w/s", "s", true},
		"another":                            {"create /w/s", "t", false},
		"a link to what it made":             {"create /x/s; symlink /w/l /x", "l/s", true},
		"a link to what it did not make":     {"symlink /w/l /usr/bin", "l/s", false},
		"a link that a rename put in place":  {"create /x/s; symlink /w/new ../x; rename /w/new /v/l", "/v/l/s", true},
		"a link in a directory that moved":   {"create /w/s; symlink /w/d/l /w; rename /w/d /w/e", "e/l/s", true},
		"a link that leads to itself":        {"symlink /w/l l", "l/s", false},
		"a link that was removed":            {"create /x/s; symlink /w/l /x; unlink /w/l", "l/s", false},
		"a name with dots":                   {"create /w/s", "../w/./s", true},
		"a name in a directory it did not":   {"read /w/s", "s", false},
		"a directory that was made, as name": {"mkdir /w/d", "d", true},
	} {
		r := NewReader(true)
		for i, words := range strings.Split(c.lines, "; ") {
			r.Read(factstest.Event(t, i, words))
		}
		if got := r.MadeArgument(c.argument, "/w"); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestFileIdentity asks which file a name leads to: the name under which it was first seen, and who wrote it last.
func TestFileIdentity(t *testing.T) {
	for name, c := range map[string]struct{ lines, of, want string }{
		"a hard link":           {"link /bin/sh /w/x", "/w/x", "/bin/sh"},
		"a hard link of a link": {"link /bin/sh /w/x; link /w/x /w/y", "/w/y", "/bin/sh"},
		"a link in a directory": {"link /bin/sh /w/d/x; rename /w/d /w/e", "/w/e/x", "/bin/sh"},
		"a file made anew": {
			"create /w/d/x; rename /w/d /w/e; mkdir /w/d; create /w/d/x",
			"/w/d/x", "/w/d/x",
		},
		"that keeps the first": {
			"create /w/d/x; rename /w/d /w/e; mkdir /w/d; create /w/d/x",
			"/w/e/x", "/w/d/x",
		},
		"what was exchanged":            {"link /bin/sh /w/x; create /w/y; exchange /w/x /w/y", "/w/y", "/bin/sh"},
		"what a check wrote again":      {"create /w/x; write /w/x :check", "/w/x", "/w/x restored"},
		"and the run after it":          {"create /w/x; write /w/x :check; write /w/x", "/w/x", "/w/x"},
		"what is mounted elsewhere":     {"link /bin/sh /w/d/x; bind-mount /mnt /w/d", "/mnt/x", "/bin/sh"},
		"a link that was removed":       {"link /bin/sh /w/x; unlink /w/x; create /w/x", "/w/x", "/w/x"},
		"what the recorder moved there": {"rename /var/x /w/x :runner", "/w/x", "/w/x"},
		"what nobody touched":           {"create /w/x", "/w/y", "nothing"},
		"a name that another file took": {"create /w/x; rename /bin/sh /w/x", "/w/x", "/bin/sh"},
	} {
		r := NewReader(true)
		for i, words := range strings.Split(c.lines, "; ") {
			r.Read(factstest.Event(t, i, words))
		}
		got := "nothing"
		if f := r.File(c.of); f != nil {
			if got = f.First; f.Restored {
				got += " restored"
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestNames asks which other names a file had or has.
func TestNames(t *testing.T) {
	for name, c := range map[string]struct{ lines, of, want string }{
		"a renamed file":            {"rename /o/a /w/b", "/w/b", "/w/b /o/a"},
		"a file renamed twice":      {"rename /o/a /w/b; rename /w/b /w/c", "/w/c", "/w/c /o/a"},
		"in a renamed directory":    {"rename /o /w/d", "/w/d/x/y", "/w/d/x/y /o/x/y"},
		"in one renamed twice":      {"rename /o /w/d; rename /w /v", "/v/d/x", "/v/d/x /w/d/x /o/x"},
		"an exchange":               {"exchange /o /w/d", "/w/d/x", "/w/d/x /o/x"},
		"and the other way":         {"exchange /o /w/d", "/o/x", "/o/x /w/d/x"},
		"a hard link":               {"link /o/a /w/b", "/w/b", "/w/b /o/a"},
		"a bind mount":              {"bind-mount /m /o", "/m/x", "/m/x /o/x"},
		"a rename that was tried":   {"rename /o /w/d :tried", "/w/d/x", "/w/d/x /o/x"},
		"a rename that failed":      {"rename /o /w/d :failed", "/w/d/x", "/w/d/x"},
		"what is made in its place": {"rename /o/a /w/b; create /o/a", "/o/a", "/o/a"},
		"what nobody touched":       {"create /w/x", "/o/a", "/o/a"},
		"the place of a third":      {"rename /o/a /w/b; rename /w/b /w/c; create /w/b", "/w/b", "/w/b"},
	} {
		r := NewReader(true)
		for i, words := range strings.Split(c.lines, "; ") {
			r.Read(factstest.Event(t, i, words))
		}
		if got := strings.Join(r.Names(c.of), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestArrived asks whether the run brought the file that has a name.
func TestArrived(t *testing.T) {
	for name, c := range map[string]struct {
		lines, of string
		want      bool
	}{
		"a file":                           {"create /w/x", "/w/x", true},
		"what it did not touch":            {"create /w/x", "/w/y", false},
		"a directory":                      {"mkdir /w/d", "/w/d", false},
		"what others put there":            {"mkdir /w/d; create /w/d/x :check", "/w/d/x", false},
		"a renamed file":                   {"rename /o/a /w/b", "/w/b", true},
		"a renamed directory":              {"mkdir /w/d; rename /w/d /w/e", "/w/e", true},
		"what others have in one":          {"rename /o /w/d", "/w/d/x/y", true},
		"in one renamed twice":             {"rename /o /w/d; rename /w/d /w/e", "/w/e/x", true},
		"in one of a directory that moved": {"rename /o /w/d/o; rename /w/d /w/e", "/w/e/o/x", true},
		"in an exchanged directory":        {"exchange /o /w/d", "/o/x", true},
		"in one that may have moved":       {"rename /o /w/d :tried", "/w/d/x", true},
		"in one whose rename failed":       {"rename /o /w/d :failed", "/w/d/x", false},
		"in one that the recorder moved":   {"rename /o /w/d :runner", "/w/d/x", false},
		"a hard link":                      {"link /o/a /w/b", "/w/b", true},
		"a removal and a return":           {"create /w/x; unlink /w/x; create /w/x", "/w/x", true},
		"below a bind mount":               {"create /w/d/x; bind-mount /mnt /w/d", "/mnt/x", true},
	} {
		r := NewReader(true)
		for i, words := range strings.Split(c.lines, "; ") {
			r.Read(factstest.Event(t, i, words))
		}
		if got := r.Arrived(c.of); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestChanger asks which program wrote or changed a file last. Each line is of a program of its own: the number is the
// line's.
func TestChanger(t *testing.T) {
	for name, c := range map[string]struct {
		lines, of string
		want      int // -1: not known
	}{
		"who made it":                     {"create /w/x", "/w/x", 0},
		"who wrote it last":               {"create /w/x; write /w/x", "/w/x", 1},
		"who changed its mode":            {"chmod /w/x", "/w/x", 0},
		"but not if its writer is known":  {"create /w/x; chmod /w/x", "/w/x", 0},
		"who read it":                     {"read /w/x", "/w/x", -1},
		"who failed to write it":          {"write /w/x :failed", "/w/x", -1},
		"who removed it":                  {"create /w/x; unlink /w/x", "/w/x", 1},
		"who removed what others made":    {"unlink /w/x", "/w/x", 0},
		"who removed a directory":         {"rmdir /w/d", "/w/d", 0},
		"who made it again":               {"unlink /w/x; create /w/x", "/w/x", 1},
		"who wrote what is renamed":       {"create /w/x; rename /w/x /w/y", "/w/y", 0},
		"who renamed what others made":    {"rename /w/x /w/y", "/w/y", 0},
		"of the name that it had":         {"create /w/x; rename /w/x /w/y", "/w/x", -1},
		"in a renamed directory":          {"create /w/d/x; rename /w/d /w/e", "/w/e/x", 0},
		"in an exchanged one":             {"create /w/d/x; exchange /w/d /w/e", "/w/e/x", 0},
		"by another hard link":            {"create /w/x; link /w/x /w/y; write /w/y", "/w/x", 2},
		"a check":                         {"create /w/x; write /w/x :check", "/w/x", 0},
		"under a name of other mounts":    {"create /w/x :mounts", "/w/x", -1},
		"who wrote it by a doubtful name": {"create /w/x :directory", "/w/x", 0},
	} {
		r, by := NewChangeReader(), map[*Instance]int{nil: -1}
		for i, words := range strings.Split(c.lines, "; ") {
			e := factstest.Event(t, i, words)
			e.ExecID = uint64(i + 1)
			by[r.Read(&schema.KernelEvent{Kind: schema.KindExec, ExecID: e.ExecID, Value: "/bin/sh"}).By] = i
			r.Read(e)
		}
		if got := by[r.Changer(c.of)]; got != c.want {
			t.Errorf("%s: line %d, want %d", name, got, c.want)
		}
	}
}

// TestLinked asks for the first name of a file with hard links.
func TestLinked(t *testing.T) {
	for name, c := range map[string]struct{ lines, of, want string }{
		"a hard link":                {"link /o/a /w/b", "/w/b", "/o/a"},
		"of a link":                  {"link /o/a /w/b; link /w/b /w/c", "/w/c", "/o/a"},
		"in a renamed directory":     {"link /o/a /w/d/b; rename /w/d /w/e", "/w/e/b", "/o/a"},
		"the first name":             {"link /o/a /w/b", "/o/a", ""},
		"whose first name is gone":   {"link /o/a /w/b; unlink /o/a", "/w/b", ""},
		"whose first name is others": {"link /o/a /w/b; rename /o/c /o/a", "/w/b", ""},
		"a renamed file":             {"rename /o/a /w/b", "/w/b", ""},
		"a link that failed":         {"link /o/a /w/b :failed", "/w/b", ""},
	} {
		r := NewReader(true)
		for i, words := range strings.Split(c.lines, "; ") {
			r.Read(factstest.Event(t, i, words))
		}
		if got := r.Linked(c.of); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestBound makes more names than are kept.
func TestBound(t *testing.T) {
	r := NewReader(true)
	e := factstest.Event(t, 0, "create /w/x")
	for i := 0; !r.MayMake(); i++ {
		if i > maxNameBytes/entryBytes {
			t.Fatal("more names are kept than fit")
		}
		e.Value = fmt.Sprintf("/w/%d/%d", i/1000, i)
		r.Read(e)
	}
	r.Read(factstest.Event(t, 1, "link /bin/sh /w/link"))
	names, links, _ := r.Beyond()
	if names != 3 || links != 1 { // the last of the loop, and both of the link
		t.Errorf("%d names beyond, %d links; want 3 and 1", names, links)
	}
	if r.Read(factstest.Event(t, 2, "exec /bin/true")).By.Made || !r.MayHaveMade("/bin/true") {
		t.Error("a program beyond the bound must not be said to be made, but may be")
	}
	if r.File("/bin/true") != nil {
		t.Error("a file that is beyond the bound has attributes")
	}
}

func TestCertainty(t *testing.T) {
	rename := func(e schema.KernelEvent) schema.KernelEvent { e.Kind = schema.KindRename; return e }
	open := func(e schema.KernelEvent) schema.KernelEvent { e.Kind = schema.KindOpen; return e }
	for name, c := range map[string]struct {
		e    schema.KernelEvent
		want Certainty
	}{
		"nothing":                    {rename(schema.KernelEvent{}), Sure},
		"claimed arguments":          {rename(schema.KernelEvent{Claimed: true}), OtherTask},
		"which an open does not use": {open(schema.KernelEvent{Claimed: true}), Sure},
		"a claimed directory":        {open(schema.KernelEvent{DirectoryClaimed: true}), MovedDirectory},
		"and of a rename":            {rename(schema.KernelEvent{DirectoryClaimed: true}), MovedDirectory},
		"the caller's memory":        {open(schema.KernelEvent{UserMemory: true}), FromCaller},
		"a relative name":            {open(schema.KernelEvent{Marks: schema.MarkRelative, Claimed: true}), Unplaced},
		"an unreachable one":         {open(schema.KernelEvent{Marks: schema.MarkUnreachable}), Unreached},
		"an unresolved one":          {open(schema.KernelEvent{Marks: schema.MarkUnresolved}), Unresolved},
		"an unreadable one":          {open(schema.KernelEvent{Marks: schema.MarkUnreadable}), Unresolved},
		"a deleted one":              {open(schema.KernelEvent{Marks: schema.MarkDeleted}), Sure},
		"another mount namespace": {open(schema.KernelEvent{Marks: schema.MarkMountNamespace |
			schema.MarkRelative}), OtherMounts},
		"a file in memory":  {open(schema.KernelEvent{Marks: schema.MarkMemfd | schema.MarkUnreachable}), Sure},
		"a cut name":        {open(schema.KernelEvent{Truncated: schema.FieldTarget}), Cut},
		"cut arguments":     {open(schema.KernelEvent{Truncated: schema.FieldArgv}), Sure},
		"an attempt's name": {open(schema.KernelEvent{Attempted: true}), Sure},
	} {
		if got := CertaintyOf(&c.e); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
