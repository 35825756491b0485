//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

func init() {
	children["deep"] = func([]string) {
		fd := unix.AT_FDCWD
		for i := range 300 {
			check("mkdirat", unix.Mkdirat(fd, "d", 0o755))
			next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			check("openat", err)
			if i == 199 || i == 299 {
				f, err := unix.Openat(next, fmt.Sprintf("file%d", i+1), unix.O_CREAT, 0o600)
				check("openat", err)
				unix.Close(f)
			}
			fd = next
		}
	}
	children["deleted"] = func([]string) {
		check("write", os.WriteFile("f", []byte("x"), 0o600))
		f, err := unix.Open("f", unix.O_RDONLY, 0)
		check("open", err)
		check("unlink", unix.Unlink("f"))
		_, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", f), unix.O_RDONLY, 0)
		check("reopen", err)
		check("mkdir", os.Mkdir("gone", 0o755))
		check("chdir", os.Chdir("gone"))
		check("rmdir", unix.Rmdir("../gone"))
		unix.Open("x", unix.O_CREAT, 0o600)
	}
	children["mounts"] = func([]string) { // in a mount namespace of its own
		check("private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		for _, d := range []string{"a", "b", "low", "up", "work", "over"} {
			check("mkdir", os.Mkdir(d, 0o755))
		}
		check("write", os.WriteFile("a/f", nil, 0o600))
		check("write", os.WriteFile("low/g", nil, 0o600))
		check("bind", unix.Mount("a", "b", "", unix.MS_BIND, ""))
		open("b/f")
		check("tmpfs", unix.Mount("tmpfs", "work", "tmpfs", 0, ""))
		check("mkdir", os.MkdirAll("work/up", 0o755))
		check("mkdir", os.MkdirAll("work/work", 0o755))
		err := unix.Mount("overlay", "over", "overlay", 0, "lowerdir=low,upperdir=work/up,workdir=work/work")
		if err == unix.ENODEV { // this kernel has no overlayfs
			return
		}
		check("overlay", err)
		open("over/g")
	}
	children["elsewhere"] = func([]string) { // in a mount namespace of its own
		before := int(os.NewFile(3, "").Fd()) // of the one that the test is in
		check("private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		_, err := unix.Openat(before, "before", unix.O_CREAT, 0o600)
		check("openat", err)
		check("mkdir", os.Mkdir("tree", 0o755))
		tree, err := unix.OpenTree(unix.AT_FDCWD, "tree", unix.OPEN_TREE_CLONE)
		check("open_tree", err)
		_, err = unix.Openat(tree, "detached", unix.O_CREAT, 0o600)
		check("openat", err)
		check("mkdirat", unix.Mkdirat(tree, "dir", 0o700))
		check("move_mount", unix.MoveMount(tree, "", unix.AT_FDCWD, "tree", unix.MOVE_MOUNT_F_EMPTY_PATH))
		_, err = unix.Openat(tree, "attached", unix.O_CREAT, 0o600)
		check("openat", err)
	}
	children["lengths"] = func([]string) { // of names: pairs that differ in the last byte
		for _, n := range nameLengths {
			for _, last := range "ab" {
				name := strings.Repeat("n", n-1) + string(last)
				check("mkdir", os.Mkdir(name, 0o700))
				_, err := unix.Open(name+"/"+name, unix.O_CREAT|unix.O_CLOEXEC, 0o600)
				check("create", err)
				open(name + "/" + name)
			}
		}
	}
	children["unreadable"] = func([]string) {
		raw("openat", atFDCWD, 8, 0, 0)
		raw("renameat", atFDCWD, cstr("there"), atFDCWD, 8)
	}
}

// nameLengths are those about the ends of words, and of what a dentry has room for.
var nameLengths = []int{1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 38, 39, 40, 41, 48, 49, 254, 255}

func TestNamesOfAnyLength(t *testing.T) {
	s, dir, err := observed(t, "lengths", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nameLengths {
		for _, last := range "ab" {
			name := strings.Repeat("n", n-1) + string(last)
			if got := s.find(schema.KindOpen, path(dir+"/"+name+"/"+name)); len(got) != 2 {
				t.Errorf("a name of %d bytes: %d events, want 2", n, len(got))
			}
		}
	}
}

func TestDeepDirectories(t *testing.T) {
	s, dir, err := observed(t, "deep", nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := dir + strings.Repeat("/d", 200) + "/file200"
	if got := s.find(schema.KindOpen, path(whole)); len(got) != 1 || got[0].Truncated != 0 {
		t.Errorf("the 200 deep file: %d events", len(got))
	}
	got := s.find(schema.KindOpen, func(e *Event) bool { return strings.HasSuffix(e.Value, "/file300") })
	if len(got) != 1 || got[0].Truncated == 0 {
		t.Errorf("the 300 deep file is not marked: %d events", len(got))
	}
}

func TestDeletedFiles(t *testing.T) {
	s, dir, err := observed(t, "deleted", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.find(schema.KindOpen, func(e *Event) bool {
		return e.Marks&schema.MarkDeleted != 0 && e.Value == dir+"/f"
	}); len(got) != 1 {
		t.Errorf("reopening a deleted file: %d events", len(got))
	}
	if got := s.find(schema.KindOpen, path(dir+"/gone/x")); len(got) != 1 || got[0].Errno != int32(unix.ENOENT) ||
		got[0].Marks&schema.MarkUnreachable == 0 {
		t.Errorf("open in a deleted directory: %d events", len(got))
	}
}

func TestMounts(t *testing.T) {
	s, dir, err := observed(t, "mounts", func(_ *session, c *exec.Cmd) {
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/b/f", "/over/g"} {
		if p == "/over/g" && len(s.find(schema.KindMount, func(e *Event) bool {
			return e.Errno == int32(unix.ENODEV)
		})) > 0 {
			t.Log("this kernel has no overlayfs")
			continue
		}
		if len(s.find(schema.KindOpen, path(dir+p))) != 1 {
			t.Errorf("open of %s was not seen", p)
		}
	}
	if got := s.find(schema.KindMount, nil); len(got) != 4 {
		t.Errorf("%d mounts, want 4", len(got))
	}
}

// What is not below the root of the caller's mount namespace is marked: its path
// begins at a mount which is nowhere that the caller could name.
func TestOtherNamespacesAndDetachedMounts(t *testing.T) {
	s, dir, err := observed(t, "elsewhere", func(_ *session, c *exec.Cmd) {
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		f, err := os.Open(c.Dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		c.ExtraFiles = []*os.File{f}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		kind        schema.KernelKind
		path        string
		unreachable bool
	}{
		{schema.KindOpen, dir + "/before", true}, {schema.KindOpen, "/detached", true},
		{schema.KindMkdir, "/dir", true},
		{schema.KindOpen, dir + "/tree/attached", false}, {schema.KindMkdir, dir + "/tree", false},
	} {
		if got := s.find(w.kind, path(w.path)); len(got) != 1 ||
			(got[0].Marks&schema.MarkUnreachable != 0) != w.unreachable {
			t.Errorf("%s: %d events", w.path, len(got))
		}
	}
}

// A name that the kernel could not read is no name for the directory that it
// would have been relative to.
func TestUnreadableNames(t *testing.T) {
	s, dir, err := observed(t, "unreadable", nil)
	if err != nil {
		t.Fatal(err)
	}
	bad := func(e *Event) bool { return e.Errno == int32(unix.EFAULT) && e.Marks&schema.MarkUnreadable != 0 }
	if got := s.find(schema.KindOpen, bad); len(got) != 1 || len(got[0].Value) != 0 {
		t.Errorf("%d opens", len(got))
	}
	if got := s.find(schema.KindRename, bad); len(got) != 1 || got[0].Value != dir+"/there" || len(got[0].Target) != 0 {
		t.Errorf("%d renames", len(got))
	}
	if n := s.report.Hooks[HookOpen].FailedReads; n != 0 {
		t.Errorf("%d reads failed that the kernel's own had failed before", n)
	}
}
