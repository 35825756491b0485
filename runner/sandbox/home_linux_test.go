package sandbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// homeJob is a job for a script with a home that has some files. The working directory is in it if inside.
func homeJob(t *testing.T, inside bool, script string) (job, string) {
	t.Helper()
	j := shell(t, script)
	home := filepath.Join(filepath.Dir(j.Dir), "home")
	for _, dir := range []string{".ssh", ".config/tool", "deep/in"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".ssh/id", ".config/tool/settings", "deep/in/file", ".bashrc"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte("real\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if inside {
		j.Dir = filepath.Join(home, "work")
		if err := os.Mkdir(j.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	j.Home, j.Env = home, []string{"HOME=" + home}
	return j, home
}

// homeCases are the users who have namespaces, and own the home.
func homeCases(t *testing.T, test func(t *testing.T, w who)) {
	for _, w := range everybody[:2] {
		t.Run(w.name, func(t *testing.T) {
			w.can(t)
			test(t, w)
		})
	}
}

func (w who) runAtHome(t *testing.T, j job, home string) *outcome {
	t.Helper()
	if w.uid != 0 {
		chown(t, home, w.uid)
	}
	o := w.run(t, j)
	if o.Err != "" {
		t.Fatalf("%s\n%s", o.Err, o.out)
	}
	return o
}

// filesIn lists the regular files below dir with their contents.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir+"/")] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestThePrivateHomeKeepsTheRealOne(t *testing.T) {
	homeCases(t, func(t *testing.T, w who) {
		j, home := homeJob(t, false, `set -e
			cat ~/.config/tool/settings
			echo mine > ~/.config/tool/settings; echo new > ~/new; mkdir -p ~/.agent/state; echo s > ~/.agent/state/s
			rm -r ~/deep; chmod 600 ~/.bashrc; echo more >> ~/.bashrc
			cat ~/.config/tool/settings ~/new
			! ls ~/deep 2>/dev/null
			! cat ~/.ssh/id 2>/dev/null
			mine=$(basename "$(dirname "$PWD")"); touch ~/$mine # other runs have layers in /var/tmp, too
			! ls /var/tmp/assay-run-*-kept/*/layer/upper/$mine /var/tmp/*/layer/upper/$mine 2>/dev/null
			! grep -o 'upperdir=[^,]*assay-run-home' /proc/self/mountinfo
			echo work > file`)
		before := filesIn(t, home)
		o := w.runAtHome(t, j, home)
		if o.Code != 0 || o.out != "real\nmine\nnew\n" {
			t.Errorf("code %d:\n%s", o.Code, o.out)
		}
		if diff := cmp.Diff(before, filesIn(t, home)); diff != "" {
			t.Errorf("the real home changed (-before +after):\n%s", diff)
		}
		if got := filesIn(t, j.Dir); got["file"] != "work\n" {
			t.Errorf("the workspace has %v", got)
		}
		var kinds []string
		for _, one := range o.Home.Written {
			kinds = append(kinds, one.Kind+" "+one.Path)
		}
		for _, want := range []string{"file new", "file .agent/state/s", "removed deep", "file .bashrc",
			"file .config/tool/settings"} {
			if !strings.Contains(strings.Join(kinds, "\n"), want) {
				t.Errorf("%q is not among what was written: %q", want, kinds)
			}
		}
		if o.Home.State != sandboxfile.HomePrivate {
			t.Errorf("home: %+v", o.Home)
		}
	})
}

func TestTheWorkspaceInTheHomeIsReal(t *testing.T) {
	for _, mode := range []string{sandboxfile.WorkspaceWrite, sandboxfile.ReadOnly} {
		homeCases(t, func(t *testing.T, w who) {
			j, home := homeJob(t, true, `echo in > ~/work/file; echo out > ~/out; cat ~/out`)
			j.Settings.Mode = mode
			o := w.runAtHome(t, j, home)
			want := map[string]string{sandboxfile.WorkspaceWrite: "in\n"}[mode]
			if got := filesIn(t, home); got["work/file"] != want || got["out"] != "" {
				t.Errorf("mode %s: %v\n%s", mode, got, o.out)
			}
			if !strings.HasSuffix(o.out, "out\n") {
				t.Errorf("mode %s: %s", mode, o.out)
			}
		})
	}
}

func TestAHomeInTheWorkspaceIsReal(t *testing.T) {
	homeCases(t, func(t *testing.T, w who) {
		j, home := homeJob(t, false, `echo new > ~/new`)
		j.Dir = home
		o := w.runAtHome(t, j, home)
		if got := filesIn(t, home); got["new"] != "new\n" || o.Home.State != sandboxfile.HomeReal ||
			!strings.Contains(o.Home.Reason, "working directory") {
			t.Errorf("%v, %+v\n%s", got, o.Home, o.out)
		}
	})
}

func TestALayerIsKeptAndLocked(t *testing.T) {
	homeCases(t, func(t *testing.T, w who) {
		j, home := homeJob(t, false, `cat ~/session 2>/dev/null; echo more >> ~/session; ls -A "$LAYER" 2>/dev/null`)
		layer := filepath.Join(scratch(t), "layer")
		if err := os.Mkdir(layer, 0o755); err != nil {
			t.Fatal(err)
		}
		if w.uid != 0 {
			chown(t, layer, w.uid)
		}
		j.Layer, j.Env = layer, append(j.Env, "LAYER="+layer)
		w.runAtHome(t, j, home)
		if o := w.runAtHome(t, j, home); o.out != "more\n" {
			t.Errorf("the second run said %q", o.out)
		}
		if info, err := os.Stat(layer); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the layer: %v, %v", info.Mode(), err)
		}
		lock, err := os.Open(filepath.Join(layer, lockName))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		if o := w.run(t, j); !strings.Contains(o.Err, "another run uses the layer") {
			t.Errorf("with the layer in use: %q\n%s", o.Err, o.out)
		}
	})
}

func TestAMountInThePrivateHomeIsKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	j, home := homeJob(t, false, `cat ~/deep/in/mounted
		echo x > ~/deep/in/mounted; echo y > ~/deep/beside; cat ~/deep/beside`)
	if err := unix.Mount("tmpfs", filepath.Join(home, "deep/in"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(filepath.Join(home, "deep/in"), 0)
	if err := os.WriteFile(filepath.Join(home, "deep/in/mounted"), []byte("there\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := everybody[0].runAtHome(t, j, home)
	if !strings.HasPrefix(o.out, "there\n") || !strings.Contains(o.out, "Read-only") ||
		!strings.HasSuffix(o.out, "y\n") {
		t.Errorf("%s", o.out)
	}
	if got := filesIn(t, home); got["deep/in/mounted"] != "there\n" || got["deep/beside"] != "" {
		t.Errorf("%v", got)
	}
	if o := everybody[1].run(t, j); o.Home.State != sandboxfile.HomeReal || o.Home.Reason == "" {
		t.Errorf("a user namespace cannot see what is below a mount: %+v, %s", o.Home, o.out)
	}
}

func TestSettingsAboutTheHome(t *testing.T) {
	homeCases(t, func(t *testing.T, w who) {
		j, home := homeJob(t, false, `echo x > ~/x; echo y > ~/deep/y; cat ~/.ssh/id`)
		j.Settings.Home = sandboxfile.HomeReal
		j.Settings.Filesystem = &sandboxfile.Filesystem{AllowWrite: []string{"~/deep"}, AllowRead: []string{"~/.ssh"}}
		o := w.runAtHome(t, j, home)
		if got := filesIn(t, home); got["x"] != "" || got["deep/y"] != "y\n" || !strings.HasSuffix(o.out, "real\n") {
			t.Errorf("home real: %v\n%s", got, o.out)
		}
		j.Settings.Home = sandboxfile.HomePrivate
		o = w.runAtHome(t, j, home)
		if got := filesIn(t, home); got["x"] != "" || got["deep/y"] != "y\n" || o.out != "real\n" {
			t.Errorf("home private: %v\n%s", got, o.out)
		}
		j.Settings.Filesystem = &sandboxfile.Filesystem{DenyRead: []string{"~"}}
		j.Args[2] = "ls -A ~"
		if o = w.runAtHome(t, j, home); o.Code == 0 || o.Home.State != sandboxfile.HomeReal {
			t.Errorf("a hidden home: %d %+v\n%s", o.Code, o.Home, o.out)
		}
	})
}

func TestSecretsAreBelowHome(t *testing.T) {
	if len(Secrets) < 10 {
		t.Errorf("%q", Secrets)
	}
	for _, path := range Secrets {
		if !strings.HasPrefix(path, "~/") {
			t.Errorf("%q is not below ~", path)
		}
	}
	j, _ := homeJob(t, false, "")
	p, err := Resolve(&j.Settings, Context{Dir: j.Dir, Home: j.Home, Env: j.Env})
	if err != nil {
		t.Fatal(err)
	}
	if text := p.Explain(); !strings.Contains(text, ".ssh") || !strings.Contains(text, "secrets") {
		t.Error(text)
	}
	if _, err := json.Marshal(p); err != nil {
		t.Error(err)
	}
}
