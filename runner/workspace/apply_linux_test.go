package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// open reads the stored contents for Apply.
func (m *memory) open(path string) (io.ReadCloser, error) {
	if b, ok := m.files[path]; ok {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}
	return nil, fs.ErrNotExist
}

// picture is everything below a directory that a round trip restores: kinds, modes, sizes, targets and contents.
func picture(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen, err := walk(t.Context(), dir, nil)
	if err != nil || len(seen.gaps) > 0 {
		t.Fatal(err, seen.gaps)
	}
	all := map[string]string{}
	for name, s := range seen.files {
		text := fmt.Sprintf("%s %04o", s.kind(), s.mode&0o7777)
		switch s.kind() {
		case schema.KindOfLink:
			text = "link to " + s.target
		case schema.KindOfFile:
			text += fmt.Sprintf(" %d", s.size)
			if s.size < 1<<20 {
				data, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				text += " " + sums(data).digest
			}
		}
		all[name] = text
	}
	return all
}

// everyByte is a path with every byte that a name can contain.
func everyByte() string {
	var b []byte
	for c := 1; c < 256; c++ {
		if c != '/' {
			b = append(b, byte(c))
		}
	}
	return string(b[:127]) + "/" + string(b[127:])
}

// commit commits everything in a git repository.
const commit = "git -c init.defaultBranch=m init -q . && git add . && git commit -qm start"

