package render

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// item is an action of a process, to be printed.
type item struct {
	tns     int64
	problem bool   // it was denied or failed
	actor   string // the program
	pid     uint32
	verb    string
	object  string
	call    string // the id of its tool call
	times   uint64
}

// ShowOptions say how much is printed. The zero value prints the important actions without colours.
type ShowOptions struct {
	// Reads also shows files that were opened for reading.
	Reads bool
	// All also shows what the agent did not cause: loaders, locales, runtimes, the runner.
	All bool
	// Colour uses a terminal's colours.
	Colour bool
}

// itemOf converts a kernel event. It reports whether there is anything to print.
func itemOf(e *schema.KernelEvent, t *facts.Table, opt *ShowOptions) (it item, ok bool) {
	if e.Class != schema.ClassAgent && e.Class != schema.ClassCheck && !opt.All {
		return it, false
	}
	exe, argv, _ := t.Program(e.ExecID)
	if e.Marks&schema.MarkMountNamespace != 0 && e.Value != "/dev/null" && e.Value != "/dev/tty" {
		shown := *e
		shown.Value, shown.Target = e.Name(e.Value), e.Name(e.Target)
		e = &shown
	}
	it = item{tns: e.TNS, pid: e.PID, call: e.ToolCallID, times: e.Times(), actor: name(exe, argv)}
	if e.Kind == schema.KindFlow {
		return it, false
	}
	in := t.Network(e).Mark()
	if e.Blocked() {
		it.problem, it.verb, it.object = true, "was denied", e.Value+in
		return it, true
	}
	if e.Failed() {
		switch errno := e.Errno(); {
		case errno == "EACCES" || errno == "EPERM":
			what := strings.TrimSpace(e.Kind.String() + " " + e.Value)
			it.problem, it.verb, it.object = true, "was refused", what+in+": "+errno
			return it, true
		case errno == "ENOENT" && strings.HasPrefix(e.Value, "unix:") && !opt.All: // a daemon that does not run
		case e.Kind == schema.KindConnect, e.Kind == schema.KindConnectResult:
			it.problem, it.verb, it.object = true, "could not reach", peer(e)+in+": "+errno
			return it, true
		case e.Kind == schema.KindExecFailed:
			if errno != "ENOENT" || opt.All { // ENOENT is normal while a shell searches PATH
				it.problem, it.verb, it.object = true, "could not run", e.Value+": "+errno
				return it, true
			}
		}
		return it, false
	}
	if it.verb, it.object = verb(e, opt); it.verb != "" {
		it.object += in
	}
	if e.Kind == schema.KindExec {
		it.actor = parentName(t, e)
	}
	if e.Kind == schema.KindExit && it.verb != "" {
		it.problem = true
	}
	return it, it.verb != ""
}

// verb says what an event that did not fail did. It is empty if the event is not shown.
func verb(e *schema.KernelEvent, opt *ShowOptions) (verb, object string) {
	switch e.Kind {
	case schema.KindExec:
		return "ran", view.QuoteArgs(e.Argv)
	case schema.KindJoin:
		return "joined", view.QuoteArgs(e.Argv)
	case schema.KindOpen:
		switch {
		case e.Value == "/dev/null" || e.Value == "/dev/tty":
			return "", ""
		case e.Writes():
			return "wrote", e.Value
		case opt.Reads:
			return "read", e.Value
		}
	case schema.KindWrite, schema.KindTruncate, schema.KindMmapShared:
		return "wrote", e.Value
	case schema.KindUnlink, schema.KindRmdir:
		return "removed", e.Value
	case schema.KindRename:
		return "renamed", e.Value + " -> " + e.Target
	case schema.KindMkdir, schema.KindMknod:
		return "made", e.Value
	case schema.KindLink, schema.KindSymlink:
		return "linked", e.Value + " -> " + e.Target
	case schema.KindChmod:
		return "changed", fmt.Sprintf("%s to mode %o", e.Value, e.Mode)
	case schema.KindChown, schema.KindSetxattr, schema.KindRemovexattr:
		return "changed", e.Value + " (" + e.Kind.String() + ")"
	case schema.KindConnect:
		if e.HasResult && e.Result < 0 {
			return "began to connect to", peer(e) // EINPROGRESS: connect_result has the result
		}
		return "connected to", peer(e)
	case schema.KindConnectResult:
		if e.HasResult {
			return "reached", peer(e)
		}
	case schema.KindSendto:
		if e.Value == "" { // the peer was given in an earlier connect
			return "", ""
		}
		return "sent to", peer(e)
	case schema.KindAccept:
		return "was called by", peer(e)
	case schema.KindListen:
		return "listened on", e.Value
	case schema.KindForeignSocket:
		if e.Value == "" || e.Value == "unix:" { // not connected, or the peer has no name
			return "", ""
		}
		return "used a socket to", peer(e)
	case schema.KindInherited:
		return "began with a socket to", peer(e)
	case schema.KindDNS:
		if e.DNS == nil || !e.DNS.Response {
			return "asked for", e.Value
		}
	case schema.KindExit:
		if sig := e.WaitStatus & 0x7f; sig != 0 {
			return "was killed by", schema.SignalName(sig)
		} else if code := e.WaitStatus >> 8 & 0xff; code != 0 {
			return "exited with", fmt.Sprint(code)
		}
	case schema.KindLeave:
		return "left the run for", e.Value
	case schema.KindSetID, schema.KindCapset, schema.KindPtrace, schema.KindMount, schema.KindNamespace, schema.KindBPF,
		schema.KindModule, schema.KindChroot:
		return "used privilege", strings.TrimSpace(cmp.Or(e.Call, e.Kind.String()) + " " + e.Value)
	case schema.KindMemfd, schema.KindIOUring, schema.KindIOUringOp, schema.KindCompatSyscall,
		schema.KindIPC:
		if opt.All {
			return "used", strings.TrimSpace(e.Kind.String() + " " + e.Value)
		}
	}
	return "", ""
}

func peer(e *schema.KernelEvent) string {
	if len(e.Names) > 0 {
		return strings.Join(e.Names, ",") + " (" + e.Value + ")"
	}
	return e.Value
}

// name returns the base name of a program.
func name(exe string, argv []string) string {
	if exe == "" && len(argv) > 0 {
		exe = argv[0]
	}
	if exe == "" {
		return ""
	}
	return path.Base(exe)
}

// parentName returns the name of the program that started the one in an exec event.
func parentName(t *facts.Table, e *schema.KernelEvent) string {
	at := t.Of(e.ExecID)
	if at < 0 || t.All[at].Parent < 0 {
		return ""
	}
	p := &t.All[t.All[at].Parent]
	return name(p.Exe, p.Argv)
}
