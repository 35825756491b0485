//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

func init() {
	children["dotdot"] = func([]string) {
		mkdir := func(path string) { check("mkdir", os.MkdirAll(path, 0o700)) }
		mkdir("real/sub")
		mkdir("here")
		check("symlink", os.Symlink("../real/sub", "here/link"))
		check("symlink", os.Symlink("here/link", "chain"))
		wd, _ := os.Getwd()
		check("symlink", os.Symlink(wd+"/real", "absolute"))
		for _, f := range []string{"here/victim", "real/victim", "real/sub/x", "real/y"} {
			check("write", os.WriteFile(f, nil, 0o600))
		}
		raw("unlink", cstr("here/link/../victim"))
		raw("unlinkat", dirfd("here"), cstr("link/x"), 0)
		raw("mkdir", cstr("chain/../"+strings.Repeat("long", 20)), 0o700)
		raw("mkdir", cstr("absolute/"+strings.Repeat("long", 20)+"/in"), 0o700)
		raw("rename", cstr("absolute/y"), cstr("./here/../chain/z"))
		raw("openat", atFDCWD, cstr("chain/none"), 0)
		raw("openat", atFDCWD, cstr("nowhere/../real/z"), 0)
		raw("openat", atFDCWD, cstr("../../../../../../../../nothing-here"), 0)
		raw("unlink", cstr("/proc/self/cwd/../none"))
		raw("unlink", cstr("/proc/./self/cwd/none"))
		raw("symlink", cstr("a"), cstr("loop"))
		raw("symlink", cstr("loop"), cstr("a"))
		raw("unlink", cstr("loop/none"))
		raw("rmdir", cstr("./real//sub/../sub/"))
		raw("rmdir", cstr("here/."))
		raw("chmod", cstr("here/.."), 0o755)
		// The same name means another file once the link has been replaced.
		for _, to := range []string{"real", "here"} {
			os.Remove("moving")
			check("symlink", os.Symlink(to, "moving"))
			raw("unlink", cstr("moving/absent"))
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		check("socket", err)
		unix.Connect(fd, &unix.SockaddrUnix{Name: "chain/../sock"})
	}
	children["crossing"] = func([]string) { // in a mount namespace of its own
		check("private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		check("mkdir", os.MkdirAll("a/b/c", 0o700))
		check("tmpfs", unix.Mount("none", "a/b", "tmpfs", 0, ""))
		check("mkdir", os.MkdirAll("a/b/in", 0o700))
		check("tmpfs", unix.Mount("none", "a/b/in", "tmpfs", 0, ""))
		check("tmpfs", unix.Mount("none", "a/b/in", "tmpfs", 0, "")) // on top
		check("write", os.WriteFile("a/b/in/f", nil, 0o600))
		check("write", os.WriteFile("a/g", nil, 0o600))
		check("symlink", os.Symlink("b/in", "a/to"))
		raw("unlink", cstr("a/to/f"))
		raw("unlink", cstr("a/to/../../g"))
		check("mkdir", os.Mkdir("a/b/in/deep", 0o700))
		raw("chroot", cstr("a/b"))
		check("chdir", unix.Chdir("/in/deep"))
		raw("unlink", cstr("../../../../nope"))
		raw("unlink", cstr("/../in/none"))
	}
}

// story tells events with names: kind, path, what was given, mark; dir is W.
func (s *session) story(dir string, kinds ...schema.KernelKind) (out []string) {
	for _, e := range s.events {
		for _, k := range kinds {
			if e.Kind != k {
				continue
			}
			line := k.String() + " " + e.Value
			if e.Target != "" {
				line += " -> " + e.Target
			}
			for _, g := range []string{e.Given, e.TargetGiven} {
				if len(g) > 0 {
					line += " given " + g
				}
			}
			if e.Marks&schema.MarkUnresolved != 0 {
				line += " (unresolved)"
			}
			if strings.Contains(line, dir) || e.Marks&schema.MarkUnresolved != 0 || len(e.Given) > 0 {
				out = append(out, strings.ReplaceAll(line, dir, "W"))
			}
		}
	}
	return out
}

// The name that is reported is that of the file that was touched: ".." and links
// on the way lead where they led the kernel.
func TestNamesAreResolvedAsTheKernelDid(t *testing.T) {
	// A short directory: of a link's target the kernel keeps up to 59 bytes where
	// the programs can read them (EXT4_N_BLOCKS in fs/ext4/ext4.h).
	short, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	s, dir, err := observed(t, "dotdot", func(_ *session, c *exec.Cmd) { c.Dir = short })
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("long", 20)
	want := []string{
		"unlink W/real/victim given here/link/../victim",
		"unlink W/real/sub/x given link/x",
		"unlink " + filepath.Dir(dir) + "/none given /proc/self/cwd/../none",
		"unlink /proc/self/cwd/none given /proc/./self/cwd/none (unresolved)",
		"unlink W/loop/none given loop/none (unresolved)",
		"rmdir W/real/sub given ./real//sub/../sub/",
		"rmdir W/here",
		"unlink W/moving",
		"rmdir W/moving", // os.Remove tries both
		"unlink W/real/absent given moving/absent",
		"unlink W/moving",
		"unlink W/here/absent given moving/absent",
	}
	if d := cmp.Diff(want, s.story(dir, schema.KindUnlink, schema.KindRmdir)); d != "" {
		t.Errorf("removals (-want +got):\n%s", d)
	}
	if _, err := os.Stat(filepath.Join(dir, "here/victim")); err != nil {
		t.Error(err)
	}
	want = []string{"W/real", "W/real/sub", "W/here", "W/real/" + long + " given chain/../" + long,
		"W/real/" + long + "/in given absolute/" + long + "/in"}
	var got []string
	for _, l := range s.story(dir, schema.KindMkdir) {
		if l := strings.TrimPrefix(l, "mkdir "); len(got) == 0 || l != got[len(got)-1] {
			got = append(got, l)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("directories (-want +got):\n%s", d)
	}
	want = []string{"rename W/real/y -> W/real/sub/z given absolute/y given ./here/../chain/z"}
	if d := cmp.Diff(want, s.story(dir, schema.KindRename)); d != "" {
		t.Errorf("renames (-want +got):\n%s", d)
	}
	want = []string{"chmod W given here/..", "connect unix:W/real/sock given chain/../sock"}
	if d := cmp.Diff(want, s.story(dir, schema.KindChmod, schema.KindConnect)); d != "" {
		t.Errorf("others (-want +got):\n%s", d)
	}
	want = []string{"openat W/real/sub/none given chain/none", "openat W/nowhere/../real/z (unresolved)",
		"openat /nothing-here given ../../../../../../../../nothing-here"}
	got = nil
	for _, l := range s.story(dir, schema.KindOpen) {
		if strings.Contains(l, "none") || strings.Contains(l, "no") && strings.Contains(l, "..") &&
			!strings.HasPrefix(l, "openat W/proc") {
			got = append(got, l)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("failed opens (-want +got):\n%s", d)
	}
}

func TestNamesAreResolvedAcrossMounts(t *testing.T) {
	s, dir, err := observed(t, "crossing", func(_ *session, c *exec.Cmd) {
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"unlink W/a/b/in/f given a/to/f",
		"unlink W/a/g given a/to/../../g",
		"unlink W/a/b/nope given ../../../../nope",
		"unlink W/a/b/in/none given /../in/none",
	}
	if d := cmp.Diff(want, s.story(dir, schema.KindUnlink)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
