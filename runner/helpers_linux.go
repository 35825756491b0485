package runner

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// helpers knows the processes of assay-run itself that an agent starts inside a run: "assay-run mcp",
// "call" and "hook", and what those start of their own. What they do by themselves is class runner. What
// somebody told them to do is the agent's: their arguments and environment are its choice.
type helpers struct {
	path  string // of this very program
	inode uint64
	logs  []string // the run's logs, which they append to
}

func newHelpers(spec *Spec) *helpers {
	h := &helpers{}
	path, err := os.Executable()
	if err != nil {
		return h
	}
	var st syscall.Stat_t
	if syscall.Stat("/proc/self/exe", &st) != nil {
		return h
	}
	h.path, h.inode = path, st.Ino
	for _, log := range []string{spec.SDKEventLog, spec.PolicyDecisionLog} {
		if at, err := absLog(log); err == nil && log != "" {
			h.logs = append(h.logs, at)
		}
	}
	return h
}

// executed reports whether an exec is of a helper: of this very program, by its path and its file, or
// of a shell for a hook.
func (h *helpers) executed(ev *kernel.Event) bool {
	if h.path == "" || len(ev.Argv) < 2 {
		return false
	}
	if ev.Inode == h.inode && !ev.Deleted && string(ev.Exe) == h.path {
		switch name := string(ev.Argv[1]); name {
		case "mcp", "call", "hook":
			return true
		default:
			return strings.HasPrefix(name, "__")
		}
	}
	return len(ev.Argv) == 3 && shells[string(ev.Exe)] && hookLine().Match(ev.Argv[2])
}

// Agents have a shell execute a hook's command line. What that executes is looked at
// by itself.
var (
	shells   = map[string]bool{"/usr/bin/dash": true, "/usr/bin/bash": true, "/bin/dash": true, "/bin/bash": true, "/bin/busybox": true}
	hookLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(('[^']*/assay_shell'|[^' ]+/assay_shell) )?'?assay-run hook [a-z-]+'?$`)
	})
)

// moves are the files of a cgroup that a helper writes to: none of them is a limit.
var moves = map[string]bool{"cgroup.procs": true, "tasks": true, "cgroup.kill": true, "cgroup.subtree_control": true}

// did reports whether a helper does by itself what e says: it is executed and ends, looks at
// itself, makes a cgroup for a call or a server, starts the guard of that, and appends to the
// run's logs. What was denied to it stays the agent's.
func (h *helpers) did(e *schema.KernelEvent) bool {
	if e.Result == -int64(unix.EACCES) || e.Result == -int64(unix.EPERM) || e.Truncated&schema.FieldValue != 0 {
		return false
	}
	switch e.Kind {
	case schema.KindExec, schema.KindExit, schema.KindMemfd:
		return true
	case schema.KindBind, schema.KindConnect:
		return strings.HasPrefix(e.Value, "unix:@assay-run-guard-")
	case schema.KindOpen, schema.KindWrite, schema.KindMkdir, schema.KindRmdir, schema.KindChmod, schema.KindChown:
	default:
		return false
	}
	reads := e.Kind == schema.KindOpen && !e.Creates() && !e.Writes()
	switch path := e.Value; {
	case e.Marks&schema.MarkMemfd != 0 || path == "/dev/null":
		return true
	case strings.HasPrefix(path, "/sys/fs/cgroup/") && strings.Contains(path+"/", "/assay-run/"):
		return reads || e.Kind != schema.KindOpen && e.Kind != schema.KindWrite || moves[filepath.Base(path)]
	case slices.Contains(h.logs, path):
		return true
	case reads:
		return strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/") || strings.HasPrefix(path, "/etc/ssl/certs/")
	}
	return false
}
