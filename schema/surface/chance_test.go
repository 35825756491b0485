package surface

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// However the letters fall, a generator's name comes to one pattern, so that two runs that draw other letters have
// one surface. Only a piece of digits alone, or one that is a date, may be a count that somebody chose: "apart" says
// how many of a million names have one.
func TestEveryDrawComesToOnePattern(t *testing.T) {
	const names = 20_000
	nofollow := uint64(0o400000)
	if runtime.GOARCH == "arm64" {
		nofollow = 0o100000
	}
	chance := rand.New(rand.NewPCG(1, 2)) // the same names each time
	drawing := func(n int, alphabet string) func() string {
		return func() string {
			b := make([]byte, n)
			for i := range b {
				b[i] = alphabet[chance.IntN(len(alphabet))]
			}
			return string(b)
		}
	}
	six, eight := drawing(6, alnum), drawing(8, lower) // mkstemp, mkdtemp, gcc, Node; Python
	number := func() string { return fmt.Sprint(chance.Uint32()) }
	file := func(path string, flags uint64) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindOpen, PID: 7, ExecID: 2, Value: path, Flags: flags, Mode: 0o600,
			Created: true, HasResult: true, Result: 3}
	}
	mkstemp := func(path string) *schema.KernelEvent { return file(path, 0o302) }
	python := func(path string) *schema.KernelEvent { return file(path, 0o2000302|nofollow) }
	mkdtemp := func(path string) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindMkdir, PID: 7, ExecID: 2, Value: path, Mode: 0o700, HasResult: true}
	}
	mkdir := func(path string) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindMkdir, PID: 7, ExecID: 2, Value: path, Mode: 0o777, HasResult: true}
	}
	for _, c := range []struct {
		who, before, after string
		make               func(path string) *schema.KernelEvent
		draw               func() string
		stays              bool
		apart              int
	}{
		{who: "gcc", before: "/tmp/cc", make: mkstemp, draw: six, apart: 20},
		{who: "gcc's assembly", before: "/tmp/cc", after: ".s", make: mkstemp, draw: six, apart: 20},
		{who: "gcc's, elsewhere", before: "/w/cc", after: ".res", make: mkstemp, draw: six, apart: 20},
		{who: "sort", before: "/tmp/sort", make: mkstemp, draw: six, apart: 20},
		{who: "mkstemp", before: "/tmp/foo", make: mkstemp, draw: six, apart: 20},
		{who: "mkstemp, behind a word", before: "/var/tmp/report-", make: mkstemp, draw: six, apart: 20},
		{who: "mkstemps", before: "/tmp/report-", after: ".txt", make: mkstemp, draw: six, apart: 20},
		{who: "mkstemps, before a word", before: "/tmp/foo", after: ".backup", make: mkstemp, draw: six, apart: 20},
		{who: "mkstemp, elsewhere", before: "/w/st", make: mkstemp, draw: six, apart: 20},
		{who: "mkdtemp, elsewhere", before: "/w/t-", make: mkdtemp, draw: six, apart: 20},
		{who: "cargo", before: "/w/target", make: mkdir, draw: six, apart: 20},
		{who: "Node's mkdtemp", before: "/tmp/foo-", make: mkdtemp, draw: six, apart: 20},
		{who: "mktemp", before: "/tmp/tmp.", make: mkstemp, draw: drawing(10, alnum)},
		{who: "mktemp, left", before: "/tmp/tmp.", make: mkstemp, draw: drawing(10, alnum), stays: true},
		{who: "Python", before: "/tmp/tmp", make: python, draw: eight, apart: 40},
		{who: "Python, left", before: "/tmp/tmp", after: ".json", make: python, draw: eight, stays: true, apart: 40},
		{who: "Python's directory, left", before: "/tmp/tmp", make: mkdtemp, draw: eight, stays: true, apart: 40},
		{who: "Python, with a prefix", before: "/tmp/x_", make: python, draw: eight, apart: 40},
		{who: "Python's directory", before: "/tmp/x-", make: mkdtemp, draw: eight, apart: 40},
		{who: "Rust", before: "/tmp/.tmp", make: mkdtemp, draw: six, apart: 20},
		{who: "Go", before: "/tmp/x", after: ".go", make: mkstemp, draw: number, apart: 300},
		{who: "go build", before: "/tmp/go-build", make: mkdtemp, draw: number},
	} {
		b, want, apart := New("r", ""), c.before+"<random>"+c.after, 0
		for range names {
			path := c.before + c.draw() + c.after
			made := c.make(path)
			gone := &schema.KernelEvent{Kind: schema.KindUnlink, PID: 7, ExecID: 2, Value: path, HasResult: true}
			for _, e := range []*schema.KernelEvent{made, gone} {
				if e == gone && c.stays {
					continue
				}
				if err := b.Add(e, ""); err != nil {
					t.Fatal(err)
				}
			}
			if c.stays {
				if err := b.decideAll(); err != nil {
					t.Fatal(err)
				}
			}
			clear(b.past)
		}
		for path := range b.paths.mem {
			if path == want {
				continue
			}
			apart++
			piece := path[len(c.before) : len(path)-len(c.after)]
			if !isDigits(piece) && c.who != "Go" { // few digits behind a letter are as mkstemp's
				t.Errorf("%s: %s", c.who, path)
			}
		}
		if _, ok := b.paths.mem[want]; !ok {
			t.Errorf("%s: nothing is %s", c.who, want)
		}
		if limit := c.apart * names / 1_000_000; apart > 2*limit+1 {
			t.Errorf("%s: %d of %d names are apart, and %d of a million should be", c.who, apart, names, c.apart)
		}
		b.Close()
	}
	for _, c := range []struct {
		draw  func() string
		words int // one in so many looks like a word, where no more is known of it
	}{{six, 77}, {eight, 14}} {
		n := 0
		for range names {
			if looksChosen(c.draw()) {
				n++
			}
		}
		if in := float64(names) / float64(n); in < float64(c.words)*0.85 || in > float64(c.words)*1.15 {
			t.Errorf("one in %.1f looks like a word, want %d", in, c.words)
		}
	}
}

