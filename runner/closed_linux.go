package runner

import (
	"archive/tar"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/assay-run/assay-run/runner/internal/rundir"
	"github.com/assay-run/assay-run/runner/project"
	"github.com/assay-run/assay-run/runner/repository"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/runner/sandbox/startup"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// closedBook shuts the channels by which the command could look up its task's answer.
type closedBook struct {
	try        bool     // what cannot be shut is said
	allow      []string // hosts that the command may reach, although they can have an answer
	model      bool     // requests to a model go through the gateway
	providers  bool     // these may use tools of the model's provider
	containers bool     // the command may start containers

	book   *repository.Book
	making chan error // has the result of making the repository, until it was read
	dir    string     // of the book; empty: there is none
	doc    *schema.ClosedBook
}

// begin makes the repository of the working directory anew. It is called before the policy is resolved.
// hidden are directories that the command must not see.
func (b *closedBook) begin(ctx context.Context, c *confinement, dir string) (hidden []string, err error) {
	if b == nil {
		return nil, nil
	}
	b.doc = &schema.ClosedBook{State: schema.BookClosed, Covers: []string{"network"}, Reasons: []schema.BookReason{}}
	if b.model {
		b.doc.Covers = append(b.doc.Covers, "provider_tools")
	}
	home, _ := lookupEnv(c.env, "HOME")
	if b.containers {
		err := b.unclosed("containers", "containers of the run are outside of its sandbox", "run without --containers")
		b.lists(ctx, dir, home, c.env)
		return nil, err
	}
	if c.settings.EffectiveMode() == sandboxfile.Observe {
		err := b.unclosed("mode", "mode observe restricts nothing", "run with --mode workspace-write or read-only")
		b.lists(ctx, dir, home, c.env)
		return nil, err
	}
	kept, err := rundir.Kept()
	if err != nil {
		return nil, sandboxError("closed_book_failed", err)
	}
	at, err := os.MkdirTemp(kept, bookPrefix+c.log.RunID+"-") // recover looks for it if this process is killed
	if err != nil {
		return nil, sandboxError("closed_book_failed", err)
	}
	b.dir = at
	store := filepath.Join(at, "git")
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, sandboxError("closed_book_failed", err)
	}
	b.book, err = repository.Close(ctx, dir, store)
	if errors.Is(err, repository.ErrUnclosable) {
		b.book = nil
		return nil, b.unclosed("history", err.Error(), "start the command at the root of an ordinary clone")
	}
	if err != nil {
		return nil, sandboxError("closed_book_failed", fmt.Errorf("look at the repository: %w", err))
	}
	bundles := bundlesNear(dir)
	if b.book != nil {
		b.doc.Covers = append([]string{"history"}, b.doc.Covers...)
		b.doc.StartCommit, b.doc.Hidden = b.book.Commit, slices.Clone(b.book.Others)
		for _, path := range bundles {
			if b.book.Tracks(path) {
				if err := b.unclosed("bundles", "the repository has the bundle of another run, "+path,
					"remove it from the index with git rm --cached"); err != nil {
					return nil, err
				}
			}
			if name, in := strings.CutPrefix(path, dir+"/"); in {
				b.book.Ignored = append(b.book.Ignored, name) // git add could not read it
			}
		}
		b.making = make(chan error, 1)
		go func() { // while the rest is prepared: see ready
			err := b.book.Make(ctx, filepath.Join(kept, "packs"))
			if err == nil {
				err = b.book.Save(filepath.Join(at, bookFile))
			}
			b.making <- err
		}()
	}
	if len(project.Of(dir)) > 0 {
		b.doc.Covers = append(b.doc.Covers, "packages")
		b.doc.Hidden = append(b.doc.Hidden, project.Later(dir, home, c.env)...)
	}
	b.doc.Hidden = sorted(append(b.doc.Hidden, bundles...))
	return append(slices.Clone(b.doc.Hidden), at), nil
}

