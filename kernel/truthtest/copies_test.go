//go:build linux && amd64

package truthtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// A name is the one that the kernel used, however soon another thread or a device
// changes the memory that it came from, and nothing about it is claimed.
func TestNamesAreTheKernelsCopies(t *testing.T) {
	for _, c := range []struct {
		name  string
		users []user
		calls map[string]schema.KernelKind
	}{
		{"flipped", users, map[string]schema.KernelKind{
			"unlink": schema.KindUnlink, "rmdir": schema.KindRmdir, "mkdir": schema.KindMkdir,
			"mknod":   schema.KindMknod,
			"symlink": schema.KindSymlink, "link": schema.KindLink, "rename": schema.KindRename,
			"chmod": schema.KindChmod,
		}},
		{"read-into", users, map[string]schema.KernelKind{"mkdir": schema.KindMkdir, "unlink": schema.KindUnlink}},
	} {
		for _, as := range c.users {
			t.Run(c.name+"/"+as.name, func(t *testing.T) {
				need(t)
				dir := t.TempDir()
				r := as.attack(t, dir, c.name)
				r.claims(t)
				want := map[string]bool{}
				for name := range strings.FieldsSeq(r.out) {
					want[name] = true
				}
				if len(want) != as.times*len(c.calls) {
					t.Fatalf("the program made %d calls", len(want))
				}
				var wrong, read, claimed int
				for i := range r.events {
					e := &r.events[i]
					path := e.Value
					if e.Kind == schema.KindRename || e.Kind == schema.KindLink {
						path = e.Target
					}
					name, inside := strings.CutPrefix(path, dir+"/")
					parts := strings.Split(name, "-")
					if !inside || len(parts) != 3 || c.calls[parts[1]] != e.Kind {
						continue
					}
					if !want[name] {
						wrong++
					}
					delete(want, name)
					if !e.KernelCopy {
						read++
					}
					if e.Claimed {
						claimed++
					}
				}
				if wrong+len(want)+read+claimed > 0 {
					t.Errorf("%d names are wrong, %d missing, %d not the kernel's copy, %d claimed", wrong, len(want),
						read, claimed)
				}
			})
		}
	}
}

// Two names that stood at one place are the kernel's, or claimed: which copy is which is not known.
func TestTwoNamesFromOnePlace(t *testing.T) {
	asEach(t, users, func(t *testing.T, as user) {
		dir := t.TempDir()
		r := as.attack(t, dir, "one-name-twice")
		moved := map[string]bool{}
		out, _, _ := strings.Cut(r.out, "assay-run: ")
		for n := range strings.FieldsSeq(out) {
			moved[n] = true
		}
		var all, claimed int
		for i := range r.events {
			e := &r.events[i]
			n, twice := strings.CutPrefix(e.Value, dir+"/a-twice-")
			if !twice {
				n, twice = strings.CutPrefix(e.Value, dir+"/b-twice-")
			}
			if e.Kind != schema.KindRename || !twice || e.Target == dir+"/old" || e.Failed() {
				continue
			}
			all++
			if e.Claimed {
				claimed++
				continue
			}
			right := dir + "/a-twice-" + n
			if moved[n] {
				right = dir + "/b-twice-" + n
			}
			if e.Value != dir+"/a-twice-"+n || e.Target != right {
				t.Errorf("%s was renamed to %s, which nobody did and nothing marks", e.Value, e.Target)
			}
		}
		if len(moved) == 0 || all < len(moved) {
			t.Errorf("%d renames of one place moved a file, %d are in the layer", len(moved), all)
		}
		t.Logf("%d moved a file, %d in the layer, %d claimed", len(moved), all, claimed)
	})
}

// What a call changes through a link is named, with the link as it was given, and not
// the link.
func TestChangesThroughLinks(t *testing.T) {
	asEach(t, users, func(t *testing.T, as user) {
		dir := t.TempDir()
		r := as.attack(t, dir, "through-links")
		r.claims(t)
		var got []string
		for i := range r.events {
			e := &r.events[i]
			if e.Failed() {
				continue
			}
			switch e.Kind {
			case schema.KindChmod, schema.KindChown, schema.KindTruncate, schema.KindUtime, schema.KindSetxattr,
				schema.KindLink, schema.KindMount:
				line := strings.TrimPrefix(e.Value, dir+"/")
				if e.Given != "" {
					line += " by " + e.Given
				}
				if e.Marks != 0 {
					line += " unresolved"
				}
				got = append(got, fmt.Sprintf("%s %s", e.Kind, line))
			}
		}
		want := []string{
			"chmod outside/chmod by l-chmod", "chmod outside/fchmodat by l-fchmodat", "chown outside/chown by l-chown",
			"truncate outside/truncate by l-truncate", "utime outside/utimensat by l-utimensat",
			"utime outside/utime by l-utime",
			"setxattr outside/setxattr by l-setxattr", "link outside/linkat by l-linkat", "chown inside/l-lchown",
			"link inside/l-link",
			"chmod outside/magic by /proc/self/fd/3",
		}
		if as.name == "root" { // the others may not
			const mount = "mount outside/d-mount by inside/l-mount"
			want = append(want, mount, mount)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}
