package gitpatch

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// everyByte is a name with every byte that a name can have.
func everyByte() string {
	var b strings.Builder
	for c := 1; c < 256; c++ {
		if c != '/' {
			b.WriteByte(byte(c))
		}
	}
	return b.String()[:120] + "/" + b.String()[120:]
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

// example is a patch of all forms, what it applies to, and what that becomes. Nil stands for no file, a leading "->"
// for a link.
type example struct {
	name          string
	before, after []byte
	mode          uint32 // of before and after
	to            uint32 // of after, if it is another
}

func examples() []example {
	return []example{
		{"text", nil, []byte("one\n\ttwo\n\nthree\n"), File, 0},
		{"text without an end", nil, []byte("one\ntwo"), File, 0},
		{"script", nil, []byte("#!/bin/sh\n"), Executable, 0},
		{"empty", nil, []byte{}, File, 0},
		{"one newline", nil, []byte("\n"), File, 0},
		{"binary", nil, noise(10_000), File, 0},
		{"crlf", nil, []byte("a\r\nb\r\n"), File, 0},
		{"long line", nil, bytes.Repeat([]byte("x"), 100_000), File, 0},
		{"Ünïcode", nil, []byte("ü\n"), File, 0},
		{everyByte(), nil, []byte("x\n"), File, 0},
		{" a \"quoted\\name ", nil, []byte("x\n"), File, 0},
		{"text changed", []byte("old\n"), []byte("new\n"), File, 0},
		{"binary changed", noise(300), noise(3000), File, 0},
		{"emptied", []byte("old\n"), []byte{}, File, 0},
		{"filled", []byte{}, []byte("new\n"), File, 0},
		{"made executable", []byte("old\n"), []byte("old\n"), File, Executable},
		{"made a script", []byte("old\n"), []byte("#!/bin/sh\n"), File, Executable},
		{"gone", []byte("old\n"), nil, File, 0},
		{"binary gone", noise(300), nil, File, 0},
		{"empty gone", []byte{}, nil, File, 0},
		{"link", nil, []byte("some/where"), Link, 0},
		{"odd link", nil, []byte("a\nb\xff"), Link, 0},
		{"link changed", []byte("a"), []byte("b"), Link, 0},
		{"link gone", []byte("a"), nil, Link, 0},
		{"becomes a link", []byte("old\n"), []byte("a"), File, Link},
		{"becomes a file", []byte("a"), []byte("new\n"), Link, File},
	}
}

func write(t *testing.T, w *Writer, e example) {
	t.Helper()
	to := e.mode
	if e.to != 0 {
		to = e.to
	}
	from, now := State{e.mode, ID(e.before)}, State{to, ID(e.after)}
	var err error
	switch {
	case e.before == nil:
		err = w.Create(e.name, now, e.after)
	case e.after == nil:
		err = w.Delete(e.name, from)
	case from.Mode&0o170000 != now.Mode&0o170000:
		err = errors.Join(w.Delete(e.name, from), w.Create(e.name, now, e.after))
	default:
		err = w.Modify(e.name, from, now, e.after)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The real git applies every form, and the result is what the patch was made of.
func TestGitAppliesIt(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git: ", err)
	}
	dir := t.TempDir()
	put := func(name string, mode uint32, content []byte) {
		name = filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		if mode == Link {
			err = errors.Join(err, os.Symlink(string(content), name))
		} else {
			err = errors.Join(err, os.WriteFile(name, content, os.FileMode(mode&0o777)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var patch bytes.Buffer
	w := NewWriter(&patch)
	for _, e := range examples() {
		if e.before != nil {
			put(e.name, e.mode, e.before)
		}
		write(t, w, e)
	}
	cmd := exec.Command(git, "apply", "--whitespace=nowarn", "-")
	cmd.Dir, cmd.Stdin = dir, &patch
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s", err, out)
	}
	for _, e := range examples() {
		name := filepath.Join(dir, e.name)
		info, err := os.Lstat(name)
		if e.after == nil {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%q is there: %v", e.name, err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		mode := e.mode
		if e.to != 0 {
			mode = e.to
		}
		if link := mode == Link; link != (info.Mode()&os.ModeSymlink != 0) ||
			!link && (mode == Executable) != (info.Mode()&0o100 != 0) {
			t.Errorf("%q has the mode %v", e.name, info.Mode())
			continue
		}
		content, err := os.ReadFile(name)
		if mode == Link {
			var target string
			target, err = os.Readlink(name)
			content = []byte(target)
		}
		if err != nil || !bytes.Equal(content, e.after) {
			t.Errorf("%q holds %.60q: %v", e.name, content, err)
		}
	}
}

// What the writer writes, the reader reads, and hands it out again as it stands.
func TestRoundTrip(t *testing.T) {
	var patch bytes.Buffer
	w := NewWriter(&patch)
	list := examples()
	for _, e := range list {
		write(t, w, e)
	}
	r := NewReader(bytes.NewReader(patch.Bytes()))
	r.KeepRaw()
	var raw []byte
	got := map[string][]byte{}
	for {
		s, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%q: %v", s.Name, err)
		}
		if raw = append(raw, r.Raw()...); s.HasContent {
			got[s.Name] = content
			if s.To.ID != ID(content) {
				t.Errorf("%q: its id is of another content", s.Name)
			}
		} else if len(content) > 0 {
			t.Errorf("%q has a content", s.Name)
		}
	}
	if !bytes.Equal(raw, patch.Bytes()) {
		t.Error("the sections together are not the patch")
	}
	for _, e := range list {
		content, ok := got[e.name]
		if want := e.after != nil && !bytes.Equal(e.before, e.after) || e.before == nil; ok != want ||
			ok && !bytes.Equal(content, e.after) {
			t.Errorf("%q: there %t, %.40q", e.name, ok, content)
		}
	}
	// whoever does not read a content skips it
	r = NewReader(&patch)
	n := 0
	for ; ; n++ {
		if _, err := r.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n != len(list)+2 {
		t.Errorf("%d sections, want %d", n, len(list)+2)
	}
}

// A patch that is not as the writer writes it is an error, whatever git would make of it.
func TestHostilePatches(t *testing.T) {
	const head = "diff --git a/x b/x\nnew file mode 100644\nindex " + noID +
		"..e69de29bb2d1d6434b8b29ae775ad8c2e48c53ff\n"
	for name, patch := range map[string]string{
		"garbage":                 "hello\n",
		"no newline":              "diff --git a/x b/x",
		"two names":               "diff --git a/x b/y\nnew file mode 100644\n",
		"no prefix":               "diff --git x x\nnew file mode 100644\n",
		"a name in another form":  `diff --git "a/x" "b/x"` + "\n" + head[len("diff --git a/x b/x\n"):],
		"a rename":                "diff --git a/x b/x\nsimilarity index 100%\nrename from x\nrename to y\n",
		"no head":                 "diff --git a/x b/x\n",
		"a mode that git has not": strings.Replace(head, "100644", "100777", 1),
		"a device":                strings.Replace(head, "100644", "020666", 1),
		"a content is missing":    head,
		"a text of another name":  head + "--- /dev/null\n+++ b/y\n@@ -0,0 +1,1 @@\n+x\n",
		"a removed line":          head + "--- /dev/null\n+++ b/x\n@@ -0,0 +1,1 @@\n-x\n",
		"fewer lines":             head + "--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+x\n",
		"more lines":              head + "--- /dev/null\n+++ b/x\n@@ -0,0 +1,1 @@\n+x\n+y\n",
		"a delta":                 head + "GIT binary patch\ndelta 5\nMcmZ\n\n",
		"shorter than it says":    head + "GIT binary patch\nliteral 5\nHcmV?d00001\n\nliteral 0\nHcmV?d00001\n\n",
		"digits that are none":    head + "GIT binary patch\nliteral 0\nHcmV?d0000 \n\n",
		"no compressed content":   head + "GIT binary patch\nliteral 0\nD00000\n\n",
		"ends within":             head + "GIT binary patch\nliteral 0\nHcmV?d00001\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReader(strings.NewReader(patch))
			for {
				if _, err := r.Next(); errors.Is(err, ErrForm) {
					return
				} else if err != nil {
					t.Fatalf("%v", err)
				}
			}
		})
	}
	var bomb bytes.Buffer
	if err := NewWriter(&bomb).Create("x", State{File, ID(nil)}, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	r := NewReader(strings.NewReader(strings.Replace(bomb.String(), "literal 1048576", "literal 10", 1)))
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, r); !errors.Is(err, ErrForm) || n > 10 {
		t.Errorf("%d bytes came of a content of 10: %v", n, err)
	}
}

func TestRefuses(t *testing.T) {
	for name, want := range map[string]bool{
		"a/b": false, ".gitignore": false, "a/.github/x": false, "x.git": false, "git": false, ".gitmodules": false,
		".git": true, "a/.git/config": true, ".GIT/x": true, "sub/.Git": true, ".git ": true, ".git.": true,
		"git~1/x": true, ".git:x": true,
	} {
		if got := Refuses(name, false); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
	if !Refuses("a/.gitmodules", true) {
		t.Error("a link named .gitmodules is not refused")
	}
}

func FuzzReader(f *testing.F) {
	var patch bytes.Buffer
	w := NewWriter(&patch)
	for _, e := range examples() {
		to := State{File, ID(e.after)}
		patch.Reset()
		if err := w.Create(e.name, to, e.after); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(patch.Bytes()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		r.KeepRaw()
		var raw []byte
		for {
			_, err := r.Next()
			if err == nil {
				_, err = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
			}
			if err == io.EOF {
				if !bytes.Equal(raw, b) {
					t.Error("what was read is not the patch")
				}
				return
			}
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r); err != nil {
				return
			}
			raw = append(raw, r.Raw()...)
		}
	})
}