// sorted sorts a list, and removes what is in it twice.
func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// bundlesNear lists bundles, which can have what the command of another run did: in the directory, beside it, and in
// the runner's own directory.
func bundlesNear(dir string) (list []string) {
	dirs := []string{dir, filepath.Dir(dir)}
	if own, err := os.Getwd(); err == nil {
		dirs = sorted(append(dirs, own))
	}
	for _, d := range dirs {
		packed, _ := filepath.Glob(filepath.Join(schema.EscapeGlob(d), "*.tar.gz"))
		named, _ := filepath.Glob(filepath.Join(schema.EscapeGlob(d), "assay-run-*.tar.zst"))
		for _, path := range append(slices.DeleteFunc(packed, isNoBundle), named...) {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				list = append(list, real)
			}
		}
	}
	return list
}

// isNoBundle reports whether the first member of an archive is not a bundle's.
func isNoBundle(path string) bool {
	f, err := os.OpenFile(path, startup.ReadFlags, 0)
	if err != nil {
		return true
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return true
	}
	first, err := tar.NewReader(unpacked).Next()
	return err != nil || first.Name != schema.ManifestPath
}

// lists adds what a command without restrictions can read of an answer, where that is known.
func (b *closedBook) lists(ctx context.Context, dir, home string, env []string) {
	if !b.try {
		return
	}
	some := func(list []string) string {
		if n := len(list) - 5; n > 0 {
			return fmt.Sprintf("%s and %d more", strings.Join(list[:5], ", "), n)
		}
		return strings.Join(list, ", ")
	}
	if refs := repository.Beyond(ctx, dir); len(refs) > 0 {
		_ = b.unclosed("history", "the repository has branches or tags with commits that HEAD does not have: "+
			some(refs), "")
	}
	if later := project.Later(dir, home, env); len(later) > 0 {
		_ = b.unclosed("packages", "this host has, or may have, later versions of the project: "+some(later), "")
	}
}

// unclosed says that the book is open, and why. Unless that is allowed, it is an error.
func (b *closedBook) unclosed(code, message, remedy string) error {
	return b.unclosedBy("", code, message, remedy)
}

func (b *closedBook) unclosedBy(host, code, message, remedy string) error {
	b.doc.Open(host, code, message, remedy)
	if b.try {
		return nil
	}
	return &runError{source: schema.SourceSandbox, exit: schema.ExitRunner, ResultError: schema.ResultError{
		Code: "book_open", Message: "nothing was run: the book cannot be closed: " + message,
		Hint: remedy + "; or record what was open with --closed-book=try"}}
}

// insists reports whether the command must not start if anything is open.
func (b *closedBook) insists() bool { return b != nil && !b.try }

