package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// A terminal says which connection was denied while the command may be waiting for it.
func TestDeniedConnectionOnATerminal(t *testing.T) {
	if os.Geteuid() != 0 || !observes() {
		t.Skip("needs root and a kernel layer, which is what sees that a connection was denied")
	}
	x := prepareTmux(t)
	x.bash()
	x.Line(`clear; ./assay-run -o a.tar.gz --mode workspace-write -- bash -c 'until (echo >/dev/tcp/192.0.2.1/443) 2>/dev/null || test -e go; do sleep 0.1; done'`)
	x.Expect(`the sandbox denied the connection to 192.0.2.1:443;`)
	x.file("go", "")
	x.Expect(`(?s)denied the connection.*denied the connection.*exited 0`)
}

// A terminal works in a sandbox as it does outside: it has a name there, the shell
// inside has its jobs, ^C comes once, and ^Z gives the outer shell back.
func TestTerminalInASandbox(t *testing.T) {
	layertest.Host(t)
	for _, c := range []struct{ name, command string }{
		{"alone", "./assay-run sandbox --"},
		{"in a run", "./assay-run -q -o a.tar.gz --force --mode workspace-write --"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := prepareTmux(t)
			x.bash()
			x.file("counts", "n=0; trap 'n=$((n+1)); echo INT $n' INT; echo counting; for i in 1 2 3 4; do read -t "+
				"1 -n 1 x; done; echo n=$n; exit $n")
			x.Line(`before=$(stty -g); clear; ` + c.command + ` bash --noprofile --norc -i`)
			x.Expect(`bash-[0-9.]+[#$]`)
			x.Line(`PS1='in $? > '; clear; tty`)
			x.Expect(`(?m)^/dev/console$`)
			x.Line(`clear; sh -c 'echo be""gun; exec sleep 60' | cat`)
			x.Expect(`(?m)^begun$`)
			x.Key("C-z")
			x.Expect(`(?m)Stopped +.*sleep 60`)
			x.Line(`clear; kill %1; bash counts`)
			x.Expect(`(?m)^counting`)
			x.Key("C-c")
			x.Expect(`INT 1`)
			x.Expect(`(?m)^n=1`)
			if c.name != "alone" { // there its group has no number in the PID namespace
				x.Line(`clear; suspend`)
				x.Expect(`(?m)Stopped +\./assay-run`)
				x.Line(`clear; [ "$(stty -g)" = "$before" ] && echo "the same"`)
				x.Expect(`(?m)^the same$`)
				x.Line(`clear; fg`)
				x.Expect(`(?m)^in [0-9]+ >`)
			}
			x.Line(`clear; exit 9`)
			x.Expect(`(?m)^9 >`)
			x.Line(`clear; ` + c.command + ` bash -c 'echo be""gun; cat; exit 3'`)
			x.Expect(`(?m)^begun$`)
			for _, time := range []string{"once", "twice"} {
				x.Key("C-z")
				x.Expect(`(?m)Stopped +\./assay-run`)
				x.Line(`clear; echo ` + time + `; fg`)
				x.Expect(`(?m)^` + time + `\n\./assay-run`) // and not what the screen had before
				x.Line(time + " more")                      // a ^Z before cat goes on would be lost
				x.Expect(`(?m)` + time + ` more\n` + time + ` more$`)
			}
			x.Line("hello")
			x.Expect(`(?m)^hello\nhello$`)
			x.Key("C-d")
			x.Expect(`(?m)^3 >`)
			if c.name != "alone" {
				verifyBundle(t, filepath.Join(x.Dir, "a.tar.gz"), 0)
			}
		})
	}
}

// A terminal shows which check of a contract takes long.
func TestABarForALongCheck(t *testing.T) {
	x := prepareTmux(t)
	x.bash()
	x.file("c.yaml", "description: ''\nchecks: [{name: slow, command: 'until test -e go; do sleep 0.1; done'}]\n")
	x.Line(`clear; ./assay-run -o a.tar.gz --contract c.yaml -- true`)
	x.Expect(`checking \[\.+\] [0-9]+s slow`)
	x.file("go", "")
	x.Expect(`contract passed`)
}
