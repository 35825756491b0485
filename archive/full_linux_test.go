package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// smallDisk mounts a tmpfs of so many bytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
			t.Skipf("mounting a small tmpfs needs root: %v", err)
		}
		t.Fatalf("mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { // after the spool's own
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// A full spool breaks the kernel layer and the capture, each counted, and the
// run is still recorded to its end and sealed elsewhere.
func TestAFullSpoolKeepsRoomForTheEnd(t *testing.T) {
	dir := smallDisk(t, "2m")
	s, err := CreateSpool(dir, testRun(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	shim, ms := "none", int64(0)
	appendEvent(t, s, schema.Event{Type: schema.RunStarted, AgentShim: &shim, Command: []string{"x"},
		EnvKeys: []string{}, WindowElapsedMS: &ms})
	var full error
	const lines = 20000
	for range lines {
		if err := s.Append(schema.KernelPath, func(b []byte, seq uint64) []byte {
			return kernelLine(b, testRunID, seq)
		}); err != nil {
			full = err
		}
	}
	if !errors.Is(full, syscall.ENOSPC) || !strings.Contains(full.Error(), schema.KernelPath) {
		t.Fatalf("the spool never became full: %v", full)
	}
	if b, err := os.ReadFile(filepath.Join(s.Dir(), schema.KernelPath)); err != nil ||
		!bytes.HasSuffix(b, []byte("}\n")) {
		t.Errorf("the broken layer ends in half a line: %q, %v", b[max(0, len(b)-50):], err)
	}
	w, err := s.Create(schema.StderrPath)
	if err == nil {
		// Whatever is still free goes to the capture, which breaks as well.
		for range 100 {
			if _, err = w.Write(make([]byte, 32<<10)); err != nil {
				break
			}
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the capture: %v", err)
	}
	if err := os.Truncate(filepath.Join(s.Dir(), schema.StderrPath), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	for range 200 {
		appendEvent(t, s, schema.Event{Type: schema.SignalForwarded, SignalName: strings.Repeat("x", 500)})
	}
	if err := s.Append(schema.PolicyPath, func(b []byte, _ uint64) []byte {
		return append(b, "{}"...)
	}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("another layer was given the space kept for the end: %v", err)
	}
	end(t, s, schema.Stdio{Mode: "pipe", Stderr: &schema.Stream{}})
	c := s.Counts(schema.KernelPath)
	if c.Dropped == 0 || c.Written == 0 || c.Written+c.Dropped != lines || c.Seen != lines {
		t.Errorf("kernel counts %+v of %d lines", c, lines)
	}
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r := mustBeSound(t, sealed.Path)
	if r.Lines[schema.KernelPath] != c.Written || r.Lines[schema.EventsPath] != 202 {
		t.Errorf("lines %v", r.Lines)
	}
}

// A surface for which there is no room is replaced by an empty one: the bundle has one
// member of that name, and is sound.
func TestASurfaceOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, "2m")
	s, err := CreateSpool(dir, testRun(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	shim, ms := "none", int64(0)
	appendEvent(t, s, schema.Event{Type: schema.RunStarted, AgentShim: &shim, Command: []string{"x"},
		EnvKeys: []string{}, WindowElapsedMS: &ms})
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	w, err := s.Create(schema.SurfacePath)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 4<<20)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the surface: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(schema.SurfacePath, []byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.Dir(), reserveName)); err != nil {
		t.Errorf("the room that the surface gave back was not used: %v", err)
	}
	end(t, s, schema.Stdio{Mode: "pipe"}) // which puts another one
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, sealed.Path)
}

// A full output disk leaves nothing there, and the spool for recover.
func TestAFullOutputLeavesNothing(t *testing.T) {
	out := smallDisk(t, "64k")
	run := testRun(t)
	run.Output = filepath.Join(out, "b.tar")
	s, dir := newSpool(t, run)
	record(t, s, 5000)
	_, err := s.Seal(context.Background())
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "recover --spool-dir "+dir+" "+testRunID) {
		t.Fatalf("seal: %v", err)
	}
	if left, _ := os.ReadDir(out); len(left) != 0 {
		t.Errorf("left on the full disk: %v", left)
	}
	if _, err := Recover(context.Background(), dir, testRunID, RecoverOptions{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("recover to the full disk: %v", err)
	}
	if left, _ := os.ReadDir(out); len(left) != 0 {
		t.Errorf("left on the full disk: %v", left)
	}
	sealed, err := Recover(context.Background(), dir, testRunID,
		RecoverOptions{Output: filepath.Join(t.TempDir(), "b.tar.gz")})
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, sealed.Path)
	if want := sealSample(t, "a.tar.gz", 5000).Identity; sealed.Identity != want {
		t.Errorf("identity %s, want %s", sealed.Identity, want)
	}
}

// A full disk leaves nothing of a bundle that redact makes, and the old one as it is.
func TestRedactOnAFullDisk(t *testing.T) {
	s, _ := newSpool(t, testRun(t))
	recordSecrets(t, s)
	noise := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	putBlob(t, s, noise)
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(sealed.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []string{"16k", "256k", "1m"} { // while members are unpacked, cleaned, and packed
		dir := smallDisk(t, size)
		r := newRedactor()
		r.Add(redact.RuleGiven, aSecret)
		if _, err := Redact(context.Background(), sealed.Path, filepath.Join(dir, "new.tar.gz"), r,
			RedactOptions{}); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("on a disk of %s: %v", size, err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("left on the full disk of %s: %v", size, left)
		}
	}
	if after, err := os.ReadFile(sealed.Path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the old bundle has changed: %v", err)
	}
}

// A run whose last search for secrets fills the disk seals nothing, says where its spool
// is, and loses nothing of it.
func TestASweepThatFillsTheDisk(t *testing.T) {
	dir := smallDisk(t, "3m")
	run := testRun(t)
	s, err := CreateSpool(dir, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	recordSecrets(t, s)
	text := bytes.Repeat([]byte("0123456789abcdef"), 128<<10) // 2 MiB
	blob := putBlob(t, s, text)
	r := newRedactor()
	r.Add(redact.RuleArgument, aSecret)
	s.Redact(r)
	if _, err := s.Seal(context.Background()); !errors.Is(err, syscall.ENOSPC) ||
		!strings.Contains(err.Error(), "take secrets out of") ||
		!strings.Contains(err.Error(), "recover --spool-dir "+dir+" "+testRunID) {
		t.Fatalf("seal: %v", err)
	}
	if _, err := os.Lstat(run.Output); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the output is there: %v", err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	sealed, err := Recover(context.Background(), dir, testRunID, RecoverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, content := members(t, sealed.Path); content[blob] != string(text) {
		t.Errorf("the blob has %d bytes", len(content[blob]))
	}
}

func putBlob(t *testing.T, s *Spool, data []byte) (path string) {
	t.Helper()
	sum := sha256.Sum256(data)
	path = schema.BlobsDir + hex.EncodeToString(sum[:])
	if err := s.Put(path, data); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOutputsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(output string) error
		want    string
	}{
		"a directory of the output's name": {func(o string) error { return os.Mkdir(o, 0o700) }, "not a regular file"},
		"a missing directory": {func(o string) error {
			return os.Remove(filepath.Dir(o))
		}, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			run := testRun(t)
			s, dir := newSpool(t, run)
			record(t, s, 3)
			if err := c.prepare(run.Output); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Seal(context.Background()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("seal: %v", err)
			}
			if list, _ := ListSpools(dir); len(list) != 1 || list[0].Alive {
				t.Errorf("spools %+v", list)
			}
		})
	}
}

