package sandbox

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// TestNoLayerFailsOpenInSilence makes each operation of each layer fail in turn: the command does not start, and the
// error names the layer; or, if degrading is allowed, it starts and the layer is not reported as enforced. The command
// starts without the layer sockets in any case.
func TestNoLayerFailsOpenInSilence(t *testing.T) {
	for _, w := range everybody[:2] {
		t.Run(w.name, func(t *testing.T) {
			j := w.withLayer(t, faulty(t))
			socket := filepath.Join(filepath.Dir(j.Dir), "sock")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			ops := w.operations(t, j)
			for _, op := range []string{"hide " + socket, undecided} {
				if !slices.Contains(ops, op) {
					t.Fatalf("%q is not in %q", op, ops)
				}
			}
			for _, op := range ops {
				j.Fail = op
				j.Settings.OnUnavailable = sandboxfile.Fail
				if op == undecided {
					w.startsUndecided(t, j)
					continue
				}
				w.refusedToRun(t, j)
				j.Settings.OnUnavailable = sandboxfile.Degrade
				if op == "change the user" {
					w.refusedToRun(t, j)
					continue
				}
				got := w.run(t, j)
				told := false
				for _, l := range got.Layers {
					told = told || l.State != Enforced && l.Reason != ""
				}
				if !told {
					t.Errorf("%s failed and every layer is called enforced: %+v", op, got)
				}
				os.Remove(filepath.Join(j.Dir, "ran"))
			}
			j = w.withLayer(t, moved(t))
			for _, op := range w.operations(t, j) {
				if !slices.Contains(ops, op) {
					j.Fail = op
					w.refusedToRun(t, j)
				}
			}
		})
	}
}

// undecided is the operation that the command starts without, whatever the policy says.
const undecided = "have connections decided"

// startsUndecided runs a job in which nobody decides about unix sockets: its command starts, the layer sockets is
// unavailable, and all others are enforced.
func (w who) startsUndecided(t *testing.T, j job) {
	t.Helper()
	for _, how := range []string{sandboxfile.Fail, sandboxfile.Degrade} {
		j.Settings.OnUnavailable = how
		got := w.run(t, j)
		ran := os.Remove(filepath.Join(j.Dir, "ran"))
		if ran != nil || got.Err != "" || len(got.Layers) < 7 {
			t.Errorf("%s: the command did not run: %v, %+v\n%s", how, ran, got, got.out)
		}
		for _, l := range got.Layers {
			if l.Layer == LayerSockets && (l.State != Unavailable || !strings.HasPrefix(l.Reason, undecided)) ||
				l.Layer != LayerSockets && l.State != Enforced {
				t.Errorf("%s: %s failed: %+v", how, undecided, l)
			}
		}
	}
}

// operations are those of a job that starts, without those about sockets of other programs, which come and go.
func (w who) operations(t *testing.T, j job) []string {
	t.Helper()
	j.Probe = true
	o := w.run(t, j)
	if o.Err != "" || len(o.Ops) < 20 {
		t.Fatalf("%d operations: %+v\n%s", len(o.Ops), o, o.out)
	}
	return slices.DeleteFunc(o.Ops, func(op string) bool {
		path, hides := strings.CutPrefix(op, "hide ")
		return hides && !schema.Below(path, filepath.Dir(j.Dir))
	})
}

// refusedToRun runs a job with a failing operation: its command must not start.
func (w who) refusedToRun(t *testing.T, j job) {
	t.Helper()
	got := w.run(t, j)
	if _, err := os.Lstat(filepath.Join(j.Dir, "ran")); err == nil || got.Layer == "" {
		t.Errorf("%s failed and the command ran: %+v", j.Fail, got)
	}
}

// withLayer gives a job a private home, with a layer whose name is always the same.
func (w who) withLayer(t *testing.T, j job) job {
	t.Helper()
	j.Home, j.Layer = filepath.Join(j.Dir, "../home"), filepath.Join(j.Dir, "../layer")
	for _, dir := range []string{j.Home, j.Layer} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		chown(t, dir, w.uid)
	}
	j.Env = append(j.Env, "HOME="+j.Home)
	return j
}

// moved is a job whose command sees the working directory at another path, as a check of kept changes does. Together
// with faulty it uses every operation.
func moved(t *testing.T) job {
	t.Helper()
	j := faulty(t)
	j.Fresh = filepath.Join(j.Dir, "fresh")
	if err := os.Mkdir(j.Fresh, 0o755); err != nil {
		t.Fatal(err)
	}
	return j
}

