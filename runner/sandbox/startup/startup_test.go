package startup

import (
	"context"
	"errors"
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

// TestAKeyEndsWithItsNUL holds that what git takes for remote.o.uploadpack is not brought back as remote.*.url.
func TestAKeyEndsWithItsNUL(t *testing.T) {
	needGit(t)
	after := "[remote \"o.uploadpack\x00\"]\n\turl = evil\n[remote \"p\"]\n\turl = ok\x00no\n"
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(after), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "config", "--file", path, "remote.o.uploadpack").Output()
	if err != nil || string(out) != "evil\n" {
		t.Fatalf("git reads %q, %v", out, err)
	}
	merged, dropped := Merge("", "", after)
	want := "[remote \"p\"]\n\turl = \"ok\"\n"
	if merged != want || !slices.Equal(dropped, []string{"remote.o.uploadpack"}) {
		t.Errorf("merged %q, dropped %q", merged, dropped)
	}
}

// TestWhatGitObeysIsFound has git itself say that it obeys a configuration, however a directory leads to it.
func TestWhatGitObeysIsFound(t *testing.T) {
	needGit(t)
	const evil = "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = evil\n"
	for what, script := range map[string]string{
		"a path that ends with NUL":   `mkdir w; printf 'gitdir: %s/evil\0x' "$PWD" >w/.git`,
		"a common directory with NUL": `git init -q w; printf '../../evil\0x' >w/.git/commondir`,
		"what .. is after a link": `mkdir -p w far/x; mv evil far
			ln -s ../far/x w/l; echo gitdir: l/../evil >w/.git`,
		"more configuration than anybody has": `git init -q w; cp evil/config w/.git/config
			head -c 5000000 /dev/zero | tr '\0' '\n' >>w/.git/config`,
	} {
		dir := t.TempDir()
		w := filepath.Join(dir, "w")
		cmd := exec.Command("sh", "-e", "-c", "git init -q --bare evil; cat >evil/config; "+script)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(evil)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", what, err, out)
		}
		if out, err := exec.Command("git", "-C", w, "config", "core.fsmonitor").Output(); string(out) != "evil\n" {
			t.Errorf("%s: git does not obey it: %q, %v", what, out, err)
		}
		if set := Search(context.Background(), Where{Dir: w}); len(set.Since(&Set{})) == 0 {
			t.Errorf("%s: nothing was found", what)
		}
	}
}

// TestWhatGitDoesLaterIsFound has git start a program, or write to a directory outside, only when somebody asks it to
// go on in what the command left.
func TestWhatGitDoesLaterIsFound(t *testing.T) {
	needGit(t)
	for what, c := range map[string]struct{ script, later, found string }{
		"a rebase with a command": {`mkdir .git/rebase-merge; cd .git/rebase-merge; echo ' x touch ran' >git-rebase-todo
			git rev-parse HEAD | tee onto >orig-head; echo refs/heads/main >head-name`,
			"git rebase --continue; test -e ran", "git's rebase"},
		"a rebase without one": {`mkdir .git/rebase-merge; echo pick HEAD >.git/rebase-merge/git-rebase-todo`, "true", ""},
		"a working tree that is somebody else's": {`mkdir ../home; echo evil >profile; git add .; git commit -qm y
			git config core.worktree "$PWD/../home"`, "git reset --hard; test -e ../home/profile", "git's core.worktree"},
		"a submodule": {`git -c protocol.file.allow=always submodule --quiet add "$PWD" sub`,
			"git -C sub reset --hard", ".gitmodules"},
		"a remote with a hook": {`git init -q --bare ../r; printf '#!/bin/sh\ntouch ran\n' >../r/hooks/update
			chmod +x ../r/hooks/update; git remote add o ../r`, "git push -q o main; test -e ../r/ran", "git's hook update"},
		"a branch of a program": {`git config branch.main.remote "ext::touch ran"; git config branch.main.merge x`,
			"! git -c protocol.ext.allow=always pull; test -e ran", "git's branch.main.remote"},
	} {
		dir := t.TempDir()
		w := filepath.Join(dir, "w")
		run := func(script string) {
			t.Helper()
			cmd := exec.Command("sh", "-e", "-c", script)
			cmd.Dir, cmd.Env = w, append(os.Environ(), "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=user.name",
				"GIT_CONFIG_VALUE_0=a", "GIT_CONFIG_KEY_1=user.email", "GIT_CONFIG_VALUE_1=a@b")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", what, err, out)
			}
		}
		if err := os.Mkdir(w, 0o755); err != nil {
			t.Fatal(err)
		}
		run("git init -q -b main; git commit -q --allow-empty -m x")
		run(c.script)
		var found []string
		for _, change := range Search(context.Background(), Where{Dir: w, Tops: []string{dir}}).Since(&Set{}) {
			found = append(found, change.What)
		}
		if strings.Join(found, " ") != c.found {
			t.Errorf("%s: found %q, want %q", what, found, c.found)
		}
		run(c.later)
	}
}

