package sandbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Plan is what a profile means, decided before anything starts: for each path, socket, device, host and class of
// calls, what applies and which rule says so. Everything that applies the profile, explains it, or judges a failed
// call reads the plan.
type Plan struct {
	// Paths are sorted so that a directory comes before what is in it. For a path that is not listed, the nearest
	// directory above it decides. The first one is /.
	Paths   []Effect `json:"paths"`
	Sockets []Effect `json:"sockets"`
	Devices []Effect `json:"devices"`
	Hosts   []Effect `json:"hosts"`
	Calls   []Effect `json:"calls"`
	// Apart are the trees that can be written. Each is a mount: between two of them, link(2) and rename(2) fail with
	// EXDEV, as between two file systems.
	Apart []string `json:"apart,omitempty"`

	at map[string]int // index in Paths
}

// Effect is what applies to one thing.
type Effect struct {
	Target string `json:"target"`
	Access Access `json:"access"`
	// Rule is the rule that decided, such as filesystem.denyRead[0] or mode.
	Rule string `json:"rule"`
	// Over are rules for the same target that lost against Rule.
	Over []string `json:"over,omitempty"`

	changes bool // it differs from what applies to the directory above
}

// Access is what a command can do with a thing.
type Access string

// Values of Access.
const (
	AccessNone      Access = "none"      // it is hidden, denied or refused
	AccessRead      Access = "read"      // it can be read and executed
	AccessWrite     Access = "write"     // it can be changed, too
	AccessLayer     Access = "layer"     // the same, and changes stay in a layer of the run's own
	AccessPrivate   Access = "private"   // an empty directory of the run's own
	AccessTemporary Access = "temporary" // the same, and it can be written
	AccessConnect   Access = "connect"   // a socket or host that can be reached
)

// visible reports whether the host's content is there.
func (a Access) visible() bool { return a == AccessRead || a.changeable() }

// changeable reports whether that content can be changed.
func (a Access) changeable() bool { return a == AccessWrite || a == AccessLayer }

// Ranks of rules for the same path: a rule with a higher rank decides. Of two with the same rank, the one that denies
// more decides.
const (
	rankMode      = iota // what the mode gives
	rankDefault          // what a sandbox hides without being told
	rankPrivate          // directories of services' sockets, and /dev
	rankPattern          // a rule with a pattern, which matches the path
	rankRule             // a rule that names the path
	rankTemporary        // filesystem.privateTmp
	rankRunner           // what assay-run itself needs inside
	rankEvidence
)

// claim is what one rule says about a path.
type claim struct {
	Path
	rank int
	says Access
	keep bool // the rule says only that the path cannot be written
}

const (
	ruleWorkdir  = "workdir" // the working directory can be read, whatever hides the directories above it
	ruleEvidence = "evidence"
	ruleTests    = "tests"
	ruleDevices  = "devices"
)

// level is what applies in a directory while the paths are walked.
type level struct {
	path        string
	read, write *claim // the claims that decided about reading and writing
	access      Access
}

// decide sets what the claims for a path, and for the directories above it, mean together. With exact, a path below
// one that must not be written cannot be written, whatever allows it.
func (l *level) decide(claims []claim, outer level, exact bool) error {
	if outer.read != nil && outer.read.rank == rankEvidence {
		l.access = AccessNone
		return nil
	}
	var read, write *claim
	best := func(into **claim, c *claim, denies bool) {
		if old := *into; old == nil || c.rank > old.rank || c.rank == old.rank && denies {
			*into = c
		}
	}
	for i := range claims {
		c := &claims[i]
		if c.says.changeable() || c.keep {
			best(&write, c, c.keep)
		}
		if !c.keep {
			best(&read, c, !c.says.visible())
		}
	}
	if read != nil && read.says == AccessNone && write != nil && write.says == AccessWrite && read.rank == write.rank {
		return fmt.Errorf("%s and %s cannot hold together: one allows writing %s, the other denies reading it; "+
			"remove one of them", write.Rule, read.Rule, l.path)
	}
	if read != nil {
		l.read = read
	}
	if write != nil && !(exact && write.says == AccessWrite && outer.write != nil && outer.write.keep) {
		l.write = write
	}
	switch {
	case !l.read.says.visible() && (read != nil || l.read.says == AccessNone):
		l.access = l.read.says
	case !l.read.says.visible(): // below a directory that is empty
		l.access = AccessNone
	case l.write != nil && l.write.says.changeable():
		l.access = l.write.says
	default:
		l.access = AccessRead
	}
	if l.access == AccessLayer && outer.access != AccessLayer && l.write.Path.Path != l.path {
		l.access = AccessRead // an exception in what is hidden of the home: it is no part of the layer
	}
	if l.access == AccessPrivate && !outer.access.visible() && l.read.rank != rankTemporary {
		l.access = AccessNone // nothing is there
	}
	return nil
}

// decision is what the plan says about a path.
func (l *level) decision(claims []claim, outer level) Effect {
	d := Effect{Target: l.path, Access: l.access, Rule: l.read.Rule}
	if l.access.visible() && l.write != nil && (l.write.keep || l.access == AccessWrite) {
		if l.access == AccessWrite || outer.access == AccessWrite || l.write.Path.Path == l.path {
			d.Rule = l.write.Rule
		}
	}
	switch l.access {
	case AccessNone:
		d.changes = outer.access.visible()
	case AccessPrivate, AccessTemporary:
		d.changes = outer.access.visible() || l.read.rank == rankTemporary && outer.access != AccessNone
	default:
		d.changes = outer.access != l.access
	}
	for _, c := range claims {
		if c.Rule != d.Rule && c.says != l.access && c.Rule != ruleWorkdir && c.Rule != ruleDevices {
			d.Over = append(d.Over, c.Rule)
		}
	}
	return d
}

