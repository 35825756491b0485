package startup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// configs are configuration files whose meaning git and parseConfig must agree on.
var configs = []string{
	"", "[a]\nb\n", "[a]\n\tb = c ; d\n", "[A.B]\nC=d\n", "[a \"B \\\" \\\\ c\"]\nd = \" x \" y \\\"z\\\"\n",
	"[a] b = c\n[a \"x]y\"] d=e\n", "\ufeff[a]\nb = c\n",
	"[a]\nb = one\\\n  two # three\n", "[a]\r\nb = c\r\n",
	"[a]\nb = \"x # y\" ; z\n\tc=\\t\\n\\b\n", "[a]\nb =\nc = \"\"\n", "[a]\nb = x\ty  z  \n",
	"# [x]\n;y\n[a]\n  b-1 = 2",
	"[remote \"o\"]\nurl = a\nurl = b\n[remote \"o\"]\n\tfetch = +refs/heads/*:refs/remotes/o/*\n",
}

// gitLists is a file's configuration as git tells it.
func gitLists(t *testing.T, text string) (entries []string, ok bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "config", "--file", path, "--list", "-z").Output()
	if err != nil {
		return nil, false
	}
	for e := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if key, value, has := strings.Cut(e, "\n"); has {
			entries = append(entries, plain(key+"="+value))
		} else if e != "" {
			entries = append(entries, key+"=true")
		}
	}
	return entries, true
}

// plain is an entry without tabs, which git before 2.45 reads as spaces in values without quotes.
func plain(entry string) string { return strings.ReplaceAll(entry, "\t", " ") }

func parsed(text string) (entries []string) {
	for _, e := range parseConfig(text) {
		entries = append(entries, plain(e.key+"="+e.value))
	}
	return entries
}

func needGit(t testing.TB) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
}

func TestConfigurationIsReadAsGitReadsIt(t *testing.T) {
	needGit(t)
	for _, text := range configs {
		want, ok := gitLists(t, text)
		if diff := cmp.Diff(want, parsed(text)); !ok || diff != "" {
			t.Errorf("%q (git: %v): -git +parsed:\n%s", text, ok, diff)
		}
	}
}

// FuzzConfig compares with git what git accepts.
func FuzzConfig(f *testing.F) {
	needGit(f)
	for _, text := range configs {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "\x00") {
			t.Skip("git lists no NUL")
		}
		want, ok := gitLists(t, text)
		if diff := cmp.Diff(want, parsed(text)); ok && diff != "" {
			t.Errorf("%q: -git +parsed:\n%s", text, diff)
		}
	})
}

func TestMergeBringsBackOrdinaryWorkAlone(t *testing.T) {
	needGit(t)
	before := "[core]\n\tbare = false\n# a comment\n" +
		"[branch \"old\"]\n\tremote = o\n[remote \"o\"] url = a\n" +
		"\tfetch = x\n"
	after := "[core]\n\tbare = true\n\tpager = evil\n" + "[remote \"o\"]\n\turl = b\\\\\\\"\n\turl = c\n\tfetch = x\n" +
		"[branch \"a \\\"b\"]\n\tmerge = \" d \"\n\tupdate = evil\n" +
		"[remote \"e\"]\n\turl = ext::evil\n\tuploadpack = evil\n"
	now := before + "[user]\n\tname = somebody\n"
	merged, dropped := Merge(before, now, after)
	got, ok := gitLists(t, merged)
	want := []string{"core.bare=false", "remote.o.fetch=x", "user.name=somebody", `remote.o.url=b\"`, "remote.o.url=c",
		`branch.a "b.merge= d `}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, merged)
	}
	slices.Sort(dropped)
	lost := []string{`branch.a "b.update`, "core.bare", "core.pager", "remote.e.uploadpack", "remote.e.url"}
	if diff := cmp.Diff(lost, dropped); diff != "" || !strings.Contains(merged, "# a comment\n") {
		t.Errorf("dropped -want +got:\n%s\n%s", diff, merged)
	}
}

// TestEverythingIsSearched has a repository behind more names than any bound, and one whose configuration leads on.
func TestEverythingIsSearched(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30_000 {
		if i%100 == 0 {
			write(fmt.Sprintf("many/%d/x", i/100), "")
		}
		if err := os.Symlink("x", filepath.Join(dir, fmt.Sprintf("many/%d/l%d", i/100, i))); err != nil {
			t.Fatal(err)
		}
	}
	repository := func(at string) {
		write(at+"/HEAD", "ref: refs/heads/main\n")
		write(at+"/objects/x", "")
		write(at+"/refs/x", "")
	}
	repository("z/z/.git")
	write("z/z/.git/config", "[include]\n\tpath = ../more\n[core]\n\thooksPath = hooks\n"+
		"[filter \"f\"]\n\tclean = sh run.sh %f\n")
	write("z/z/more", "[includeIf \"onbranch:x\"]\n\tpath = ~/nothing\n[alias]\n\tx = !y\n")
	write("z/z/hooks/pre-commit", "#!/bin/sh\n")
	write("z/z/run.sh", "")
	write("z/z/sub/.gitattributes", "*.c filter=f\n")
	repository("bare")
	write("bare/config", "[core]\n\tbare = true\n")
	set := Search(context.Background(), Where{Dir: dir, Home: filepath.Join(dir, "home")})
	for _, path := range []string{"z/z/.git/config", "z/z/more", "z/z/hooks", "z/z/hooks/pre-commit", "z/z/run.sh",
		"z/z/.envrc", "home/nothing", "home/.bashrc", "bare/config", "bare/hooks", ".envrc"} {
		if !slices.Contains(set.Files, filepath.Join(dir, path)) {
			t.Errorf("%s is not a file that programs obey: %q", path, set.Files)
		}
	}
	var what []string
	for _, c := range set.Since(&Set{}) {
		what = append(what, strings.TrimPrefix(c.Where, dir)+" "+c.What)
	}
	want := []string{"/z/z git's alias.x", "/z/z git's attribute filter=f", "/z/z git's core.hookspath",
		"/z/z git's filter.f.clean", "/z/z git's filter.f.clean", "/z/z git's hook pre-commit",
		"/z/z git's include.path",
		"/z/z git's includeif.onbranch:x.path"}
	if diff := cmp.Diff(want, what); diff != "" || set.Names < 30_000 || len(set.Unsearched) > 0 {
		t.Errorf("%d names, unsearched %q, -want +got:\n%s", set.Names, set.Unsearched, diff)
	}
}

func TestASearchThatIsCutSaysSo(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	dir := t.TempDir()
	if set := Search(ctx, Where{Dir: dir}); !set.Cut || !slices.Equal(set.Unsearched, []string{dir}) {
		t.Errorf("%+v", set)
	}
}