// What a command does in a workspace, Apply does in a copy of it.
func TestRoundTrip(t *testing.T) {
	for name, c := range map[string]struct {
		before, script string
		more           func(t *testing.T, dir string) // what a shell cannot
	}{
		"modes": {before: "echo x >a; echo y >b; mkdir d; echo z >d/c",
			script: "chmod 4751 a; chmod 600 b; chmod 1770 d; echo n >e; chmod 0400 e; mkdir f; chmod 0555 f"},
		"links": {before: "ln -s a l; ln -s /etc/hosts abs; ln -s gone dangling",
			script: "ln -sfn b l; rm abs; ln -s ../../up new; mkdir d; ln -s ../l d/l"},
		"renames": {before: "mkdir d; echo x >d/a; echo y >d/b; seq 100 >big",
			script: "mv d e; mv big e/bigger; mv e/a top"},
		"binaries": {before: "head -c 5000 /dev/zero >a; printf 'a\\0b' >b",
			script: "head -c 70000 /dev/urandom >a; printf '\\377\\376' >c; rm b"},
		"deletions": {before: "mkdir -p d/e/f; echo x >d/e/f/a; echo y >d/b; echo z >z", script: "rm -r d z"},
		"empty directories": {before: "mkdir -p gone/in kept",
			script: "rm -r gone; mkdir -p new/deep/er; mkdir kept/in"},
		"empty files":     {before: "echo x >a; : >b", script: ": >a; : >c; rm b"},
		"no last newline": {before: "printf x >a", script: "printf 'y\\nz' >a; printf q >b"},
		"every byte of names": {more: func(t *testing.T, dir string) {
			name := filepath.Join(dir, everyByte())
			if err := errors.Join(os.Mkdir(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("x\n"), 0o644),
				os.Symlink("to\xff\n\"", filepath.Join(dir, "l\xfe"))); err != nil {
				t.Fatal(err)
			}
		}},
		"sparse and huge": {before: "truncate -s 1M s; printf x >>s",
			script: "truncate -s 3G h; printf end >>h; truncate -s 2T all; " +
				"printf y | dd of=s bs=1 seek=500000 conv=notrunc status=none"},
		"a file became a directory": {before: "echo x >a", script: "rm a; mkdir a; echo y >a/b; ln -s b a/l"},
		"a directory became a file": {before: "mkdir -p d/e; echo x >d/e/a", script: "rm -r d; echo y >d"},
		"a directory became a link": {before: "mkdir d e; echo x >d/a", script: "rm -r d; ln -s e d"},
		"a link became a directory": {before: "mkdir e; echo x >e/f; ln -s e d",
			script: "rm d; mkdir d; echo y >d/f"},
		"a file became a link": {before: "echo x >a; echo y >b", script: "ln -sf b a"},
		"a link became a file": {before: "ln -s b a; echo y >b", script: "rm a; echo z >a"},
		"a fifo and a socket":  {before: "mkfifo gone", script: "rm gone; mkfifo p; chmod 640 p", more: socket},
		"hard links":           {before: "echo x >a; ln a b", script: "echo y >a; ln a c"},
		"read-only directories": {before: "mkdir d; echo x >d/a; chmod 555 d",
			script: "chmod 755 d; echo y >d/b; rm d/a; chmod 555 d"},
		"a repository": {before: "echo x >a; " + commit,
			script: "echo y >a; echo z >b; git add .; git commit -qm next; git tag v1; git gc -q"},
		"an untracked .git": {before: "echo x >a", script: commit + "; echo y >a; rm -r .git/hooks"},
		".git removed":      {before: "echo x >a; " + commit, script: "rm -rf .git"},
		"a submodule":       {before: "echo x >a; " + commit, script: submodule},
		"a submodule's new commit": {before: "echo x >a; " + commit + ";" + submodule,
			script: "cd sub; echo n >n; git add .; git commit -qm n; cd ..; git add sub; git commit -qm bump"},
		"more bytes than are hashed": {before: "for i in $(seq 10 50); do truncate -s 1M f$i; done",
			script: "for i in 10 49 50; do echo new >f$i; done; rm f48"},
		"caches": {before: "mkdir __pycache__; echo x >__pycache__/a.pyc",
			script: "echo y >__pycache__/a.pyc; echo z >__pycache__/b.pyc; mkdir .pytest_cache"},
		"a file of git's index, large": {before: "seq 100000 >big; " + commit, script: "seq 100001 >big"},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir, clean, copied := filepath.Join(top, "work"), filepath.Join(top, "clean"), filepath.Join(top, "copy")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			sh(t, dir, c.before+"\ntrue")
			if err := Copy(t.Context(), dir, clean); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(picture(t, dir), picture(t, clean)); diff != "" {
				t.Fatal("the copy is another one:", diff)
			}
			o := Options{Dir: dir, Changes: true, Clean: true, Limit: 64 << 20}
			comparison, err := Begin(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			sh(t, dir, c.script+"\ntrue")
			if c.more != nil {
				c.more(t, dir)
			}
			kept := newMemory()
			if err := comparison.Keep(t.Context(), kept); err != nil {
				t.Fatal(err)
			}
			doc := valid(t, comparison.Document("run_1", func(string) string { return "" }))
			if doc.WorkspaceDigest == "" {
				t.Error("the workspace has no digest")
			}
			if lost := NotKept(doc, nil); len(lost) > 0 {
				t.Errorf("not kept: %q", lost)
			}
			if err := Copy(t.Context(), clean, copied); err != nil {
				t.Fatal(err)
			}
			if err := Apply(t.Context(), copied, doc, kept.open); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(picture(t, dir), picture(t, copied)); diff != "" {
				t.Error("the changes made something else (-there, +here):", diff)
			}
			if s, err := os.Stat(filepath.Join(copied, "h")); err == nil &&
				s.Sys().(*syscall.Stat_t).Blocks*512 > 1<<20 {
				t.Error("the huge file has no holes")
			}
			if err := errors.Join(Remove(copied), Remove(dir), Remove(clean)); err != nil {
				t.Error(err)
			}
		})
	}
}

const submodule = "git init -q ../other; echo s >../other/s; git -C ../other add .; git -C ../other commit -qm s;" +
	"git -c protocol.file.allow=always submodule add -q ../other sub; git commit -qm sub"

// socket leaves a socket without a listener.
func socket(t *testing.T, dir string) {
	if err := syscall.Mknod(filepath.Join(dir, "socket"), syscall.S_IFSOCK|0o755, 0); err != nil {
		t.Fatal(err)
	}
}