// Behind a prefix, too, a word that people name files by is one.
func TestWordsBehindAPrefix(t *testing.T) {
	for _, path := range []string{"/tmp/id_rsa_backup", "/tmp/x_password", "/tmp/CustomerDatabase",
		"/tmp/my-secrets.txt", "/tmp/tmpdatabase", "/w/my-password"} {
		made := &schema.KernelEvent{Kind: schema.KindOpen, PID: 7, Value: path, Flags: 0o302, Mode: 0o600,
			HasResult: true, Result: 3}
		gone := &schema.KernelEvent{Kind: schema.KindUnlink, PID: 7, Value: path, HasResult: true}
		for what, events := range map[string][]*schema.KernelEvent{"gone": {made, gone}, "left": {made}} {
			if what == "gone" && path == "/tmp/tmpdatabase" {
				continue // Python's own pattern
			}
			if got := surfaceOf(t, events...).FilesystemPaths; !slices.Equal(got, []string{path}) {
				t.Errorf("%s, %s: %q", path, what, got)
			}
		}
	}
	for _, w := range words {
		if len(w) < 6 {
			t.Errorf("%s is too short to be no chance", w)
		}
	}
}

// Eight letters of a prefix and a piece are no whole name of Python's, which only its maker touches: zip writes to its
// file under the old name after it was renamed, and gcc tells its children the name of one.
func TestAShortNameIsSharedWithOthers(t *testing.T) {
	for _, path := range []string{"/w/zinabora", "/tmp/ccnabora"} {
		got := surfaceOf(t,
			&schema.KernelEvent{Kind: schema.KindOpen, PID: 7, ExecID: 2, Value: path, Flags: 0o302, Mode: 0o600,
				Created: true, HasResult: true, Result: 3},
			&schema.KernelEvent{Kind: schema.KindOpen, PID: 8, ExecID: 3, Value: path, HasResult: true, Result: 3},
			&schema.KernelEvent{Kind: schema.KindRename, PID: 7, ExecID: 2, Value: path, Target: "/w/a.zip",
				HasResult: true},
			&schema.KernelEvent{Kind: schema.KindWrite, PID: 7, ExecID: 2, Value: path, Repeat: true},
		).FilesystemPaths
		want := []string{"/w/a.zip", path[:len(path)-6] + "<random>"}
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %q", path, got)
		}
	}
}
