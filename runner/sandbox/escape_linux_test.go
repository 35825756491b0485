package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// escape is one way out. It is tried inside; afterwards nothing may have changed outside. It is tried again without
// the layers that stop it, and must succeed: otherwise the case proves nothing.
type escape struct {
	name string
	// script is run by bash in the workspace, with $OUT (a directory outside that contains the file "secret"),
	// $EVIDENCE and $ATTACK (the attacking program) set. It exits with 0 if it got out.
	script string
	// also reports whether it got out, by what is outside.
	also    func(out string) bool
	without []string
	as      int // who of everybody tries without the layers
	// rootOnly is for attacks that only root can try, mounts for those that only a mount namespace stops.
	rootOnly, mounts bool
	settings         func(s *sandboxfile.Settings, out string)
}

func written(out string) bool {
	_, err := os.Lstat(filepath.Join(out, "evil"))
	return err == nil
}

var escapes = []escape{
	{name: "write outside", script: `touch "$OUT/evil"`, also: written, without: []string{LayerLandlock, LayerFiles}},
	{name: "change a mode outside", script: `"$ATTACK" chmod "$OUT/secret"`, without: []string{LayerFiles},
		mounts: true},
	{name: "set an attribute outside", script: `"$ATTACK" setattr "$OUT/secret"`, without: []string{LayerFiles},
		mounts: true},
	{name: "write through a symbolic link", script: `ln -s "$OUT" l && touch l/evil`, also: written,
		without: []string{LayerLandlock, LayerFiles}},
	{name: "swap a directory for a link while writing", script: `"$ATTACK" swap "$OUT"`, also: written,
		without: []string{LayerLandlock, LayerFiles}},
	{name: "rename a file out", script: `echo x > evil && mv -T evil "$OUT/evil"`, also: written,
		without: []string{LayerLandlock, LayerFiles}},
	{name: "link a secret in", script: `ln "$OUT/secret" s && echo x >> s`,
		without: []string{LayerLandlock, LayerFiles}},
	{name: "write by /proc/self/root", script: `touch "/proc/self/root$OUT/evil"`, also: written,
		without: []string{LayerLandlock, LayerFiles}},
	{name: "write by /proc/self/cwd", script: `cd / && touch "/proc/self/cwd$OUT/evil"`, also: written,
		without: []string{LayerLandlock, LayerFiles}},
	{name: "read what is denied", script: `cat "$OUT/denied/key"`, without: []string{LayerFiles}, mounts: true,
		settings: denyRead},
	{name: "read what is denied by /proc/self/root", script: `cat "/proc/self/root$OUT/denied/key"`,
		without: []string{LayerFiles}, mounts: true, settings: denyRead},
	{name: "read what is denied by a link", script: `ln -s "$OUT/denied" d && cat d/key`, without: []string{LayerFiles},
		mounts: true, settings: denyRead},
	{name: "list what is denied", script: `ls "$OUT/denied/"`, without: []string{LayerFiles}, mounts: true,
		settings: denyRead},
	{name: "open what is denied by its handle", script: `"$ATTACK" "open by handle" "$OUT/secret"`, rootOnly: true,
		without: []string{LayerSeccomp, LayerPrivileges}},
	{name: "read the evidence", script: `cat "$EVIDENCE/run.json"`, without: []string{LayerFiles}, mounts: true},
	{name: "write the evidence", script: `echo x >> "$EVIDENCE/run.json"`,
		without: []string{LayerLandlock, LayerFiles}},
	{name: "write a protected file in the workspace", script: `echo x >> .git/hooks/pre-commit`,
		without: []string{LayerFiles}, mounts: true},
	{name: "replace a protected directory", script: `mv .git .old && mkdir -p .git/hooks && touch .git/hooks/evil`,
		without: []string{LayerFiles}, mounts: true},
	{name: "move a protected directory away", script: `mv .git/hooks .git/h && mkdir .git/hooks`,
		without: []string{LayerFiles}, mounts: true},
	{name: "bind mount over a protected path", script: `mkdir m && "$ATTACK" mount m .git/hooks`, rootOnly: true,
		without: []string{LayerSeccomp, LayerPrivileges, LayerLandlock}},
	{name: "move a mount with the newer calls", script: `mkdir m && "$ATTACK" "mount api" m .git/hooks`, rootOnly: true,
		without: []string{LayerSeccomp, LayerPrivileges, LayerLandlock}},
	{name: "unmount what hides the evidence", script: `"$ATTACK" umount "$EVIDENCE"`, rootOnly: true,
		without: []string{LayerSeccomp, LayerPrivileges, LayerLandlock}},
	{name: "unshare a user namespace", script: `"$ATTACK" "unshare userns"; "$ATTACK" "clone userns"`,
		without: []string{LayerSeccomp}},
	{name: "type into the terminal", script: `"$ATTACK" tiocsti`, without: []string{LayerSeccomp}},
	{name: "type into the terminal with high bits set", script: `"$ATTACK" "tiocsti with high bits"`,
		without: []string{LayerSeccomp}},
	{name: "x32 system calls", script: `"$ATTACK" x32`, without: []string{LayerSeccomp}},
	{name: "io_uring", script: `"$ATTACK" io_uring`, without: []string{LayerSeccomp}},
	{name: "bpf", script: `"$ATTACK" bpf`, rootOnly: true, without: []string{LayerSeccomp, LayerPrivileges}},
	{name: "the session keyring", script: `"$ATTACK" keyctl`, without: []string{LayerSeccomp}},
	{name: "userfaultfd", script: `"$ATTACK" userfaultfd`, without: []string{LayerSeccomp}},
	{name: "a raw socket", script: `"$ATTACK" raw`, rootOnly: true, without: []string{LayerSeccomp, LayerPrivileges}},
	{name: "a packet socket", script: `"$ATTACK" packet`, rootOnly: true,
		without: []string{LayerSeccomp, LayerPrivileges}},
	{name: "MPTCP", script: `"$ATTACK" mptcp`, without: []string{LayerSeccomp}},
	{name: "a program that is in no file", script: `"$ATTACK" memfd "$OUT/evil"`, also: written,
		without: []string{LayerLandlock, LayerFiles}},
	{name: "an inherited descriptor", script: `"$ATTACK" descriptors`, without: []string{LayerPrivileges}},
	{name: "a setuid program", script: `[ "$("$SUID" -u)" != "$(id -u)" ]`, as: 1,
		without: []string{LayerPrivileges, LayerNamespaces, LayerFiles, LayerLandlock, LayerSeccomp}},
	{name: "the runner's memory", script: `exec 9<> /proc/$RUNNER/mem`, rootOnly: true,
		without: []string{LayerFiles, LayerLandlock, LayerPrivileges}},
	{name: "the runner's descriptors", script: `ls /proc/$RUNNER/fd/ | grep -q .`, rootOnly: true,
		without: []string{LayerFiles, LayerLandlock, LayerPrivileges}},
	{name: "a sysctl", script: `cat /proc/sys/kernel/domainname > /proc/sys/kernel/domainname`, rootOnly: true,
		without: []string{LayerFiles, LayerLandlock, LayerPrivileges}},
	{name: "leave the cgroup",
		script:   `echo 0 > /sys/fs/cgroup/unified/cgroup.procs 2>/dev/null || echo 0 > /sys/fs/cgroup/cgroup.procs`,
		rootOnly: true, without: []string{LayerFiles, LayerLandlock}},
	{name: "a disk's device", script: `[ -n "$(ls /dev/vda /dev/sda /dev/nvme0n1 /dev/loop0 /dev/mem 2>/dev/null)" ]`,
		rootOnly: true, without: []string{LayerFiles}},
}

