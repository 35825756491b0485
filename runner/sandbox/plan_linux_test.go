package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// TestRulesAgainstEachOther has rules about a directory and what is in it: the most specific one decides, and what
// cannot hold together is named.
func TestRulesAgainstEachOther(t *testing.T) {
	const top = "/var/tmp/TOP/home" // TOP becomes a new directory
	for _, c := range []struct {
		name                  string
		mode                  string
		write, keep, no, read []string
		script                string // runs in home/project
		err                   []string
		mounts                bool // exceptions in what can be written need a mount namespace
	}{
		{name: "deny home, work in the project", mode: sandboxfile.WorkspaceWrite, no: []string{top},
			script: `cat f && touch new && ! ls .. && ! cat ../secret`},
		{name: "the same, where nothing may be written", mode: sandboxfile.ReadOnly, no: []string{top},
			script: `cat f && ! touch new && ! ls .. && ! cat ../secret`},
		{name: "deny home, allow reading some of it", mode: sandboxfile.WorkspaceWrite, no: []string{top},
			read: []string{top + "/open"}, script: `cat ../open/f && ! touch ../open/new && ! cat ../secret`},
		{name: "deny home, allow writing some of it", mode: sandboxfile.WorkspaceWrite, no: []string{top},
			write: []string{top + "/open"}, script: `cat ../open/f && touch ../open/new && ! cat ../secret`},
		{name: "deny home, allow some of it, deny a part of that", mounts: true, mode: sandboxfile.WorkspaceWrite,
			no: []string{top, top + "/open/sub", top + "/project/sub"}, read: []string{top + "/open"},
			script: `cat ../open/f && ! cat ../open/sub/f && ! cat sub/f && cat f`},
		{name: "allow, keep a part, allow a part of that", mounts: true, mode: sandboxfile.WorkspaceWrite,
			write: []string{top + "/open/sub/deep"}, keep: []string{top + "/open", top + "/project/sub"},
			script: `touch ../open/sub/deep/new && ! touch ../open/new && ! touch sub/new && touch new`},
		{name: "keep home, work in the project", mounts: true, mode: sandboxfile.WorkspaceWrite, keep: []string{top},
			write: []string{"/var/tmp/TOP"}, script: `touch new && ! touch ../new && touch ../../new`},
		{name: "a name against a pattern", mounts: true, mode: sandboxfile.WorkspaceWrite, no: []string{top + "/*/f"},
			read: []string{top + "/open/f"}, script: `cat ../open/f && ! cat f`},
		{name: "deny the working directory", mode: sandboxfile.WorkspaceWrite, no: []string{top + "/project"},
			err: []string{"filesystem.denyRead[0] and the working directory cannot hold together"}},
		{name: "write what must not be read", mode: sandboxfile.WorkspaceWrite, no: []string{top + "/open"},
			write: []string{top + "/open"},
			err:   []string{"filesystem.allowWrite[0] and filesystem.denyRead[0] cannot hold together"}},
		{name: "deny everything", mode: sandboxfile.WorkspaceWrite, no: []string{"/"},
			err: []string{"filesystem.denyRead[0] hides /"}},
	} {
		for _, w := range everybody {
			t.Run(c.name+"/"+w.name, func(t *testing.T) {
				w.can(t)
				if w.noUserns && c.mounts {
					t.Skip("exceptions in what can be written need a mount namespace")
				}
				j := shell(t, c.script)
				at := filepath.Dir(j.Dir)
				j.Dir = at + "/home/project"
				for _, dir := range []string{"project/sub", "open/sub/deep"} {
					if err := os.MkdirAll(at+"/home/"+dir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				for _, f := range []string{"project/f", "project/sub/f", "open/f", "open/sub/f", "secret"} {
					if err := os.WriteFile(at+"/home/"+f, nil, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				chown(t, at, w.uid)
				here := func(paths []string) (list []string) {
					for _, p := range paths {
						list = append(list, strings.Replace(p, "/var/tmp/TOP", at, 1))
					}
					return list
				}
				j.Settings = sandboxfile.Settings{Mode: c.mode, Filesystem: &sandboxfile.Filesystem{
					AllowWrite: here(c.write),
					DenyWrite:  here(c.keep), DenyRead: here(c.no), AllowRead: here(c.read)}}
				if w.noUserns {
					j.Settings.OnUnavailable = sandboxfile.Degrade
				}
				o := w.run(t, j)
				for _, want := range c.err {
					if !strings.Contains(o.Err, want) {
						t.Errorf("the error is %q, not %q", o.Err, want)
					}
				}
				if len(c.err) == 0 && (o.Err != "" || o.Code != 0) {
					t.Errorf("%+v\n%s", o, o.out)
				}
			})
		}
	}
}

// TestPlanNamesRules asks the plan about paths.
func TestPlanNamesRules(t *testing.T) {
	dir := scratch(t)
	for _, d := range []string{"work/vendor/out", "work/vendor.d", "home"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := sandboxfile.Settings{Mode: sandboxfile.WorkspaceWrite, Filesystem: &sandboxfile.Filesystem{
		DenyWrite:  []string{"vendor", dir},
		AllowWrite: []string{"vendor/out"}, DenyRead: []string{dir + "/home"}}}
	p, err := Resolve(&s, Context{Dir: dir + "/work"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/work/new": "write mode", "/work/vendor/x/y": "read filesystem.denyWrite[0]",
		"/work/vendor.d/x": "write mode", "/work/vendor/out/x": "write filesystem.allowWrite[0]",
		"/home/x": "none filesystem.denyRead[0]", "/other": "read filesystem.denyWrite[1]", "/../x": "read mode",
	} {
		e := p.Plan.Path(filepath.Clean(dir + path))
		if got := fmt.Sprintf("%s %s", e.Access, e.Rule); got != want {
			t.Errorf("%s: %s, not %s", path, got, want)
		}
	}
}

// BenchmarkRules starts a command with few and with many rules.
func BenchmarkRules(b *testing.B) {
	dir := b.TempDir()
	var rules []string
	for i := range 3000 {
		path := filepath.Join(dir, fmt.Sprint("f", i))
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			b.Fatal(err)
		}
		rules = append(rules, path)
	}
	for _, n := range []int{30, 3000} {
		s := sandboxfile.Settings{Mode: sandboxfile.WorkspaceWrite,
			Filesystem: &sandboxfile.Filesystem{DenyRead: rules[:n]}}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				p, err := Resolve(&s, Context{Dir: dir})
				if err != nil {
					b.Fatal(err)
				}
				if _, _, err := p.plan(true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