// comparePaths sorts a directory before everything in it, and that before everything else.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			switch {
			case a[i] == '/':
				return -1
			case b[i] == '/':
				return 1
			}
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// Path is what applies to an absolute, clean path without symbolic links.
func (p *Plan) Path(path string) Effect {
	for at := path; ; {
		if i, ok := p.at[at]; ok {
			d := p.Paths[i]
			if at != path {
				d.Over, d.changes = nil, false
				if d.Access == AccessPrivate {
					d.Access = AccessNone
				}
			}
			return d
		}
		i := strings.LastIndexByte(at, '/')
		if i < 0 {
			return Effect{Target: path, Access: AccessNone}
		}
		if at = at[:i]; at == "" {
			at = "/"
		}
	}
}

// inside returns the decisions about what is below path.
func (p *Plan) inside(path string) []Effect {
	from, found := slices.BinarySearchFunc(p.Paths, path, func(d Effect, at string) int {
		return comparePaths(d.Target, at)
	})
	if found {
		from++
	}
	to := from
	for to < len(p.Paths) && schema.Below(p.Paths[to].Target, path) {
		to++
	}
	return p.Paths[from:to]
}

// keeps returns the decision that keeps a directory from being renamed or removed: it contains what must not be
// written.
func (p *Plan) keeps(path string) (Effect, bool) {
	for _, d := range p.inside(path) {
		if d.changes && d.Access == AccessRead {
			return d, true
		}
	}
	return Effect{}, false
}

// callClass is a class of system calls that the filter refuses in every mode but Observe.
type callClass struct {
	name, what string
	calls      []string // some only with certain arguments; see conditions
}

// rule is the name of the rule that refuses the class.
func (c callClass) rule() string { return "calls." + c.name }

// callClasses are what the filter refuses, and what a refused call is reported as.
var callClasses = []callClass{
	// In a PID namespace of the run's own, the filter leaves those about processes to the kernel: no process outside
	// has a number there, and the namespace's init is not dumpable.
	{"processes", "access to the memory and descriptors of processes outside", []string{"ptrace", "process_vm_readv",
		"process_vm_writev", "perf_event_open", "kcmp", "pidfd_getfd"}},
	// They outlive the run, and belong to the user.
	{"keyrings", "kernel keyrings", []string{"add_key", "keyctl", "request_key"}},
	{"kernel", "new kernels and kernel code", []string{"kexec_load", "kexec_file_load", "init_module", "finit_module",
		"delete_module", "create_module", "bpf", "modify_ldt", "uselib", "nfsservctl", "lookup_dcookie"}},
	// They open files and connect sockets where no other filter applies.
	{"io_uring", "asynchronous calls that no filter sees", []string{"io_uring_setup", "io_uring_enter",
		"io_uring_register"}},
	// A common tool of exploits.
	{"userfaultfd", "page faults handled by the program", []string{"userfaultfd"}},
	{"mounts", "mounts", []string{"mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr",
		"move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "open_by_handle_at",
		"fanotify_init"}},
	{"namespaces", "new user namespaces, and entering others", []string{"clone", "unshare", "setns"}},
	{"machine", "the clock, the names and the state of the machine", []string{"reboot", "swapon", "swapoff",
		"settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "syslog", "acct",
		"quotactl", "vhangup", "iopl", "ioperm", "_sysctl"}},
	{"terminal", "input into a terminal on a user's behalf", []string{"ioctl"}},
	{"sockets", "raw sockets, MPTCP, and address families other than unix, inet, inet6 and netlink",
		[]string{"socket"}},
}

// types reports whether a request of ioctl(2) is one of the class terminal: TIOCSTI or TIOCLINUX.
func types(request uint64) bool { return uint32(request) == 0x5412 || uint32(request) == 0x541C }

// under is what applies to the directory that contains a decision's target.
func (p *Plan) under(d Effect) Access {
	if d.Target == "/" {
		return d.Access
	}
	i := strings.LastIndexByte(d.Target, '/')
	return p.Path(cmp.Or(d.Target[:i], "/")).Access
}

// hides reports whether something on the host is hidden at path: it is not in a directory that is empty.
func (p *Plan) hides(path string) bool {
	for at := path; ; at = at[:strings.LastIndexByte(at, '/')] {
		if at == "" {
			at = "/"
		}
		if i, ok := p.at[at]; ok {
			switch d := p.Paths[i]; {
			case d.Access == AccessPrivate || d.Access == AccessTemporary || d.Access.visible():
				return false
			case d.changes:
				return true
			}
		}
		if at == "/" {
			return false
		}
	}
}

// means describes a decision about a path.
func (p *Plan) means(d Effect) string {
	outer := p.under(d)
	switch d.Access {
	case AccessNone:
		return "may not read"
	case AccessPrivate:
		return "has a private, empty"
	case AccessTemporary:
		return "has a private, empty and writable"
	case AccessWrite:
		return "may write"
	case AccessLayer:
		return "writes only to a private layer over"
	}
	if !outer.visible() {
		return "may read, as an exception"
	}
	return "may not write"
}

// Because is the rule of an effect, and those that lost against it.
func (d Effect) Because() string {
	if len(d.Over) == 0 {
		return d.Rule
	}
	return d.Rule + ", not " + strings.Join(d.Over, ", ")
}

// mounted reports whether path is / or something else applies to it than to the directory above.
func (p *Plan) mounted(path string) bool {
	i, ok := p.at[path]
	return path == "/" || ok && p.Paths[i].changes
}