// A workspace that differs from the one with the changes is refused, and nothing in it is changed.
func TestAnotherWorkspaceIsRefused(t *testing.T) {
	const before = "echo one >a; echo two >b; mkdir d; ln -s a l; seq 2000 >large; echo x >tool; chmod +x tool"
	dir := t.TempDir()
	sh(t, dir, before)
	kept := newMemory()
	doc := changed(t, Options{Dir: dir, Clean: true}, kept, "echo new >a; rm b; rmdir d; ln -sfn b l; echo n >new")
	for name, c := range map[string]struct{ script, says string }{
		"the same":                    {"", ""},
		"other times":                 {"touch -d yesterday *", ""},
		"another mode":                {"chmod 600 a; chmod 700 d", ""},
		"a cache":                     {"mkdir __pycache__; echo x >__pycache__/x.pyc", ""},
		"git's own files":             {"git init -q .", ""},
		"another old content":         {"echo ONE >a", `the digest of "a" is sha256:`},
		"another size":                {"echo more >>a", `"a" has 9 bytes, and had 4`},
		"what was deleted is missing": {"rm b", `"b" is missing`},
		"what was added is there":     {"echo >new", `"new" is there, and was not`},
		"another kind":                {"rm -r d; echo >d", `"d" is a file, and was a directory`},
		"another target":              {"ln -sfn tool l", `"l" leads to "tool", and led to "a"`},
		"an unchanged file differs":   {"seq 2000 | tac >large", "its digest is sha256:"},
		"an unchanged file is absent": {"rm large", "its digest is sha256:"},
		"a further file":              {"echo >more", "its digest is sha256:"},
		"an executable is none":       {"chmod -x tool", "its digest is sha256:"},
	} {
		t.Run(name, func(t *testing.T) {
			other := t.TempDir()
			sh(t, other, before+"\n"+c.script)
			was := picture(t, other)
			err := Apply(t.Context(), other, doc, kept.open)
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says == "":
			case !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), c.says):
				t.Errorf("%v, want one that says %s", err, c.says)
			default:
				if diff := cmp.Diff(was, picture(t, other)); diff != "" {
					t.Error("it was changed:", diff)
				}
			}
		})
	}
}

// A document from elsewhere cannot create anything outside the directory.
func TestNothingIsMadeOutside(t *testing.T) {
	top := t.TempDir()
	dir, outside := filepath.Join(top, "work"), filepath.Join(top, "outside")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(outside, 0o755)); err != nil {
		t.Fatal(err)
	}
	digest := sums([]byte("x")).digest
	kept := newMemory()
	_ = kept.Put(schema.PatchPath, nil)
	_ = kept.Put(schema.BlobsDir+strings.TrimPrefix(digest, "sha256:"), []byte("x"))
	doc := &schema.WorkspaceChanges{Changes: []schema.WorkspaceChange{
		{Path: "l", Change: schema.WorkspaceAdded, After: &schema.WorkspaceFile{Kind: schema.KindOfFile, Mode: "0644",
			Bytes: 1, Digest: &digest}, Blob: digest},
		{Path: "l/x", Change: schema.WorkspaceAdded, After: &schema.WorkspaceFile{Kind: schema.KindOfFile, Mode: "0644",
			Bytes: 1, Digest: &digest}, Blob: digest},
	}}
	doc.Changes[0] = schema.WorkspaceChange{Path: "l", Change: schema.WorkspaceAdded, InPatch: false,
		After: &schema.WorkspaceFile{Kind: schema.KindOfLink, Mode: "0777", Bytes: 10, Target: "../outside"}}
	err := Apply(t.Context(), dir, doc, kept.open)
	if err == nil {
		t.Error("it was made")
	}
	if names, _ := os.ReadDir(outside); len(names) > 0 {
		t.Errorf("outside there is %v", names)
	}
}

func TestNotKept(t *testing.T) {
	dir := t.TempDir()
	to := newMemory()
	to.word = "profound"
	doc := changed(t, Options{Dir: dir, Limit: 100}, to,
		"seq 1000 >big; echo profound >secret; mkfifo p; echo x >a; mkdir t; seq 1000 >t/big; echo profound >t/secret")
	doc.Gaps = append(doc.Gaps, schema.WorkspaceGap{Path: "mnt", Reason: "another file system"})
	want := []string{"mnt (another file system)", "big (cut)", "secret (redacted)", "t/secret (redacted)"}
	got := NotKept(doc, func(name string) bool { return strings.HasPrefix(name, "t/") })
	if !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}