func denyRead(s *sandboxfile.Settings, out string) {
	s.Filesystem = &sandboxfile.Filesystem{DenyRead: []string{out + "/denied"}}
}

// stage prepares what escapes try to reach.
func stage(t *testing.T, e escape, w who) (job, string) {
	t.Helper()
	j := shell(t, e.script)
	top := filepath.Dir(j.Dir)
	out, evidence := filepath.Join(top, "out"), filepath.Join(top, "evidence")
	for _, dir := range []string{out + "/denied", evidence, j.Dir + "/.git/hooks"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{out + "/secret", out + "/denied/key", evidence + "/run.json", j.Dir + "/.git/config"} {
		if err := os.WriteFile(f, []byte("secret\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	chown(t, top, w.uid)
	id, err := os.ReadFile("/usr/bin/id")
	if err != nil {
		t.Fatal(err)
	}
	other := testUID - w.uid // root's where w is the user
	if err := errors.Join(os.WriteFile(top+"/suid", id, 0o755), os.Chown(top+"/suid", other, other),
		os.Chmod(top+"/suid", 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	j.Settings.OnUnavailable = sandboxfile.Fail
	if w.noUserns {
		j.Settings.OnUnavailable = sandboxfile.Degrade
	}
	if e.settings != nil {
		e.settings(&j.Settings, out)
	}
	j.Evidence = []string{evidence}
	j.Keep = true
	j.Env = []string{"OUT=" + out, "EVIDENCE=" + evidence, "ATTACK=" + attack(t, top), "SUID=" + top + "/suid"}
	return j, out
}

// attack is a program that becomes the attacker.
func attack(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "attack")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec "+binary(t)+" "+roleAttack+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEscapes(t *testing.T) {
	for _, e := range escapes {
		t.Run(e.name, func(t *testing.T) {
			for _, w := range everybody {
				if e.rootOnly && w.uid != 0 || e.mounts && w.noUserns {
					continue
				}
				t.Run(w.name, func(t *testing.T) {
					o, out := e.try(t, w, nil)
					if o.Err != "" || o.Code == 0 || e.also != nil && e.also(out) {
						t.Errorf("got out: %+v\n%s", o, o.out)
					}
				})
			}
			if e.without == nil {
				t.Fatal("names no layer that stops it")
			}
			t.Run("gets through without "+strings.Join(e.without, " and "), func(t *testing.T) {
				w := everybody[e.as]
				o, out := e.try(t, w, e.without)
				if o.Err != "" || o.Code != 0 && (e.also == nil || !e.also(out)) {
					t.Errorf("is stopped by something else: %+v\n%s", o, o.out)
				}
			})
		})
	}
}

func (e escape) try(t *testing.T, w who, without []string) (*outcome, string) {
	t.Helper()
	j, out := stage(t, e, w)
	j.Without = without
	return w.run(t, j), out
}