// TestWhatTheUsersConfigurationIncludesIsFound has the user's configuration in the working directory.
func TestWhatTheUsersConfigurationIncludesIsFound(t *testing.T) {
	dir := t.TempDir()
	w := Where{Dir: filepath.Join(dir, "dotfiles"), Home: dir}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(w.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(".gitconfig", "[include]\n\tpath = dotfiles/common\n\tpath = ~/dotfiles/local\n")
	write("dotfiles/common", "[user]\n\tname = a\n")
	before := Search(context.Background(), w)
	for _, name := range []string{"common", "local"} {
		if !slices.Contains(before.Files, filepath.Join(w.Dir, name)) {
			t.Errorf("%s is not a file that programs obey", name)
		}
		write("dotfiles/"+name, "[core]\n\tpager = evil\n")
	}
	if changes := Search(context.Background(), w).Since(before); len(changes) != 2 {
		t.Errorf("found %v", changes)
	}
}

// TestWhatGitInitKeepsIsFound holds what git obeys as soon as somebody makes a repository of the directory.
func TestWhatGitInitKeepsIsFound(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	hook := filepath.Join(dir, ".git/hooks/post-commit")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho ran >ran\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	found := Search(context.Background(), Where{Dir: dir}).Since(&Set{})
	cmd := exec.Command("sh", "-e", "-c", "git init -q; "+
		"git -c user.name=a -c user.email=a commit -q --allow-empty -m x; cat ran")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); string(out) != "ran\n" {
		t.Fatalf("git does not run the hook: %s, %v", out, err)
	}
	if len(found) != 1 || found[0].What != "git's hook post-commit" {
		t.Errorf("found %v", found)
	}
}

// TestTheMainRepositoryOfAWorktreeIsSearched holds what its own worktree obeys, which is not searched itself.
func TestTheMainRepositoryOfAWorktreeIsSearched(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	cmd := exec.Command("sh", "-e", "-c", `git init -q main; cd main
git -c user.name=a -c user.email=a commit -q --allow-empty -m x; git worktree add -q ../w
git config extensions.worktreeConfig true; git config --worktree core.fsmonitor evil`)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	common := filepath.Join(dir, "main/.git")
	set := Search(context.Background(), Where{Dir: filepath.Join(dir, "w"), Trees: []string{common}})
	if !slices.Contains(set.Files, common+"/config.worktree") {
		t.Errorf("config.worktree is not found: %q", set.Files)
	}
	var what []string
	for _, c := range set.Since(&Set{}) {
		what = append(what, c.What)
	}
	if !slices.Equal(what, []string{"git's core.fsmonitor"}) {
		t.Errorf("git obeys %q", what)
	}
}

// TestALinkIsFollowedNoFurtherThanTheSearch holds that a link to / is a change, and no reason to read all files and
// open all devices.
func TestALinkIsFollowedNoFurtherThanTheSearch(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"w/.vscode", "w/.idea"} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		to := map[string]string{"w/.vscode": "/", "w/.idea": "."}[name]
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	w := Where{Dir: filepath.Join(dir, "w")}
	before := Search(context.Background(), w)
	if n := len(before.Since(&Set{})); n != 2 {
		t.Errorf("%d facts about two links", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "w/tasks.json"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	changes := Search(context.Background(), w).Since(before)
	if len(changes) != 1 || changes[0].What != ".idea" {
		t.Errorf("a file in a linked directory: %v", changes)
	}
	if _, err := ReadFile("/dev/null"); err == nil {
		t.Error("a device was opened")
	}
}

// BenchmarkHooksOfManyRepositories has links of 100 repositories to one large hook.
func BenchmarkHooksOfManyRepositories(b *testing.B) {
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hook"), make([]byte, maxConfig), 0o755); err != nil {
		b.Fatal(err)
	}
	for i := range 100 {
		at := filepath.Join(dir, "w", fmt.Sprint(i), ".git")
		if err := errors.Join(os.MkdirAll(at, 0o755), os.Symlink(dir, filepath.Join(at, "hooks"))); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if n := len(Search(context.Background(), Where{Dir: filepath.Join(dir, "w")}).facts); n != 100 {
			b.Fatalf("%d hooks", n)
		}
	}
}

// TestAPathTooLongIsNotSearched makes a directory that no path reaches.
func TestAPathTooLongIsNotSearched(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for range 20 {
		if err := os.Mkdir(strings.Repeat("d", 250), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chdir(strings.Repeat("d", 250)); err != nil {
			t.Fatal(err)
		}
	}
	if set := Search(context.Background(), Where{Dir: dir}); len(set.Unsearched) != 1 {
		t.Errorf("not searched: %q", set.Unsearched)
	}
}
