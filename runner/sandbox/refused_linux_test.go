package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// TestTheKernelRefuses makes the kernel refuse each system call of the layers, in the runner and its shim: the
// command does not start.
func TestTheKernelRefuses(t *testing.T) {
	for name, call := range map[string]uint32{
		"landlock_create_ruleset": unix.SYS_LANDLOCK_CREATE_RULESET, "landlock_add_rule": unix.SYS_LANDLOCK_ADD_RULE,
		"landlock_restrict_self": unix.SYS_LANDLOCK_RESTRICT_SELF, "seccomp": unix.SYS_SECCOMP,
		"capset": unix.SYS_CAPSET,
		"mount":  unix.SYS_MOUNT, "open_tree": unix.SYS_OPEN_TREE, "move_mount": unix.SYS_MOVE_MOUNT,
		"mount_setattr": unix.SYS_MOUNT_SETATTR,
		"close_range":   unix.SYS_CLOSE_RANGE, "memfd_create": unix.SYS_MEMFD_CREATE, "socketpair": unix.SYS_SOCKETPAIR,
		"prctl": unix.SYS_PRCTL, "bind": unix.SYS_BIND, "listen": unix.SYS_LISTEN, "sendmsg": unix.SYS_SENDMSG,
		"capget": unix.SYS_CAPGET,
	} {
		t.Run(name, func(t *testing.T) {
			for _, w := range everybody[:2] {
				if name == "capget" && w.uid == 0 {
					continue // root then takes a user namespace, as an ordinary user does
				}
				j := faulty(t)
				j.Forbidden = []uint32{call}
				o := w.run(t, j)
				if _, err := os.Lstat(filepath.Join(j.Dir, "ran")); err == nil || o.Err == "" {
					t.Errorf("%s: the command ran: %+v\n%s", w.name, o, o.out)
				}
			}
		})
	}
	// A missing Landlock is reported like the other layers.
	j := faulty(t)
	j.Forbidden, j.Settings.OnUnavailable = []uint32{unix.SYS_LANDLOCK_CREATE_RULESET}, sandboxfile.Degrade
	if o := everybody[0].run(t, j); o.Err != "" || o.layer(LayerLandlock).State != Unavailable {
		t.Errorf("%+v\n%s", o, o.out)
	}
}

// TestEveryOperationIsFailed compares the operations in the shim's source with those that
// TestNoLayerFailsOpenInSilence makes fail.
func TestEveryOperationIsFailed(t *testing.T) {
	everybody[0].can(t)
	var done []string
	for _, j := range []job{faulty(t), moved(t)} {
		j.Settings.User = "23456:23457"
		done = append(done, everybody[0].operations(t, j)...)
	}
	done = append(done, everybody[0].operations(t, everybody[0].withLayer(t, faulty(t)))...)
	files, err := filepath.Glob("internal/shim/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	named := regexp.MustCompile(`c\.(?:do\(\w+, |operation\(Privileges, |present\()"([^"]+)"`)
	literal := regexp.MustCompile(`c\.do\(\w+, "`)
	n := 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), "(Files, OverlayHome,", fmt.Sprintf("(Files, %q,", shim.OverlayHome))
		for _, op := range named.FindAllStringSubmatch(text, -1) {
			n++
			if !slices.ContainsFunc(done, func(d string) bool { return strings.HasPrefix(d, op[1]) }) {
				t.Errorf("%s: %q is never failed: %q", f, op[1], done)
			}
		}
		calls := strings.Count(text, "c.do(") - strings.Count(text, "c.do(Files, name,")
		if calls != len(literal.FindAllString(text, -1)) {
			t.Errorf("%s: an operation has no name that can be read", f)
		}
	}
	if n < 25 {
		t.Errorf("only %d operations were found", n)
	}
}
