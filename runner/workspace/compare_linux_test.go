package workspace

import (
	"bytes"
	"context"
	"crypto/sha1"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/gitpatch"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Of(m).Run()) }

// memory is a Store. Contents with the word are secret.
type memory struct {
	files map[string]*bytes.Buffer
	word  string
}

func newMemory() *memory { return &memory{files: map[string]*bytes.Buffer{}} }

type nopClose struct{ io.Writer }

func (nopClose) Close() error { return nil }

func (m *memory) Create(path string) (io.WriteCloser, error) {
	m.files[path] = new(bytes.Buffer)
	return nopClose{m.files[path]}, nil
}

func (m *memory) Put(path string, data []byte) error {
	m.files[path] = bytes.NewBuffer(bytes.Clone(data))
	return nil
}

func (m *memory) Secret(b []byte) bool { return m.word != "" && bytes.Contains(b, []byte(m.word)) }

// sh runs a script in a directory.
func sh(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=n",
		"GIT_AUTHOR_EMAIL=e@example.com", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// changed compares a directory before and after a script.
func changed(t *testing.T, o Options, to *memory, script string) *schema.WorkspaceChanges {
	t.Helper()
	o.Changes = true
	if o.Limit == 0 {
		o.Limit = 1 << 20
	}
	c, err := Begin(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	sh(t, o.Dir, script)
	if err := c.Keep(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	return valid(t, c.Document("run_1", func(string) string { return "" }))
}

// valid checks a document as a reader does.
func valid(t *testing.T, doc *schema.WorkspaceChanges) *schema.WorkspaceChanges {
	t.Helper()
	data, err := doc.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(schema.WorkspaceChangesV0, data); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	read, err := schema.ReadWorkspaceChanges(bytes.NewReader(data), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return read
}

// words are the changes in a few words each.
func words(doc *schema.WorkspaceChanges) (list []string) {
	for _, c := range append(doc.Changes, doc.Artifacts...) {
		kind := ""
		for _, f := range []*schema.WorkspaceFile{c.Before, c.After} {
			if f != nil && " "+f.Kind != kind {
				kind += " " + f.Kind
			}
		}
		where := ""
		switch {
		case c.InPatch:
			where = " patch"
		case c.Blob != "":
			where = " blob"
		case c.NotKept != "":
			where = " " + c.NotKept
		}
		list = append(list, fmt.Sprintf("%s %s%s%s", c.Path, c.Change, kind, where))
	}
	return list
}

func TestWhatCountsAsAChange(t *testing.T) {
	for name, c := range map[string]struct {
		before, script string
		want           []string
	}{
		"nothing":                   {"echo x >a; mkdir d; ln -s a l", "cat a", nil},
		"touched":                   {"echo x >a", "touch a", nil},
		"written with what it held": {"echo x >a", "echo x >a", nil},
		"replaced by an equal file": {"echo x >a", "cp a b; mv b a", nil},
		"a file in a directory":     {"mkdir d", "echo x >d/a", []string{"d/a added file patch"}},
		"an old time on a new content": {"echo x >a", "touch -r a b; echo y >a; touch -r b a; rm b",
			[]string{"a modified file patch"}},
		"a mode that git has":     {"echo x >a", "chmod +x a", []string{"a modified file patch"}},
		"a mode that git has not": {"echo x >a", "chmod 600 a", []string{"a modified file"}},
		"a directory's mode":      {"mkdir d", "chmod 700 d", []string{"d modified directory"}},
		"a link to elsewhere":     {"ln -s a l", "ln -sfn b l", []string{"l modified link patch"}},
		"renamed": {"mkdir d; echo x >d/a", "mv d e", []string{"d deleted directory", "d/a deleted file patch",
			"e added directory", "e/a added file patch"}},
		"a file becomes a directory": {"echo x >a", "rm a; mkdir a; echo y >a/b",
			[]string{"a modified file directory patch",
				"a/b added file patch"}},
		"a directory becomes a link": {"mkdir d; echo x >d/a", "rm -r d; ln -s e d",
			[]string{"d modified directory link",
				"d/a deleted file patch"}},
		"a directory becomes a file": {"mkdir d; echo x >d/a", "rm -r d; echo y >d", []string{
			"d modified directory file blob", "d/a deleted file patch"}},
		"a fifo": {"true", "mkfifo f", []string{"f added fifo special"}},
		"below .git": {"mkdir .git; echo x >.git/HEAD", "echo y >.git/HEAD",
			[]string{".git/HEAD modified file blob"}},
		"an empty file": {"true", ": >a", []string{"a added file patch"}},
		"what git excludes": {"git init -q .; rm -r .git/hooks; echo a >.gitignore", "echo x >a",
			[]string{"a added file patch"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			sh(t, dir, c.before)
			if got := words(changed(t, Options{Dir: dir}, newMemory(), c.script)); !cmp.Equal(got, c.want) {
				t.Error(cmp.Diff(c.want, got))
			}
		})
	}
}

// A file in git's index needs no hash: its id is in the index, as long as the file is unchanged.
func TestGitKnowsWhatWasThere(t *testing.T) {
	for _, version := range []string{"2", "3", "4"} {
		t.Run("index of version "+version, func(t *testing.T) {
			dir := t.TempDir()
			sh(t, dir, `git init -q .
				mkdir d; echo one >d/a; echo two >d/ab; echo long >`+strings.Repeat("x", 200)+
				`; echo three >z; ln -s z l
				git add .; git commit -qm x; git update-index --index-version `+version+`
				touch -d '1 hour ago' d/* z x*; git update-index --refresh
				echo changed >z; echo loose >u`)
			index := readIndex(dir)
			if len(index) != 4 {
				t.Fatalf("the index has %d files: %v", len(index), index)
			}
			for name, content := range map[string]string{"d/a": "one\n", "d/ab": "two\n"} {
				if got := index[name].id; got != gitpatch.ID([]byte(content)) {
					t.Errorf("%s: %s", name, got)
				}
			}
			c, err := Begin(t.Context(), Options{Dir: dir, Changes: true})
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]content{
				"d/a": {git: gitpatch.ID([]byte("one\n"))}, "z": sums([]byte("changed\n")),
				"u": sums([]byte("loose\n")),
			} {
				if got := c.known[name]; got != want {
					t.Errorf("%s: %v, want %v", name, got, want)
				}
			}
		})
	}
}

func TestAnIndexThatIsNone(t *testing.T) {
	dir := t.TempDir()
	sh(t, dir, "git init -q .; echo one >a; git add .")
	data, err := os.ReadFile(filepath.Join(dir, ".git", "index"))
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if len(parseIndex(data, later)) != 1 {
		t.Fatal("the index itself is not read")
	}
	if len(parseIndex(data, time.Unix(0, 0))) != 0 {
		t.Error("a file that is newer than the index is believed")
	}
	for i := range data {
		broken := bytes.Clone(data)
		broken[i] ^= 0x55
		if got := parseIndex(broken, later); len(got) != 0 {
			t.Fatalf("with byte %d changed: %v", i, got)
		}
		if got := parseIndex(data[:i], later); len(got) != 0 {
			t.Fatalf("cut at %d: %v", i, got)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, b []byte) { parseIndex(withSum(b), time.Now()) })
}

func TestBounds(t *testing.T) {
	dir := t.TempDir()
	sh(t, dir, "head -c 3000 /dev/zero >old")
	to := newMemory()
	to.word = "profound"
	doc := changed(t, Options{Dir: dir, Limit: 4000}, to, `
		echo profound >a; echo x >profound.txt; ln -s profound b
		head -c 3000 /dev/zero | tr '\0' x >c; head -c 3000 /dev/zero | tr '\0' y >d; echo x >e
		truncate -s 100G holes; printf data >>holes; truncate -s 1T allhole`)
	want := []string{"a added file redacted", "allhole added file blob", "b added link redacted", "c added file patch",
		"d added file cut", "e added file patch", "holes added file blob", "profound.txt added file redacted"}
	if got := words(doc); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	for _, c := range doc.Changes {
		if c.NotKept == schema.NotKeptRedacted && c.After.Digest != nil {
			t.Errorf("%s: the digest of a secret", c.Path)
		}
		if c.Path == "d" && c.After.Digest == nil {
			t.Error("what is cut has no digest")
		}
	}
	if strings.Contains(to.files[schema.PatchPath].String(), "profound") {
		t.Error("the patch holds the secret")
	}
	if doc.KeptBytes > 4000 || doc.KeptBytes < 3000 {
		t.Errorf("%d bytes kept", doc.KeptBytes)
	}
	if doc.PatchBytes != int64(to.files[schema.PatchPath].Len()) {
		t.Errorf("patch_bytes is %d of %d", doc.PatchBytes, to.files[schema.PatchPath].Len())
	}
}

// The recorder's files below the workspace are not the command's.
func TestSkipped(t *testing.T) {
	dir := t.TempDir()
	sh(t, dir, "mkdir -p .assay-run/spool")
	doc := changed(t, Options{Dir: dir, Skip: []string{filepath.Join(dir, ".assay-run")}}, newMemory(),
		"echo x >.assay-run/spool/run; echo x >a")
	if got := words(doc); !cmp.Equal(got, []string{"a added file patch"}) {
		t.Error(got)
	}
}

// A workspace that is gone has lost its files, and says so. What could not be read is not a deletion.
func TestGaps(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	sh(t, dir, "echo x >a")
	doc := changed(t, Options{Dir: dir}, newMemory(), "rm -r ../work")
	if len(doc.Gaps) != 1 || doc.Gaps[0].Path != "." || len(doc.Changes) != 0 {
		t.Errorf("gaps %v, changes %v", doc.Gaps, words(doc))
	}
	deep := t.TempDir()
	doc = changed(t, Options{Dir: deep}, newMemory(),
		`i=0; while [ $i -lt 220 ]; do mkdir d; cd d; i=$((i+1)); done; echo x >f`)
	if len(doc.Gaps) != 1 || len(doc.Changes) != maxDepth+1 {
		t.Errorf("gaps %v, %d changes", doc.Gaps, len(doc.Changes))
	}
	sh(t, deep, "rm -r d")
}

func TestArtifacts(t *testing.T) {
	dir, away := t.TempDir(), t.TempDir()
	sh(t, dir, "echo old >kept.txt; mkdir sub")
	sh(t, away, "mkdir in")
	to := newMemory()
	doc := changed(t, Options{Dir: dir, Artifacts: []string{away + "/**/*.json", "kept.txt", "new.txt", away + "/none",
		away + "/linked/x.json"}}, to,
		"echo '{}' >"+away+"/in/a.json; ln -s a.json "+away+"/in/b.json; echo x >new.txt; ln -s /etc "+away+"/linked")
	want := []string{"new.txt added file patch", away + "/in/a.json artifact file blob",
		dir + "/kept.txt artifact file blob"}
	if got := words(doc); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if !cmp.Equal(doc.Unmatched, []string{away + "/none", away + "/linked/x.json"}) {
		t.Errorf("unmatched: %v", doc.Unmatched)
	}
	if got := to.files[schema.BlobsDir+strings.TrimPrefix(doc.Artifacts[0].Blob, "sha256:")]; got.String() != "{}\n" {
		t.Errorf("kept %q", got)
	}
}

func TestTheContextEndsAWalk(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Begin(ctx, Options{Dir: t.TempDir(), Changes: true}); err == nil {
		t.Error("it went on")
	}
}

// withSum adds the checksum at the end of an index.
func withSum(b []byte) []byte {
	sum := sha1.Sum(b)
	return append(bytes.Clone(b), sum[:]...)
}
