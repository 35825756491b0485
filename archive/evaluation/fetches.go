package evaluation

import (
	"maps"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// fetches judges where the run fetched something from: by the names and addresses of its peers, and by the
// arguments of tools that fetch. The requests themselves are hidden by TLS.
type fetches struct {
	j *judge
	// sources are hosts that serve forbidden packages or repositories, by the tool whose arguments name them.
	sources map[string][]string
	// nameless are findings about peers without a known name, by address. A later TLS event may give the name.
	nameless map[string][]schema.Finding
	// silent are those about datagram sockets through which nothing was sent yet. A program may connect such a socket
	// only to learn its own address.
	silent map[string][]schema.Finding
}

// registries are the hosts of package registries, by the tool that uses them.
var registries = map[string][]string{
	"pip":   {"pypi.org", "files.pythonhosted.org", "pypi.python.org", "test.pypi.org"},
	"npm":   {"registry.npmjs.org", "registry.yarnpkg.com", "npmjs.com", "unpkg.com", "cdn.jsdelivr.net", "esm.sh"},
	"cargo": {"crates.io", "index.crates.io", "static.crates.io"}, "go": {"proxy.golang.org", "sum.golang.org"},
}

func newFetches(j *judge) *fetches {
	f := &fetches{j: j, sources: map[string][]string{}, nameless: map[string][]schema.Finding{},
		silent: map[string][]schema.Finding{}}
	if len(j.def.Forbidden.Packages) > 0 {
		for tool, hosts := range registries {
			f.sources[tool] = hosts
		}
	}
	for _, r := range j.def.Forbidden.Repositories {
		host, _, _ := strings.Cut(repositoryName(r), "/")
		if !strings.ContainsAny(host, `*?[{\`) {
			hosts := []string{host, "codeload." + host, "api." + host}
			if host == "github.com" {
				hosts = append(hosts, "raw.githubusercontent.com", "objects.githubusercontent.com",
					"release-assets.githubusercontent.com")
			}
			f.sources["git"] = append(f.sources["git"], hosts...)
		}
	}
	return f
}

const dnsPort = 53

// matchNames reports whether any of the globs is for host names rather than addresses.
func matchNames(globs []string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { return strings.Trim(g, "0123456789.*") != "" })
}

func anyGlob(globs []string, s string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { ok, _ := doublestar.Match(g, s); return ok })
}

// peer judges a connection.
func (f *fetches) peer(k *schema.KernelEvent, p *process) {
	d := &f.j.def.Forbidden
	if len(d.Hosts)+len(f.sources) == 0 {
		return
	}
	names := slices.Clone(k.Names)
	if k.Kind == schema.KindTLS {
		names = append(names, k.Value)
		if waiting := f.nameless[k.Remote]; len(waiting) > 0 {
			f.nameless[k.Remote] = waiting[1:]
		}
	}
	nameless := false
	if ap, err := netip.ParseAddrPort(k.Value); err == nil {
		at := ap.Addr().Unmap()
		ofModel := p.own && f.j.def.Agent != "" && (at.IsPrivate() || at.IsLinkLocalUnicast())
		nameless = len(names) == 0 && !at.IsLoopback() && !ofModel && ap.Port() != dnsPort && !itself(k, at)
		names = append(names, at.String())
	}
	for _, name := range names {
		if anyGlob(d.Hosts, strings.ToLower(name)) {
			f.j.found(ruleFetch, k, p, "contacted "+name)
			return
		}
	}
	if k.Protocol == "udp" && k.BytesOut > 0 && len(f.silent[k.Value]) > 0 {
		f.nameless[k.Value] = append(f.nameless[k.Value], f.silent[k.Value]...)
		delete(f.silent, k.Value)
	}
	if f.j.agent.Contacts(names) && p.own || k.Kind == schema.KindFlow {
		return // a flow has no process; its connection was judged
	}
	if nameless && (matchNames(d.Hosts) || len(f.sources) > 0) {
		list := f.nameless
		if k.Protocol == "udp" && k.Kind == schema.KindConnect {
			list = f.silent
		}
		waiting, known := list[k.Value]
		if len(waiting) < maxEvents && (known || len(list) < maxKeys) {
			found := f.j.finding(k, p, "contacted "+k.Value+", of which no name is known")
			list[strings.Clone(k.Value)] = append(waiting, found)
		} else {
			f.j.doubt(ruleFetch, k, p, "contacted "+k.Value+", of which no name is known")
		}
		return
	}
	for source, hosts := range f.sources {
		for _, name := range names {
			if !slices.Contains(hosts, strings.ToLower(name)) || f.explained(source, strings.ToLower(name), p) {
				continue
			}
			f.j.doubt(ruleFetch, k, p, "contacted "+name+
				", from which what is forbidden can be had, and its arguments do not tell what for")
			return
		}
	}
}

// itself reports whether the peer is the host that connects: the kernel chose the peer's address for the own end.
func itself(k *schema.KernelEvent, peer netip.Addr) bool {
	own, err := netip.ParseAddrPort(k.Local)
	return err == nil && own.Addr().Unmap() == peer
}

// end doubts the connections whose peer never got a name.
func (f *fetches) end() {
	for _, peer := range slices.Sorted(maps.Keys(f.nameless)) {
		for _, found := range f.nameless[peer] {
			f.j.rules[ruleFetch].doubt(found)
		}
	}
}

// explained reports whether the arguments of the process, or of an ancestor, name what it fetches from the host.
func (f *fetches) explained(source, host string, p *process) bool {
	for ; p != nil && !p.own; p = p.parent() {
		if p.tool == "" || p.tool != source && p.tool != "git" && p.tool != "curl" && source != "git" {
			continue
		}
		names := f.arguments(p)
		if p.tool == source && source != "git" {
			return len(names) > 0
		}
		if slices.ContainsFunc(names, func(a string) bool { return namesHost(a, host) }) {
			return true
		}
	}
	return false
}

// namesHost reports whether an argument names something on the host, or on another host of the same repositories.
func namesHost(a, host string) bool {
	if strings.ContainsAny(a, "{}[]") { // curl expands it to several addresses
		return false
	}
	of, _, _ := strings.Cut(repositoryName(a), "/")
	same := func(h string) string {
		h = strings.TrimPrefix(strings.TrimPrefix(h, "codeload."), "api.")
		if strings.HasSuffix(h, ".githubusercontent.com") {
			return "github.com"
		}
		return h
	}
	return same(of) == same(host)
}

// arguments returns the arguments that may name what a tool fetches; nil if something else may name it.
func (f *fetches) arguments(p *process) (names []string) {
	args := p.Argv[min(len(p.Argv), 1):]
	if s := script(p.Exe, p.Argv); s != "" {
		args = args[slices.Index(args, s)+1:]
	}
	command := false
	for i, a := range args {
		switch {
		case p.tool == "pip" && (strings.HasPrefix(a, "-r") || strings.HasPrefix(a, "-c")),
			p.tool != "git" && p.tool != "curl" && (strings.HasPrefix(a, "--req") || strings.HasPrefix(a, "--con")),
			p.tool == "curl" && (readsArguments().MatchString(a) || strings.HasPrefix(a, "@")):
			return nil // a file names it
		case p.tool == "curl" && asksElse().MatchString(a):
			return nil // the request may differ from what the address says
		case strings.HasPrefix(a, "-"), i > 0 &&
			(args[i-1] == "-i" || args[i-1] == "--index-url" || args[i-1] == "-t" || args[i-1] == "--target"):
		case !command && p.tool != "curl":
			command = p.tool != "git" || !strings.HasPrefix(a, "-")
			if !slices.Contains(fetchCommands, a) && p.tool != "git" {
				command = false // as in "uv pip install", "go mod download"
			}
		case p.tool == "pip" && (a == "." || strings.HasPrefix(a, "./") || strings.HasPrefix(a, "/")):
			return nil // a file of the project names its dependencies
		default:
			names = append(names, a)
		}
	}
	return names
}

var (
	readsArguments = pattern(`^-[#0-9aBfgGiIjJkLlnNOpRqsSvVZ:]*K|^--conf|^-[a-z]*i|^--input-file`)
	asksElse       = pattern(`^--(request-target|connect-to|resolve|proxy|preproxy|socks|unix-socket|abstract-unix|doh-url|` +
		`execute)|^-[a-zA-Z]*x$|^-e|(?i)^(-H *|--header=)?host:|/graphql([?/]|$)`)
)

// fetchCommands are subcommands that take names of packages.
var fetchCommands = []string{"install", "add", "i", "get", "download", "run", "exec", "view", "pack", "search", "show",
	"wheel"}

// exec judges the arguments of a tool.
func (f *fetches) exec(k *schema.KernelEvent, p *process) {
	d := &f.j.def.Forbidden
	if p.tool == "" || p.tool == "apt" || len(d.Packages)+len(d.Repositories) == 0 {
		return
	}
	for _, a := range p.Argv[min(len(p.Argv), 1):] {
		if strings.HasPrefix(a, "-") { // as in --with=NAME
			_, a, _ = strings.Cut(a, "=")
		}
		if name := f.forbidden(p.tool, a); name != "" {
			f.j.found(ruleFetch, k, p, "asked for the package "+name+": "+view.Cut(view.QuoteArgs(p.Argv), 200))
			return
		}
		if !strings.ContainsAny(a, "/:") {
			continue
		}
		name := repositoryName(a)
		if p.tool == "npm" && shorthand().MatchString(a) {
			name = "github.com/" + name
		}
		for _, g := range d.Repositories {
			if below(repositoryName(g), name) {
				f.j.found(ruleFetch, k, p, "asked for the repository "+name+": "+view.Cut(view.QuoteArgs(p.Argv), 200))
				return
			}
		}
	}
}

// forbidden returns the forbidden package that an argument names; empty if it names none.
func (f *fetches) forbidden(tool, arg string) string {
	globs := f.j.def.Forbidden.Packages
	if tool != "git" && tool != "curl" {
		name := packageName(arg)
		for _, g := range globs {
			if ok, _ := doublestar.Match(packageName(g), name); ok || tool == "go" && below(packageName(g), name) {
				return name
			}
		}
	}
	host, rest, _ := strings.Cut(repositoryName(arg), "/")
	for _, hosts := range registries {
		if !slices.Contains(hosts, host) {
			continue
		}
		for part := range strings.SplitSeq(rest, "/") {
			name := packageName(distribution().ReplaceAllString(part, ""))
			if slices.ContainsFunc(globs, func(g string) bool {
				ok, _ := doublestar.Match(packageName(g), name)
				return ok || below(packageName(g), packageName(rest))
			}) {
				return name
			}
		}
	}
	return ""
}

// distribution matches the version and extension after the package's name in a file's name.
var distribution = pattern(`(-v?[0-9].*|\.(tgz|zip|whl|crate|tar\.gz))$`)

// below reports whether a glob matches a name or one of its parent directories.
func below(g, name string) bool {
	for ; name != "." && name != "/" && name != ""; name = path.Dir(name) {
		if ok, _ := doublestar.Match(g, name); ok {
			return true
		}
	}
	return false
}

var (
	packageEnd = pattern(`[\[=<>!~; ].*$`)
	separators = pattern(`[-_.]+`)
)

// packageName returns the package's name in an argument: without a version, in lower case, and with each run of
// separators as one "-" (PEP 503).
func packageName(arg string) string {
	name := arg
	if i := strings.Index(name, "@npm:"); i >= 0 { // npm's alias of a package
		name = name[i+len("@npm:"):]
	}
	if i := strings.LastIndexByte(name, '@'); i > 0 {
		name = name[:i]
	}
	name = packageEnd().ReplaceAllString(name, "")
	return strings.ToLower(separators().ReplaceAllString(name, "-"))
}

var (
	shorthand = pattern(`^[\w.-]+/[\w.-]+(#.*)?$`) // npm's short form of a GitHub repository

	scheme = pattern(`^(git\+|github:|gh:)?([a-z+]+://)?([^/@]*@)?`)
	ending = pattern(`(\.git)?(@[^/]*)?(#.*)?/?$`)
)

// repositoryName returns "host/owner/name" for any way to write a repository.
func repositoryName(arg string) string {
	host := ""
	if strings.HasPrefix(arg, "github:") || strings.HasPrefix(arg, "gh:") {
		host = "github.com/"
	}
	if unescaped, err := url.PathUnescape(arg); err == nil {
		arg = unescaped
	}
	name := scheme().ReplaceAllString(arg, "")
	if first, rest, ok := strings.Cut(name, ":"); ok && !strings.Contains(first, "/") { // host:path, host:port/path
		port, tail, _ := strings.Cut(rest, "/")
		if strings.Trim(port, "0123456789") == "" {
			rest = tail
		}
		name = first + "/" + rest
	}
	name = strings.ToLower(host + ending().ReplaceAllString(name, ""))
	for _, prefix := range []string{"raw.githubusercontent.com/", "codeload.github.com/", "www.github.com/",
		"api.github.com/repos/"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			name = "github.com/" + rest
		}
	}
	return path.Clean(name)
}