func TestAnEarlierOutputIsReplaced(t *testing.T) {
	run := testRun(t)
	if err := os.WriteFile(run.Output, bytes.Repeat([]byte("old"), 100000), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := newSpool(t, run)
	record(t, s, 3)
	if _, err := s.Seal(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, run.Output)
}

// Where files have a name from the start, one that a killed process left is used again, and nothing else is.
func TestOutputsOfFileSystemsThatNeedNames(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(tmp string) error
		want    string // empty: it is written
	}{
		"nothing": {func(string) error { return nil }, ""},
		"the rest of a killed one": {func(tmp string) error {
			return os.WriteFile(tmp, []byte("a longer rest"), 0o600)
		}, ""},
		"a symlink": {func(tmp string) error { return os.Symlink("/dev/null", tmp) }, "not a regular file"},
		"a file with two names": {func(tmp string) error {
			return errors.Join(os.WriteFile(tmp+"2", nil, 0o600), os.Link(tmp+"2", tmp))
		}, "made by somebody else"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out")
			if err := c.prepare(path + ".tmp"); err != nil {
				t.Fatal(err)
			}
			out, err := OpenOutput(path, false)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			out.named = "out.tmp"
			f, err := out.tempNamed()
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteString("new"); err != nil {
				t.Fatal(err)
			}
			if err := out.commit(f); err != nil {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(path); string(got) != "new" {
				t.Errorf("it holds %q", got)
			}
			if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A process that is killed while it writes leaves what was there, and nothing else.
func TestNothingIsLeftOfAKilledWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=write:"+path+":")
	if err := cmd.Run(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the writer was not killed: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Errorf("it holds %q", got)
	}
}

// A run whose spool's disk is full is recovered to another one.
func TestRecoverElsewhereFromAFullDisk(t *testing.T) {
	dir := smallDisk(t, "2m")
	s, err := CreateSpool(dir, testRun(t))
	if err != nil {
		t.Fatal(err)
	}
	shim, ms := "none", int64(0)
	appendEvent(t, s, schema.Event{Type: schema.RunStarted, AgentShim: &shim, Command: []string{"x"},
		EnvKeys: []string{}, WindowElapsedMS: &ms})
	for range 1000 {
		if err := s.Append(schema.KernelPath, func(b []byte, seq uint64) []byte {
			return kernelLine(b, testRunID, seq)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "filler"))
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	sealed, err := Recover(context.Background(), dir, testRunID,
		RecoverOptions{Output: filepath.Join(t.TempDir(), "elsewhere.tar.gz")})
	if err != nil {
		t.Fatal(err)
	}
	if r := mustBeSound(t, sealed.Path); r.Lines[schema.KernelPath] != 1000 {
		t.Errorf("%d kernel lines", r.Lines[schema.KernelPath])
	}
}
