package render

import (
	"fmt"
	"path"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// kind is what an item is.
type kind int

const (
	action  kind = iota // a process did something
	heading             // a turn, a call, the run's start and end
	output              // what was printed
	trouble             // an action that was denied, or ended badly
)

// item is one thing that happened.
type item struct {
	tns    int64
	kind   kind
	actor  string // the program
	pid    uint32
	verb   string
	object string
	call   string // the tool call it belongs to
	times  uint64
}

// ShowOptions say how much is printed. The zero value prints what mattered.
type ShowOptions struct {
	// Reads also shows files that were opened for reading.
	Reads bool
	// All also shows what the agent did not cause itself: loaders, locales,
	// runtimes, the runner itself.
	All bool
	// Colour uses a terminal's colours.
	Colour bool
}

// itemOf turns a kernel event into an item, and reports whether there is anything to print.
func itemOf(e *schema.KernelEvent, t *view.Table, opt *ShowOptions) (it item, ok bool) {
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
		it.kind, it.verb, it.object = trouble, "was denied", e.Value+in
		return it, true
	}
	if e.Failed() {
		switch errno := e.Errno(); {
		case errno == "EACCES" || errno == "EPERM":
			what := strings.TrimSpace(e.Kind.String() + " " + e.Value)
			it.kind, it.verb, it.object = trouble, "was refused", what+in+": "+errno
			return it, true
		case errno == "ENOENT" && strings.HasPrefix(e.Value, "unix:") && !opt.All: // a daemon that is not there
		case e.Kind == schema.KindConnect, e.Kind == schema.KindConnectResult:
			it.kind, it.verb, it.object = trouble, "could not reach", peer(e)+in+": "+errno
			return it, true
		case e.Kind == schema.KindExecFailed:
			if errno != "ENOENT" || opt.All { // a shell that looks along PATH
				it.kind, it.verb, it.object = trouble, "could not run", e.Value+": "+errno
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
		it.kind = trouble
	}
	return it, it.verb != ""
}

// verb says what an event that did not fail did. It is empty for an event that show leaves
// out.
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
		if e.Value == "" { // the socket's own peer, which its connect names
			return "", ""
		}
		return "sent to", peer(e)
	case schema.KindAccept:
		return "was called by", peer(e)
	case schema.KindListen:
		return "listened on", e.Value
	case schema.KindForeignSocket:
		if e.Value == "" || e.Value == "unix:" { // one that is connected to nobody, or to no name
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
		what := e.Call
		if what == "" {
			what = e.Kind.String()
		}
		return "used privilege", strings.TrimSpace(what + " " + e.Value)
	case schema.KindMemfd, schema.KindIOUring, schema.KindIOUringOp, schema.KindCompatSyscall:
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

// name is what a program is called in a story.
func name(exe string, argv []string) string {
	if exe == "" && len(argv) > 0 {
		exe = argv[0]
	}
	if exe == "" {
		return ""
	}
	return path.Base(exe)
}

// parentName is the program that started the one that e executed.
func parentName(t *view.Table, e *schema.KernelEvent) string {
	at := t.Of(e.ExecID)
	if at < 0 || t.All[at].Parent < 0 {
		return ""
	}
	p := &t.All[t.All[at].Parent]
	return name(p.Exe, p.Argv)
}