// faulty is a job that uses every operation but those of moved.
func faulty(t *testing.T) job {
	t.Helper()
	j := shell(t, "touch ran")
	for _, dir := range []string{".git/hooks", "denied/shown", "extra", "../hidden/shown"} {
		if err := os.MkdirAll(filepath.Join(j.Dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(j.Dir, ".git/config"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	j.Settings.Filesystem = &sandboxfile.Filesystem{DenyRead: []string{"denied", "../hidden"},
		AllowRead: []string{"denied/shown", "../hidden/shown"}, PrivateTmp: true}
	j.Settings.Network = &sandboxfile.Network{AllowedDomains: []string{"example.org"}}
	if os.Geteuid() == 0 {
		j.Settings.User = ""
	}
	return j
}

func TestNamespacesThatCannotBeHad(t *testing.T) {
	w := everybody[2]
	j := shell(t, "touch ran")
	o := w.run(t, j)
	if _, err := os.Lstat(j.Dir + "/ran"); err == nil || o.Layer != LayerNamespaces {
		t.Errorf("the command ran without namespaces: %+v", o)
	}
	j.Settings.OnUnavailable = sandboxfile.Degrade
	j.Settings.Network = &sandboxfile.Network{AllowedDomains: []string{"example.org"}}
	j.Args[2] = `test "$HTTP_PROXY" != http://127.0.0.1:3128 && touch ran` // nobody would answer there
	o = w.run(t, j)
	if _, err := os.Lstat(j.Dir + "/ran"); err != nil {
		t.Errorf("the command did not run: %+v", o)
	}
	for layer, state := range map[string]string{LayerNamespaces: Unavailable, LayerFiles: Unavailable,
		LayerNetwork: Unavailable, LayerSockets: Unavailable, LayerLandlock: Enforced, LayerSeccomp: Enforced,
		LayerPrivileges: Enforced} {
		if got := o.layer(layer); got.State != state {
			t.Errorf("%s is %+v, want %s", layer, got, state)
		}
	}
}

func TestModes(t *testing.T) {
	for _, w := range everybody[:2] {
		t.Run(w.name, func(t *testing.T) {
			for _, c := range []struct {
				name, mode, script string
				settings           func(*sandboxfile.Settings)
				code               int
			}{
				{"workspace-write writes its directory and /tmp", sandboxfile.WorkspaceWrite,
					`echo x > a && mkdir b && mv a b/ && rm -r b && f=$(mktemp) && rm $f`, nil, 0},
				{"workspace-write writes no other", sandboxfile.WorkspaceWrite, `echo x > ../a`, nil, 1},
				{"read-only writes nothing", sandboxfile.ReadOnly, `echo x > a`, nil, 1},
				{"read-only writes not even to /tmp", sandboxfile.ReadOnly, `echo x > /tmp/sandbox-test-$$`, nil, 1},
				{"read-only writes /dev/null and its streams", sandboxfile.ReadOnly, `echo x > /dev/null && echo y >&2`, nil, 0},
				{"read-only reads", sandboxfile.ReadOnly, `cat /etc/passwd > /dev/null && ls / > /dev/null`, nil, 0},
				{"the loopback device works", sandboxfile.WorkspaceWrite,
					`python3 -c 'import socket;s=socket.create_server(("127.0.0.1",0));socket.create_connection(s.getsockname())'`, nil, 0},
				{"none has no loopback", sandboxfile.WorkspaceWrite,
					`! python3 -c 'import socket;s=socket.create_server(("127.0.0.1",0));socket.create_connection(s.getsockname())' 2>/dev/null`, func(s *sandboxfile.Settings) {
						s.Network = &sandboxfile.Network{Mode: sandboxfile.NetNone}
					}, 0},
				{"the umask is kept", sandboxfile.WorkspaceWrite, `[ "$(umask)" = 0022 ]`, nil, 0},
				{"a private /tmp is empty", sandboxfile.WorkspaceWrite, `[ -z "$(ls -A /tmp)" ] && touch /tmp/x`,
					func(s *sandboxfile.Settings) {
						s.Filesystem = &sandboxfile.Filesystem{PrivateTmp: true}
					}, 0},
				{"terminals can be made", sandboxfile.WorkspaceWrite,
					`python3 -c 'import pty,os;pid,fd=pty.fork();os._exit(0) if pid==0 else os.waitpid(pid,0)'`, nil,
					0},
				{"shared memory works", sandboxfile.WorkspaceWrite, `echo x > /dev/shm/a && rm /dev/shm/a`, nil, 0},
				{"a file cannot be executed: 126 is the caller's", sandboxfile.WorkspaceWrite, `exec /etc/passwd`, nil, 126},
				{"orphans are reaped", sandboxfile.WorkspaceWrite, `(sleep 0.01 &) ; sleep 0.1; ! ps -eo stat | grep -q Z`, nil, 0},
				{"git init works", sandboxfile.WorkspaceWrite,
					`git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -m x`, nil, 0},
				{"what is allowed may be written", sandboxfile.WorkspaceWrite, `echo x > ../extra`, func(s *sandboxfile.Settings) {
					s.Filesystem = &sandboxfile.Filesystem{AllowWrite: []string{"../extra"}}
				}, 0},
				{"denyWrite beats allowWrite", sandboxfile.WorkspaceWrite, `echo x > keep/a`, func(s *sandboxfile.Settings) {
					s.Filesystem = &sandboxfile.Filesystem{AllowWrite: []string{"keep"}, DenyWrite: []string{"keep"}}
				}, 1},
				{"allowRead beats denyRead", sandboxfile.WorkspaceWrite, `cat keep/open/f && ! cat keep/f && ! ls keep`,
					func(s *sandboxfile.Settings) {
						s.Filesystem = &sandboxfile.Filesystem{DenyRead: []string{"keep"},
							AllowRead: []string{"keep/open"}}
					}, 0},
			} {
				t.Run(c.name, func(t *testing.T) {
					for _, tool := range []string{"python3", "git"} {
						if _, err := exec.LookPath(tool); strings.Contains(c.script, tool) && err != nil {
							t.Skipf("%s is not installed", tool)
						}
					}
					j := shell(t, c.script)
					j.Settings.Mode = c.mode
					top := filepath.Dir(j.Dir)
					os.MkdirAll(j.Dir+"/keep/open", 0o755)
					for _, f := range []string{top + "/extra", j.Dir + "/keep/f", j.Dir + "/keep/open/f"} {
						if err := os.WriteFile(f, nil, 0o644); err != nil {
							t.Fatal(err)
						}
					}
					chown(t, top, w.uid)
					if c.settings != nil {
						c.settings(&j.Settings)
					}
					if o := w.run(t, j); o.Err != "" || o.Code != c.code {
						t.Errorf("%+v\n%s", o, o.out)
					}
				})
			}
		})
	}
}

// TestNothingIsCreatedOutside compares the tree before and after.
func TestNothingIsCreatedOutside(t *testing.T) {
	for _, w := range everybody {
		j := faulty(t)
		j.Settings.OnUnavailable = sandboxfile.Degrade
		j.Args[2] = "true"
		j.Settings.Filesystem.DenyWrite = []string{".env", "absent/dir", "extra"}
		top := filepath.Dir(j.Dir)
		before := tree(t, top)
		if o := w.run(t, j); o.Err != "" || o.Code != 0 {
			t.Fatalf("%+v\n%s", o, o.out)
		}
		if after := tree(t, top); after != before {
			t.Errorf("%s: before\n%s\nafter\n%s", w.name, before, after)
		}
	}
}

func tree(t *testing.T, dir string) string {
	t.Helper()
	var names string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		names += path + " " + d.Type().String() + "\n"
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestHooksOfANewRepositoryAreReported(t *testing.T) {
	j := shell(t, `git init -q . && printf '#!/bin/sh\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit`)
	o := everybody[0].run(t, j)
	if o.Err != "" || o.Code != 0 || len(o.Appeared) != 1 || o.Appeared[0].Path != j.Dir+"/.git/hooks/pre-commit" {
		t.Errorf("%+v\n%s", o, o.out)
	}
}

func TestAnotherUser(t *testing.T) {
	j := shell(t, `[ "$(id -u):$(id -g)" = 23456:23457 ] && [ "$(id -G)" = 23457 ] && ! cat /etc/shadow`)
	j.Settings.User = "23456:23457"
	if o := everybody[0].run(t, j); o.Err != "" || o.Code != 0 {
		t.Errorf("%+v\n%s", o, o.out)
	}
	j.Fail = "change the user"
	j.Settings.OnUnavailable = sandboxfile.Degrade
	j.Args[2] = "touch /tmp/sandbox-test-ran-as-root"
	if o := everybody[0].run(t, j); o.Layer != LayerPrivileges {
		t.Errorf("ran as somebody else: %+v", o)
	}
	j = shell(t, "true")
	j.Settings.User = "0"
	if o := everybody[1].run(t, j); o.Err == "" {
		t.Errorf("an ordinary user became root: %+v", o)
	}
}