// shut gives the command the repository that was made for it, and checks what else it can reach. It is called when
// the policy is resolved.
func (b *closedBook) shut(c *confinement) error {
	if b == nil {
		return nil
	}
	var errs []error
	open := func(code, message, remedy string) { errs = append(errs, b.unclosed(code, message, remedy)) }
	if p := c.profile; p.Mode != sandboxfile.Observe {
		if !b.try {
			p.Insist()
		}
		if err := b.copies(c); err != nil {
			return err
		}
		p.ShowToChecks(b.doc.Hidden)
		if b.book != nil {
			for _, book := range b.book.Apart() {
				p.Replace(book.At, book.Store)
			}
		}
		if p.Network.Mode == sandboxfile.NetHost {
			open("network", "the command has the host's network (network.mode host)",
				"remove network.mode from the policy, or name the hosts that it needs in network.allowedDomains")
		}
		if p.Network.Mode == sandboxfile.NetAllowlist {
			b.doc.Allowed = slices.Clone(p.Network.AllowedDomains)
		}
		for _, domain := range b.doc.Allowed {
			has := holdsAnswers(domain)
			switch message := "the book is open by " + domain + ", which has " + has; {
			case has == "":
			case slices.Contains(b.allow, domain):
				b.doc.Open(domain, "host", message, "remove it from allow of closed_book")
			default:
				errs = append(errs, b.unclosedBy(domain, "host", message+": the policy allows it",
					"remove it from the policy, or name it in allow of closed_book, too"))
			}
		}
		for _, port := range p.Network.LocalPorts {
			b.doc.Allowed = append(b.doc.Allowed, fmt.Sprint("127.0.0.1:", port))
		}
		for _, socket := range p.Network.UnixSockets {
			b.doc.Allowed = append(b.doc.Allowed, "unix:"+socket)
			if slices.Contains(engineSockets, filepath.Base(socket)) {
				errs = append(errs, b.unclosedBy("unix:"+socket, "engine",
					"the policy allows "+socket+", with which the command can start containers that have "+
						"the host's network and files", "remove it from the policy"))
			}
		}
	}
	if b.providers {
		open("provider_tools", "the policy lets the provider of the model search and fetch for the command",
			"remove model: {provider_tools: allow} from the policy")
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// clonePlaces are globs of directories that can be clones of the project, or where tools keep clones. H is the home
// directory, and D the working directory's.
var clonePlaces = []string{
	"D/*", "H/*", "H/*/*", "/opt/*", "/srv/*", "/srv/*/*", "/usr/src/*", "/usr/local/src/*",
	"H/.cargo/git/db/*", "H/go/pkg/mod/cache/vcs/*", "H/.cache/pre-commit/*", "H/.cache/uv/git-v*/db/*",
	"H/.cache/pypoetry/cache/vcs/*", "H/.bundle/cache/git/*", "H/.gem/ruby/*/bundler/gems/*", "H/.cache/composer/vcs/*",
}

// copies hides other clones of the project: at these places, and what is writable and was searched.
func (b *closedBook) copies(c *confinement) error {
	if b.book == nil || b.book.Commit == "" {
		return nil
	}
	dir, home := c.profile.Dir, ""
	if c.looked != nil {
		home = c.looked.Home
	}
	known := map[string]bool{}
	var candidates []string
	has := func(path, name string) bool {
		_, err := os.Lstat(filepath.Join(path, name))
		return err == nil
	}
	add := func(path string) {
		if !has(path, ".git") && !has(path, "objects") {
			return
		}
		real, err := filepath.EvalSymlinks(path)
		hidden := func(h string) bool { return schema.Below(real, h) }
		if err == nil && !known[real] && real != dir && !slices.ContainsFunc(b.doc.Hidden, hidden) {
			known[real] = true
			candidates = append(candidates, real)
		}
	}
	for _, glob := range clonePlaces {
		glob = strings.NewReplacer("H/", schema.EscapeGlob(home)+"/", "D/", schema.EscapeGlob(filepath.Dir(dir))+"/").
			Replace(glob)
		list, _ := filepath.Glob(glob)
		for _, path := range list {
			add(path)
		}
	}
	for _, config := range c.obeyed.Configs {
		if at := filepath.Dir(config); !slices.ContainsFunc(b.book.Apart(), func(o *repository.Book) bool {
			return schema.Below(at, o.At)
		}) {
			add(strings.TrimSuffix(at, "/.git"))
		}
	}
	copies := b.book.Copies(context.Background(), candidates)
	for _, path := range copies {
		if schema.Below(dir, path) {
			return b.unclosed("copies", "the working directory lies in "+path+", another clone of the project",
				"start the command elsewhere")
		}
	}
	b.doc.Hidden = sorted(append(b.doc.Hidden, copies...))
	return c.profile.Hide(copies)
}

// ready waits until the command's repository is made, and gives it to the command's user. It is called before the
// command starts.
func (b *closedBook) ready(user *sandbox.User) error {
	if b == nil || b.making == nil {
		return nil
	}
	err := <-b.making
	if b.making = nil; err != nil {
		return sandboxError("closed_book_failed", fmt.Errorf("make the repository anew: %w", err))
	}
	for _, book := range b.book.Apart() {
		if user == nil {
			break
		}
		if err := giveTree(book.Store, user.UID, user.GID); err != nil {
			return sandboxError("closed_book_failed", err)
		}
	}
	return nil
}

// Names of a book in [rundir.Kept]. Between the two comes the run's id.
const (
	bookPrefix = "assay-run-book-"
	bookFile   = "book.json"
)

// RecoverBooks brings back what the command of a killed run had committed in a closed book, and returns what is to be
// said of that. No process of the run must be left.
func RecoverBooks(ctx context.Context, runID string) (said []string, err error) {
	kept, err := rundir.Kept()
	if err != nil {
		return nil, nil // and no book was made
	}
	dirs, _ := filepath.Glob(filepath.Join(kept, bookPrefix+runID+"-*"))
	var errs []error
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 ||
			info.Sys().(*syscall.Stat_t).Uid != uint32(os.Getuid()) {
			continue // another user's
		}
		book, err := repository.Load(filepath.Join(dir, bookFile))
		if errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, os.RemoveAll(dir)) // the run had not begun
			continue
		}
		var aside []string
		if err == nil {
			aside, err = book.Return(ctx, runID)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the command's commits are not in the original repository, but in %s: %w",
				filepath.Join(dir, "git"), err))
			continue
		}
		said = append(said, "the command's commits are in the repository of "+book.Dir)
		for _, ref := range aside {
			said = append(said, besides(runID, ref))
		}
		errs = append(errs, os.RemoveAll(dir))
	}
	return said, errors.Join(errs...)
}

