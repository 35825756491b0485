package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// A command that has the user's own terminal cannot type there what the shell is to
// run next. Without us the kernel would let it.
func TestCommandCannotTypeIntoTheTerminal(t *testing.T) {
	layertest.Host(t)
	const attack = `
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
try:
    for c in "echo pw''ned by the command\n":
        if libc.syscall(SYS_ioctl, 0, ctypes.c_long(int(sys.argv[1], 0)), c.encode()):
            raise OSError(ctypes.get_errno(), "")
    print("typed")
except OSError as e:
    print("refused", e.errno)
`
	number := "16"
	if runtime.GOARCH == "arm64" {
		number = "29"
	}
	without := ""
	if os.Geteuid() == 0 {
		without = "setpriv --bounding-set=-sys_admin "
	}
	for _, c := range []struct{ name, command string }{
		{"as it is", "./assay-run"},
		{"without CAP_SYS_ADMIN", without + "./assay-run"},
	} {
		t.Run(c.name, func(t *testing.T) {
			need(t, "python3")
			x := prepareTmux(t)
			x.file("type.py", strings.ReplaceAll(attack, "SYS_ioctl", number))
			x.bash()
			if set, _ := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti"); string(set) != "0\n" {
				x.Line(`clear; python3 type.py 0x5412`)
				x.Expect(`(?m)^pwned by the command$`)
			}
			for _, request := range []string{"0x5412", "0x1200005412", "0x541C"} {
				x.Line(`clear; ` + c.command + ` -q --no-capture --force -o a.tar.gz -- python3 type.py ` + request +
					`; echo af""ter`)
				x.Expect(`(?m)^refused 1$`)
				x.Expect(`(?m)^after$`)
			}
			x.Line(`clear; echo la""st`)
			x.Expect(`(?m)^last$`)
			if strings.Contains(x.Screen(), "pwned") {
				t.Error("the shell ran what the command had typed")
			}
			bundle := filepath.Join(x.Dir, "a.tar.gz")
			verifyBundle(t, bundle, 0)
			if h := member(t, bundle, "observation-health.json"); !strings.Contains(h, "terminal_input_refused: ") {
				t.Error("the bundle does not say so:", h)
			}
		})
	}
}
