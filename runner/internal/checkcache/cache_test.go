package checkcache

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func open(t *testing.T) *Cache {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root has a cache")
	}
	t.Setenv("CACHE_DIRECTORY", filepath.Join(t.TempDir(), "cache"))
	c := Open()
	if c == nil {
		t.Fatal("there is no cache")
	}
	return c
}

// nobody outlives the tests.
func nobody(string) {}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// An entry has the files of the directory, owned by the user, and no foreign files.
func TestAnEntryIsACopy(t *testing.T) {
	c, from, into := open(t), t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, "a/b/file"), "text", 0o644)
	write(t, filepath.Join(from, "tool"), "#!", 0o755)
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "secret", 0o600)
	old := time.Now().Add(-72 * time.Hour).Truncate(time.Second)
	for _, err := range []error{
		os.Link(secret, filepath.Join(from, "a/linked")), os.Symlink(secret, filepath.Join(from, "soft")),
		os.Symlink(filepath.Dir(secret), filepath.Join(from, "dir")),
		syscall.Mkfifo(filepath.Join(from, "pipe"), 0o600),
		os.Chtimes(filepath.Join(from, "tool"), old, old),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Store("key", from, 0, nobody); err != nil {
		t.Fatal(err)
	}
	if n := c.Load("other", into, 65534, 65534); n != 0 {
		t.Errorf("%d files of another entry", n)
	}
	if n := c.Load("key", into, 65534, 65534); n != 2 {
		t.Errorf("%d files, want 2", n)
	}
	got := map[string]string{}
	for _, name := range []string{"a/b/file", "tool", "a/linked", "soft", "dir", "pipe"} {
		info, err := os.Lstat(filepath.Join(into, name))
		if err != nil {
			continue
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 65534 {
			t.Errorf("%s is %d's", name, uid)
		}
		got[name] = info.Mode().String()
	}
	if want := map[string]string{"a/b/file": "-rw-------", "tool": "-rwx------"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if info, err := os.Stat(filepath.Join(into, "tool")); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("the time is not kept: %v, %v", info, err)
	}
}

// An entry is replaced if there is something new, and removed when it is unused.
func TestAnEntryIsKeptWhileItIsUsed(t *testing.T) {
	c, from := open(t), t.TempDir()
	write(t, filepath.Join(from, "one"), "1", 0o600)
	if err := c.Store("key", from, 0, nobody); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(from, "one"), "2", 0o600)
	if err := c.Store("key", from, 1, nobody); err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	c.Load("key", into, -1, -1)
	if b, _ := os.ReadFile(filepath.Join(into, "one")); string(b) != "1" {
		t.Errorf("one is %q: it was copied again", b)
	}
	write(t, filepath.Join(from, "two"), "2", 0o600)
	if err := c.Store("key", from, 1, nobody); err != nil {
		t.Fatal(err)
	}
	if n := c.Load("key", t.TempDir(), -1, -1); n != 2 {
		t.Errorf("%d files, want 2", n)
	}
	entry := filepath.Join(c.dir, "key")
	past := time.Now().Add(-unused - time.Hour)
	if err := os.Chtimes(entry, past, past); err != nil {
		t.Fatal(err)
	}
	if err := c.Store("other", from, 0, nobody); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(entry); !os.IsNotExist(err) {
		t.Errorf("the unused entry is still there: %v", err)
	}
}

// The directory must be root's alone.
func TestTheCacheIsRootsAlone(t *testing.T) {
	c := open(t)
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if Open() != nil {
		t.Error("others may look into it")
	}
	if err := os.Chmod(c.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(c.dir, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if Open() != nil {
		t.Error("it is another's")
	}
	var none *Cache
	if n, err := none.Load("key", t.TempDir(), -1, -1), none.Store("key", t.TempDir(), 0, nobody); n != 0 ||
		err != nil {
		t.Errorf("no cache: %d, %v", n, err)
	}
}

// TestMain plays a process that writes an entry of the cache, and says when it has written a part.
func TestMain(m *testing.M) {
	from := os.Getenv("ENTRY")
	if from == "" {
		os.Exit(m.Run())
	}
	var told []string
	copied, done, err := Open().begin(func(dir string) { told = append(told, dir) })
	if err == nil {
		_, err = copyTree(from, copied, -1, -1)
	}
	fmt.Println(copied, told, err)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
	done()
}

// A killed run leaves nothing in the cache once it is opened again, and a run that is still writing keeps its part.
func TestAKilledRunLeavesNothing(t *testing.T) {
	c, from := open(t), t.TempDir()
	write(t, filepath.Join(from, "file"), "text", 0o600)
	parts := func() []string {
		found, _ := filepath.Glob(filepath.Join(c.dir, making+"*", "of", "file"))
		return found
	}
	var runs []*exec.Cmd
	for range 2 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "ENTRY="+from)
		out, err := cmd.StdoutPipe()
		if err == nil {
			_, err = cmd.StdinPipe()
		}
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		line, err := bufio.NewReader(out).ReadString('\n')
		f := strings.Fields(line)
		if err != nil || len(f) != 3 || f[1] != "["+f[0]+"]" || f[2] != "<nil>" {
			t.Fatalf("the process says %q, %v", line, err)
		}
		runs = append(runs, cmd)
	}
	if n := len(parts()); n != 2 {
		t.Fatalf("%d parts are written, want 2", n)
	}
	if err := runs[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = runs[0].Wait()
	left := parts()
	if Open(); len(left) != 2 || len(parts()) != 1 {
		t.Errorf("%d parts after the kill and %d after the next Open, want 2 and 1", len(left), len(parts()))
	}
	if err := c.Store("key", from, 0, nobody); err != nil || c.Load("key", t.TempDir(), -1, -1) != 1 {
		t.Errorf("the entry cannot be made: %v", err)
	}
	if entries, _ := os.ReadDir(c.dir); len(entries) != 2 {
		t.Errorf("the cache has %v, want the part of the other process and an entry", entries)
	}
}