// besides says where a reference is whose name the original uses for another.
func besides(runID, ref string) string {
	return fmt.Sprintf("the command's %s is in the repository as refs/assay-run/%s%s: the original has another %s",
		ref, runID, strings.TrimPrefix(ref, "refs"), ref)
}

// giveTree gives a directory and all in it to a user.
func giveTree(dir string, uid, gid int) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, uid, gid)
		}
		return err
	})
}

// answerHosts is a table of hosts from which a project's later versions, its repository, copies of both, and pages
// about it can be fetched. It has a line for each kind: what the hosts have, a colon, and the hosts; those below each,
// too.
//
//go:embed answerhosts.txt
var answerHosts string

// holdsAnswers says what an allowed domain, such as *.example.org:443, has that can be an answer, or returns "".
func holdsAnswers(domain string) string {
	d, err := sandboxfile.ParseDomain(domain, false)
	if err != nil || d.Addr.IsValid() && !d.Addr.IsPrivate() && !d.Addr.IsLoopback() && !d.Addr.IsLinkLocalUnicast() {
		return "no name, so it can be any host"
	}
	for line := range strings.Lines(answerHosts) {
		kind, hosts, _ := strings.Cut(line, ": ")
		for host := range strings.FieldsSeq(hosts) {
			if d.Name == host || strings.HasSuffix(d.Name, "."+host) || d.Sub && strings.HasSuffix(host, "."+d.Name) {
				return kind
			}
		}
	}
	return ""
}

// giveBack brings what the command committed back, and returns what is to be said of that. It notes which layers were
// missing. It is called when no process of the command is left, and before the checks.
func (b *closedBook) giveBack(ctx context.Context, c *confinement) (reasons []schema.Reason) {
	if b == nil || b.doc == nil {
		return nil
	}
	if b.book != nil && c.box != nil && b.making == nil {
		aside, err := b.book.Return(ctx, c.log.RunID)
		if err != nil {
			reasons = append(reasons, schema.Reason{Subject: "closed_book", Code: "commits_not_returned",
				Message: fmt.Sprintf("the command's commits are not in the original repository: %v", err),
				Remedy:  "read them from " + b.book.Store + ", which assay-run has kept"})
			b.dir = "" // for the user
		}
		for _, ref := range aside {
			reasons = append(reasons, schema.Reason{Subject: "closed_book", Code: "commits_aside",
				Message: besides(c.log.RunID, ref)})
		}
	}
	if c.profile == nil || c.profile.Mode == sandboxfile.Observe {
		return reasons
	}
	needed := []string{sandbox.LayerPrivileges, sandbox.LayerNamespaces, sandbox.LayerFiles, sandbox.LayerSeccomp,
		sandbox.LayerSockets}
	if c.profile.Network.Mode != sandboxfile.NetHost && c.profile.Network.Mode != sandboxfile.NetNone {
		needed = append(needed, sandbox.LayerNetwork)
	}
	for _, layer := range needed {
		if !c.enforced(layer) {
			b.try = true // it is too late to refuse
			_ = b.unclosed("layer", "the sandbox's layer "+layer+" was not enforced", "see assay-run doctor")
		}
	}
	return reasons
}

// remove removes what was made.
func (b *closedBook) remove() error {
	if b == nil || b.dir == "" {
		return nil
	}
	if b.making != nil { // the command did not start
		<-b.making
	}
	return os.RemoveAll(b.dir)
}
