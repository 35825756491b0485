package enginetest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Rootless prepares the Podman of an ordinary user, who exists until the test ends. The
// user may write the cgroups of Delegated, and the client starts there. Where the user may
// write no cgroup, Podman's containers stay in the cgroup of its client.
func Rootless(t testing.TB) *Engine {
	t.Helper()
	need(t, "podman", "runc", "newuidmap", "useradd")
	dir := shortDir(t)
	e := &Engine{Program: "podman", User: addUser(t, dir), t: t}
	uid, gid := idsOf(t, e.User)
	runtime := "/run/user/" + strconv.Itoa(uid)
	if err := os.MkdirAll(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(runtime) })
	for path, mode := range map[string]os.FileMode{dir: 0o755, "/run/user": 0o755, runtime: 0o700} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	// Else runc mounts every cgroup hierarchy in a container, also those that other tests
	// mount where the user may not look.
	e.Env = append(configure(t, dir, `volumes = ["/sys/fs/cgroup:/sys/fs/cgroup:ro"]`), "HOME="+dir,
		"XDG_CACHE_HOME="+dir+"/.cache", "TMPDIR="+dir, "XDG_RUNTIME_DIR="+runtime, "USER="+e.User)
	for _, path := range []string{dir, runtime} {
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	e.Delegated = "/" + e.User
	e.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	e.home = dir
	e.delegate(uid, gid)
	t.Cleanup(func() {
		e.try("rm", "--all", "--force", "--time", "0")
		e.try("system", "migrate") // ends the process that keeps the user's namespaces
		removeGroups(e.User)
	})
	e.Import(Image, nil)
	return e
}

// addUser makes a user who has ranges of ids for a user namespace.
func addUser(t testing.TB, home string) string {
	t.Helper()
	name := "assay" + strings.ToLower(rand.Text()[:10])
	account(t, "useradd", "--no-create-home", "--home-dir", home, "--shell", "/bin/sh", name)
	t.Cleanup(func() { account(t, "userdel", "--force", name) })
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		if text, err := os.ReadFile(file); err != nil || !bytes.Contains(text, []byte(name+":")) {
			t.Fatalf("useradd gave %s no ids in %s: %v", name, file, err)
		}
	}
	return name
}

// account runs a program that changes the user accounts. It waits while another one has
// locked them, which useradd(8) and userdel(8) tell by the exit codes 1 and 10.
func account(t testing.TB, args ...string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		cmd := exec.Command(args[0], args[1:]...)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return
		}
		if code := cmd.ProcessState.ExitCode(); code != 1 && code != 10 || time.Now().After(deadline) {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
}

func idsOf(t testing.TB, name string) (uid, gid int) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid
}

// delegate makes a cgroup of the user's on every hierarchy, as systemd does for a user who
// is logged in. The client starts in the one of version 2: from anywhere else, its user
// could not move a process into it.
func (e *Engine) delegate(uid, gid int) {
	e.t.Helper()
	must := func(err error) {
		e.t.Helper()
		if err != nil {
			e.t.Fatal(err)
		}
	}
	for mount, version2 := range hierarchies(e.t) {
		dir := filepath.Join(mount, e.Delegated)
		must(os.Mkdir(dir, 0o755))
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if text, err := os.ReadFile(filepath.Join(mount, name)); err == nil && !version2 {
				must(os.WriteFile(filepath.Join(dir, name), text, 0))
			}
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, f := range append(files, dir) {
			must(os.Chown(f, uid, gid))
		}
		if version2 {
			f, err := os.Open(dir)
			must(err)
			e.t.Cleanup(func() { f.Close() })
			e.as.UseCgroupFD, e.as.CgroupFD = true, int(f.Fd())
		}
	}
}

// hierarchies are the mount points of the cgroup hierarchies, and which is of version 2.
func hierarchies(t testing.TB) map[string]bool {
	t.Helper()
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) > 2 && (words[2] == "cgroup" || words[2] == "cgroup2") &&
			strings.HasPrefix(words[1], "/sys/fs/cgroup") {
			found[words[1]] = words[2] == "cgroup2"
		}
	}
	return found
}
