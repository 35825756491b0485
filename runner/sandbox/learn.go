package sandbox

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/runner/sandbox/startup"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// Learner finds the smallest policy that would have allowed some runs, from their kernel and policy layers.
type Learner struct {
	dir     string
	home    string // of the run's user; empty if it is not known
	effect  func(path string) (target, access string)
	named   map[string]bool // names in a directory that is too wide to be learned
	write   map[string]bool // trees and files
	read    map[string]bool // denied reads
	domains map[string]bool
	direct  map[string]bool // endpoints reached without the proxy
	sockets map[string]bool // denied unix sockets
	cannot  map[string]bool // what no policy can allow
}

// NewLearner makes an empty Learner.
func NewLearner() *Learner {
	l := &Learner{}
	for _, m := range []*map[string]bool{&l.named, &l.write, &l.read, &l.domains, &l.direct, &l.sockets, &l.cannot} {
		*m = map[string]bool{}
	}
	return l
}

// Run starts a run in dir, an absolute path, of a user with the home directory home, which may be empty. policy is the
// run's, or nil. The next events belong to it.
func (l *Learner) Run(dir, home string, policy *schema.Policy) {
	l.dir, l.home, l.effect = dir, home, policy.Effect()
}

// Kernel adds a kernel event. Successful and denied calls count the same; calls that failed for another reason do not
// count.
func (l *Learner) Kernel(e *schema.KernelEvent) {
	if e.Class == schema.ClassRunner || e.Failed() || e.Blocked() {
		return // denials come from the policy layer, with their operation
	}
	for name, access := range e.Touches() {
		if _, given := l.effect(name); given == string(AccessLayer) {
			continue // the private home lets any command write there
		}
		switch {
		case access&(schema.AccessCreate|schema.AccessRemove) != 0:
			l.makes(name)
		case access&schema.AccessModify != 0:
			l.writes(name)
		case access&schema.AccessConnect != 0:
			l.connects(name, e.Names)
		}
	}
}

// Policy adds a decision.
func (l *Learner) Policy(e *schema.PolicyEvent) {
	if e.Source != "sandbox" {
		return
	}
	switch {
	case e.Rule == "evidence":
		l.cannot[e.Operation+" "+e.Target+" (the run's evidence)"] = true
	case e.SourceEventType == "proxy_decision" && e.Rule == ruleServerName:
		l.cannot["connect "+e.Target+" under another server's name"] = true
	case e.SourceEventType == "proxy_decision":
		l.domains[e.Target] = true
	case e.Decision != "deny":
	case e.Operation == OpWrite && e.Rule == RuleMode:
		l.makes(e.Target) // it is not known whether it existed
	case e.Operation == OpWrite && e.Rule == ruleProtected: // allowed by its own name alone
		if protected, access := l.effect(e.Target); access == string(AccessRead) {
			l.write[protected] = true
		} else {
			l.cannot["rename or remove "+e.Target+" (protected paths are in it)"] = true
		}
	case e.Operation == OpWrite:
		l.write[e.Target] = true
	case e.Operation == OpRead || e.Operation == OpExec:
		l.read[e.Target] = true
	case e.Operation == OpConnect && strings.HasPrefix(e.Target, "unix:/"):
		l.sockets[strings.TrimPrefix(e.Target, "unix:")] = true
	case e.Operation == OpConnect && !strings.HasPrefix(e.Target, "unix:"):
		l.connects(e.Target, nil)
	default:
		l.cannot[e.Operation+" "+e.Target] = true
	}
}

// makes learns that a name was created or removed, which changes its directory. A home, /, and what is directly below
// / contain too much to be allowed because of one name: there, only the name is learned.
func (l *Learner) makes(name string) {
	as := narrow(name, l.home)
	if l.writes(as); as == name && l.write[name] {
		l.named[name] = true
	}
}

// narrow is what a policy must allow for a name in a directory to be created: the directory, or only the name.
func narrow(name, home string) string {
	dir := path.Dir(name)
	if strings.Count(dir, "/") > 1 && (home == "" || !schema.Below(home, dir)) {
		return dir
	}
	return name
}

func (l *Learner) writes(name string) {
	if !path.IsAbs(name) {
		return
	}
	for _, free := range []string{l.dir, "/tmp", "/dev", "/proc"} {
		if schema.Below(name, free) {
			return
		}
	}
	l.write[name] = true
}

func (l *Learner) connects(endpoint string, names []string) {
	at, err := netip.ParseAddrPort(endpoint)
	if err != nil || at.Addr().Unmap().IsLoopback() || at.Addr().IsUnspecified() || at.Port() == 53 || at.Port() == 0 {
		return // a unix socket, the run's own loopback, or DNS, which the proxy does
	}
	if len(names) == 0 {
		l.direct[endpoint] = true
		return
	}
	for _, n := range names {
		l.domains[net.JoinHostPort(n, strconv.Itoa(int(at.Port())))] = true
	}
}

// Text is the policy as a file.
func (l *Learner) Text() string {
	var b strings.Builder
	b.WriteString("version: 1\nmode: workspace-write\n")
	section := func(name string, lists ...[]string) {
		wrote := false
		for i := 0; i < len(lists); i += 2 {
			if items := lists[i+1]; len(items) > 0 {
				if !wrote {
					fmt.Fprintf(&b, "%s:\n", name)
					wrote = true
				}
				fmt.Fprintf(&b, "  %s:\n", lists[i][0])
				for _, item := range items {
					fmt.Fprintf(&b, "  - %s\n", strconv.QuoteToASCII(item))
				}
			}
		}
	}
	section("filesystem", []string{"allowWrite"}, startup.Outermost(keys(l.write)), []string{"allowRead"},
		startup.Outermost(keys(l.read)))
	var domains []string
	for _, d := range append(keys(l.domains), keys(l.direct)...) {
		if _, err := sandboxfile.ParseDomain(d, false); err == nil {
			domains = append(domains, d)
		} else {
			l.cannot["connect "+d] = true
		}
	}
	slices.Sort(domains)
	section("network", []string{"allowedDomains"}, slices.Compact(domains), []string{"allowUnixSockets"},
		keys(l.sockets))
	if len(l.direct) > 0 {
		b.WriteString("# Addresses above were reached without a name. Inside they are reached through\n# the proxy " +
			"alone: by programs that honour HTTP_PROXY.\n")
	}
	for _, n := range keys(l.named) {
		fmt.Fprintf(&b, "# %s must exist when the run starts: assay-run does not allow all of %s for it.\n",
			strconv.QuoteToASCII(n), strconv.QuoteToASCII(path.Dir(n)))
	}
	for _, c := range keys(l.cannot) {
		fmt.Fprintf(&b, "# no policy allows: %s\n", strconv.QuoteToASCII(c))
	}
	return b.String()
}

func keys(m map[string]bool) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
