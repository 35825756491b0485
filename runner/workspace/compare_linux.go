package workspace

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/gitpatch"
)

// Options configure what is compared and kept.
type Options struct {
	// Dir is the workspace, an absolute path.
	Dir string
	// Changes records the changes in Dir.
	Changes bool
	// Clean means that nothing of the run has written to the workspace yet, so that its digest identifies it.
	Clean bool
	// Skip are absolute paths that are left out, such as the recorder's own files.
	Skip []string
	// Artifacts are globs of more files to keep, absolute or relative to Dir.
	Artifacts []string
	// Deliverables are absolute globs of files that are kept as artifacts, if they changed since [Begin].
	Deliverables []string
	// Limit limits the kept contents, in bytes before compression.
	Limit int64
}

// Store stores contents. A run's recorder is one.
type Store interface {
	// Create opens a member of the bundle.
	Create(path string) (io.WriteCloser, error)
	// Put writes a member unchanged.
	Put(path string, data []byte) error
	// Secret reports whether content contains a secret and must not be kept.
	Secret(content []byte) bool
}

const (
	// maxContent limits what is kept of one file, in bytes.
	maxContent = 64 << 20
	// maxHashed and maxHashedFiles limit what is hashed before the command, in bytes and in files.
	maxHashed      = 32 << 20
	maxHashedFiles = 4096
	// maxRead limits what is read of changed files for their digests, in bytes.
	maxRead = 1 << 30
	// maxBlobs limits the contents stored outside the patch, since a bundle has a limited number of members.
	maxBlobs = 8192
	// maxExtents limits the data parts of a file with holes.
	maxExtents = 1024
	// maxListed and maxListedBytes limit the listed changes, and the bytes of their paths.
	maxListed      = 110_000
	maxListedBytes = 8 << 20
	// maxArtifacts limits the files that globs match.
	maxArtifacts = 4096
)

// content is what is known about a file's content.
type content struct {
	digest string // empty: unknown
	git    string // git's id; empty: unknown
}

// Comparison compares a workspace before and after the command. Its methods are not safe for concurrent use.
type Comparison struct {
	o      Options
	before *tree
	known  map[string]content // of the files before the command
	bases  []base

	doc     schema.WorkspaceChanges
	store   Store
	patch   *gitpatch.Writer
	left    int64 // unused part of Limit
	unread  int64 // unused part of maxRead
	blobs   map[string]bool
	blocked map[string]bool // paths that cannot be directories for git, and are now
	root    *os.Root
	parent  *os.Root // opened parentName
	name    string   // the name in parent
	buf     bytes.Buffer
}

// base is a glob for artifacts.
type base struct {
	glob string // as given
	dir  string // the part before the first meta character, without the symbolic links from before the command
	rest string // the pattern below dir

	since time.Time // only files that changed later; zero for all
}

// Begin scans the workspace before the command. The error is ctx's.
func Begin(ctx context.Context, o Options) (*Comparison, error) {
	c := &Comparison{o: o, known: map[string]content{}, left: o.Limit, unread: maxRead, blobs: map[string]bool{},
		blocked: map[string]bool{},
		doc: schema.WorkspaceChanges{Schema: schema.WorkspaceChangesV0, LimitBytes: o.Limit,
			Gaps: []schema.WorkspaceGap{}, Changes: []schema.WorkspaceChange{}, Artifacts: []schema.WorkspaceChange{}}}
	for _, glob := range o.Artifacts {
		pattern := glob
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(o.Dir, pattern)
		}
		c.bases = append(c.bases, newBase(glob, pattern, time.Time{}))
	}
	now := time.Now().Add(-clockTick)
	for _, glob := range o.Deliverables {
		c.bases = append(c.bases, newBase(glob, glob, now), newBase(glob, glob+"/**", now))
	}
	if !o.Changes {
		return c, nil
	}
	c.doc.Workspace = o.Dir
	var err error
	if c.before, err = walk(ctx, o.Dir, o.Skip); err != nil {
		return nil, err
	}
	if err := c.learn(ctx); err != nil {
		return nil, err
	}
	if o.Clean && len(c.before.gaps) == 0 {
		c.doc.WorkspaceDigest = c.before.digest(func(name string) string { return c.known[name].git })
	}
	c.before.settle(ctx)
	return c, ctx.Err()
}

func newBase(glob, pattern string, since time.Time) base {
	dir, rest := doublestar.SplitPattern(filepath.Clean(pattern))
	return base{glob, resolved(dir), rest, since}
}

// clockTick is how far the times that a file system gives to files may be behind the clock.
const clockTick = 20 * time.Millisecond

// resolved returns a path without symbolic links in its existing part.
func resolved(dir string) string {
	if to, err := filepath.EvalSymlinks(dir); err == nil || dir == "/" {
		return cmp.Or(to, dir)
	}
	return filepath.Join(resolved(filepath.Dir(dir)), filepath.Base(dir))
}

// learn determines the contents of files, as far as that is cheap: from git's index, and by hashing the smallest
// others.
func (c *Comparison) learn(ctx context.Context) error {
	index := readIndex(c.o.Dir)
	unknown := func(name string) bool {
		s := c.before.files[name]
		t, ok := index[name]
		if ok && t.mtime.Equal(s.mtime) && t.ctime.Equal(s.ctime) && t.ino == uint32(s.ino) &&
			t.size == uint32(s.size) {
			c.known[name] = content{git: t.id}
			return false
		}
		return true
	}
	list := c.before.smallest(func(name string) bool { return belongs(name) && unknown(name) })
	list = append(list, c.before.smallest(func(name string) bool {
		return !belongs(name) && !strings.Contains(name, ".git/objects/") && unknown(name)
	})...)
	list = list[:affordable(list)]
	slices.SortFunc(list, func(a, b sized) int { return strings.Compare(a.name, b.name) }) // file expects this order
	c.open()
	defer c.close()
	for _, f := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := c.before.files[f.name]
		if err := c.read(f.name, &s, s.size); err == nil {
			c.known[f.name] = sums(c.buf.Bytes())
		}
	}
	return nil
}

func sums(data []byte) content {
	digest := sha256.Sum256(data)
	return content{digest: "sha256:" + hex.EncodeToString(digest[:]), git: gitpatch.ID(data)}
}

func (c *Comparison) open() { c.root, _ = os.OpenRoot(c.o.Dir) }

func (c *Comparison) close() {
	for _, r := range []*os.Root{c.root, c.parent} {
		if r != nil {
			r.Close()
		}
	}
	c.root, c.parent, c.name = nil, nil, ""
}

var errChanging = errors.New("it changed while it was read")

// file opens a file that a walk saw. It keeps parents open, since files come in the order of their paths.
func (c *Comparison) file(name string, s *state) (*os.File, error) {
	dir, base := path.Split(name)
	if c.root == nil {
		return nil, fs.ErrNotExist
	}
	if c.parent == nil || c.name != dir {
		if c.parent != nil {
			c.parent.Close()
		}
		var err error
		if c.parent, err = c.root.OpenRoot(cmp.Or(dir, ".")); err != nil {
			c.parent = nil
			return nil, err
		}
		c.name = dir
	}
	f, err := c.parent.OpenFile(base, unix.O_RDONLY|unix.O_NONBLOCK, 0) // not through a link
	if err != nil {
		return nil, err
	}
	return f, unchanged(f, s)
}

// unchanged returns an error if an open file differs from what a walk saw, and then closes it.
func unchanged(f *os.File, s *state) error {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	if now := stateOf(&st); err == nil && !now.same(s) {
		err = errChanging
	}
	if err != nil {
		f.Close()
	}
	return err
}

// read reads a file of the given size into c.buf.
func (c *Comparison) read(name string, s *state, size int64) error {
	f, err := c.file(name, s)
	if err != nil {
		return err
	}
	return c.take(f, s, size)
}

// take reads an open file into c.buf, and closes it.
func (c *Comparison) take(f *os.File, s *state, size int64) error {
	c.buf.Reset()
	n, err := c.buf.ReadFrom(io.LimitReader(f, size+1))
	if err == nil && n != size {
		err = errChanging
	}
	if err != nil {
		f.Close()
		return err
	}
	return errors.Join(unchanged(f, s), ignoreClosed(f.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}

// Keep scans the workspace when nothing of the command runs any more, and stores the contents of what changed. The
// error is ctx's, or says that the patch could not be written. If Options ask for nothing, it does nothing.
func (c *Comparison) Keep(ctx context.Context, to Store) (err error) {
	c.store = to
	w, err := to.Create(schema.PatchPath)
	if err != nil {
		return err
	}
	c.patch = gitpatch.NewWriter(&counted{w, &c.doc.PatchBytes})
	defer func() { err = errors.Join(err, w.Close()) }()
	c.open()
	defer c.close()
	if c.o.Changes {
		if err := c.changes(ctx); err != nil {
			return err
		}
	}
	for _, b := range c.bases {
		if err := c.artifacts(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// counted counts the bytes of successful writes, each of which is a whole section.
type counted struct {
	io.Writer
	n *int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	if err == nil {
		*c.n += int64(n)
	}
	return n, err
}

// Gap records that the whole comparison is in doubt.
func (c *Comparison) Gap(reason string) {
	c.doc.Gaps = append(c.doc.Gaps, schema.WorkspaceGap{Path: ".", Reason: reason})
}

// Document is workspace/changes.json. program returns the program that last wrote a path; empty: not known.
func (c *Comparison) Document(runID string, program func(path string) string) *schema.WorkspaceChanges {
	c.doc.RunID, c.doc.KeptBytes = runID, c.o.Limit-c.left
	for _, list := range [][]schema.WorkspaceChange{c.doc.Changes, c.doc.Artifacts} {
		for i := range list {
			name := list[i].Name()
			if !filepath.IsAbs(name) {
				name = filepath.Join(c.o.Dir, name)
			}
			if p := program(name); p != "" {
				list[i].Program = &p
			}
		}
	}
	return &c.doc
}

func (c *Comparison) changes(ctx context.Context) error {
	after, err := walk(ctx, c.o.Dir, c.o.Skip)
	if err != nil {
		return err
	}
	for _, g := range slices.Concat(c.before.gaps, after.gaps) {
		if !slices.Contains(c.doc.Gaps, g) {
			c.doc.Gaps = append(c.doc.Gaps, g)
		}
	}
	names := slices.Clone(c.before.sorted())
	for name := range after.files {
		if _, was := c.before.files[name]; !was {
			names = append(names, name)
		}
	}
	slices.Sort(names) // fast, since most are in order
	listed := 0
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		was, before := c.before.files[name]
		is, now := after.files[name]
		if before && now && was.same(&is) {
			continue
		}
		if !now && slices.ContainsFunc(after.gaps, func(g schema.WorkspaceGap) bool {
			return schema.Below(name,
				g.Path)
		}) {
			continue // it was not seen, which does not mean that it was deleted
		}
		if listed += len(name); len(c.doc.Changes) == maxListed || listed > maxListedBytes {
			c.Gap(fmt.Sprintf("there are more than %d changes; the others are not listed", len(c.doc.Changes)))
			return nil
		}
		change := schema.WorkspaceChange{Change: schema.WorkspaceModified}
		change.SetName(name)
		if before {
			change.Before = described(&was, c.known[name])
		} else {
			change.Change = schema.WorkspaceAdded
		}
		if !now {
			change.Change = schema.WorkspaceDeleted
			err = c.deleted(&change, &was)
		} else {
			var same bool
			if same, err = c.changed(&change, &was, &is, before); same {
				continue
			}
		}
		if err != nil {
			return err
		}
		c.doc.Changes = append(c.doc.Changes, change)
	}
	return nil
}

// described is a state in the document's form.
func described(s *state, k content) *schema.WorkspaceFile {
	f := &schema.WorkspaceFile{Kind: s.kind(), Mode: fmt.Sprintf("%04o", s.mode&0o7777)}
	switch f.Kind {
	case schema.KindOfFile:
		if f.Bytes = s.size; k.digest != "" {
			f.Digest = &k.digest
		}
		if k.git != "" {
			f.GitBlob = &k.git
		}
	case schema.KindOfLink:
		f.Bytes = int64(len(s.target))
		f.SetLinkTarget(s.target)
	}
	return f
}

// side is a state in git's form. It is nil if git cannot represent it, or the id is not known.
func side(s *state, k content) *gitpatch.State {
	switch s.mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return &gitpatch.State{Mode: gitpatch.Link, ID: gitpatch.ID([]byte(s.target))}
	case unix.S_IFREG:
		if k.git == "" {
			return nil
		}
		if s.mode&0o100 != 0 {
			return &gitpatch.State{Mode: gitpatch.Executable, ID: k.git}
		}
		return &gitpatch.State{Mode: gitpatch.File, ID: k.git}
	}
	return nil
}

// hides removes what would reveal a secret from a change whose path or target contains one, and reports whether it
// does. The recorder removes the secret from the texts.
func (c *Comparison) hides(change *schema.WorkspaceChange) bool {
	secret := c.store.Secret([]byte(change.Name()))
	if secret {
		change.PathRaw = nil
	}
	for _, f := range []*schema.WorkspaceFile{change.Before, change.After} {
		if f != nil && f.Kind == schema.KindOfLink && c.store.Secret([]byte(f.LinkTarget())) {
			f.TargetRaw, secret = nil, true
		}
	}
	if secret {
		change.NotKept = schema.NotKeptRedacted
	}
	return secret
}

func (c *Comparison) deleted(change *schema.WorkspaceChange, was *state) error {
	if c.hides(change) {
		return nil
	}
	from := side(was, c.known[change.Name()])
	if from == nil || gitpatch.Refuses(change.Name(), false) {
		return nil
	}
	change.InPatch = true
	return c.patch.Delete(change.Name(), *from)
}

// changed describes what is at a path now, and stores its content. same is true if nothing has changed.
func (c *Comparison) changed(change *schema.WorkspaceChange, was, is *state, before bool) (same bool, err error) {
	name := change.Name()
	known := content{}
	if before {
		known = c.known[name]
	}
	if before && was.mode&unix.S_IFMT != is.mode&unix.S_IFMT && is.mode&unix.S_IFMT == unix.S_IFDIR {
		defer func() { c.blocked[name] = !change.InPatch }()
	}
	switch kind := is.kind(); kind {
	case schema.KindOfFile:
		return c.changedFile(change, was, is, before, known)
	case schema.KindOfLink, schema.KindOfDirectory:
		change.After = described(is, content{})
		if c.hides(change) {
			return false, nil
		}
		to := &gitpatch.State{}
		if kind == schema.KindOfLink {
			to = side(is, content{})
		}
		return false, c.section(change, was, before, known, to, []byte(is.target))
	}
	change.After = described(is, content{})
	if !c.hides(change) {
		change.NotKept = schema.NotKeptSpecial
	}
	return false, nil
}

func (c *Comparison) changedFile(change *schema.WorkspaceChange, was, is *state, before bool, known content) (bool,
	error) {
	k, why := c.content(change.Name(), is)
	change.After = described(is, k)
	if before && was.mode == is.mode &&
		(k.digest != "" && k.digest == known.digest || k.git != "" && k.git == known.git) {
		return true, nil
	}
	switch {
	case c.hides(change):
		hideContent(change)
		return false, nil
	case why == schema.NotKeptCut:
		c.sparse(change, is)
		return false, nil
	case why != "":
		change.NotKept = why
		return false, nil
	case c.store.Secret(c.buf.Bytes()):
		hideContent(change)
		return false, nil
	}
	to := side(is, k)
	if before && known.git == k.git && was.mode&unix.S_IFMT == unix.S_IFREG { // only its mode has changed
		return false, c.section(change, was, before, known, to, nil)
	}
	if is.size > c.left {
		c.sparse(change, is)
		return false, nil
	}
	c.left -= is.size
	if err := c.section(change, was, before, known, to, c.buf.Bytes()); err != nil || change.InPatch {
		return false, err
	}
	c.blob(change, c.buf.Bytes())
	return false, nil
}

// hideContent says that a content contains a secret, and drops its digests, which could reveal it.
func hideContent(change *schema.WorkspaceChange) {
	change.NotKept = schema.NotKeptRedacted
	for _, f := range []*schema.WorkspaceFile{change.Before, change.After} {
		if f != nil {
			f.Digest, f.GitBlob = nil, nil
		}
	}
}

// content reads a file into c.buf. why is the reason if it could not.
func (c *Comparison) content(name string, s *state) (k content, why string) {
	c.buf.Reset()
	if s.size > maxContent || s.size > c.unread {
		return k, schema.NotKeptCut
	}
	c.unread -= s.size
	switch err := c.read(name, s, s.size); {
	case errors.Is(err, errChanging):
		return k, schema.NotKeptChanging
	case err != nil:
		return k, schema.NotKeptUnreadable
	}
	return sums(c.buf.Bytes()), ""
}

// section writes a change to the patch, if git can represent it. to has no mode for a directory.
func (c *Comparison) section(change *schema.WorkspaceChange, was *state, before bool, known content, to *gitpatch.State,
	data []byte) error {
	name := change.Name()
	if gitpatch.Refuses(name, to.Mode == gitpatch.Link) || c.below(name) {
		return nil
	}
	var from *gitpatch.State
	if before {
		from = side(was, known)
	}
	const format = 0o170000
	switch {
	case !before && to.Mode == 0, from == nil && before: // a directory, or an earlier state that git does not know
		return nil
	case !before:
		change.InPatch = true
		return c.patch.Create(name, *to, data)
	case from.Mode&format == to.Mode&format:
		if *from == *to {
			return nil
		}
		change.InPatch = true
		return c.patch.Modify(name, *from, *to, data)
	}
	change.InPatch = true
	if err := c.patch.Delete(name, *from); err != nil || to.Mode == 0 {
		return err
	}
	return c.patch.Create(name, *to, data)
}

// below reports whether a path is below one that git could not make a directory.
func (c *Comparison) below(name string) bool {
	if len(c.blocked) == 0 {
		return false
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if c.blocked[dir] {
			return true
		}
	}
	return false
}

// blob stores a content as a member. It is already counted.
func (c *Comparison) blob(change *schema.WorkspaceChange, data []byte) {
	if len(data) == 0 {
		return
	}
	digest := sha256.Sum256(data)
	name := hex.EncodeToString(digest[:])
	if !c.blobs[name] {
		if len(c.blobs) == maxBlobs || c.store.Put(schema.BlobsDir+name, data) != nil {
			c.left += int64(len(data))
			change.NotKept = schema.NotKeptCut
			return
		}
		c.blobs[name] = true
	}
	change.Blob = "sha256:" + name
}

// sparse is holes for a file that is not open.
func (c *Comparison) sparse(change *schema.WorkspaceChange, s *state) {
	f, err := c.file(change.Name(), s)
	if err != nil {
		change.NotKept = schema.NotKeptChanging
		return
	}
	defer f.Close()
	c.holes(change, f, s)
}

// holes stores the data parts of a file that is too large to store as a whole, if it has enough holes.
func (c *Comparison) holes(change *schema.WorkspaceChange, f *os.File, s *state) {
	change.NotKept = schema.NotKeptCut
	if s.blocks*512 >= s.size {
		return
	}
	var list []schema.WorkspaceExtent
	total := int64(0)
	for at := int64(0); at < s.size; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return
		}
		to, err := unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		if total += to - from; err != nil || len(list) == maxExtents || total > min(c.left, maxContent) {
			return
		}
		list = append(list, schema.WorkspaceExtent{Offset: from, Bytes: to - from})
		at = to
	}
	c.buf.Reset()
	for _, e := range list {
		if n, err := c.buf.ReadFrom(io.NewSectionReader(f, e.Offset, e.Bytes)); err != nil || n != e.Bytes {
			change.NotKept = schema.NotKeptChanging
			return
		}
	}
	if c.store.Secret(c.buf.Bytes()) {
		hideContent(change)
		return
	}
	change.NotKept = ""
	if total == 0 { // one zero byte, since otherwise nothing would say that the file is a single hole
		list, total = []schema.WorkspaceExtent{{Offset: 0, Bytes: 1}}, 1
		c.buf.WriteByte(0)
	}
	c.left -= total
	if c.blob(change, c.buf.Bytes()); change.NotKept == "" {
		change.Extents = list
	}
}

// artifacts stores the files that a glob matches.
func (c *Comparison) artifacts(ctx context.Context, b base) error {
	matched := false
	root, err := os.OpenRoot(b.dir)
	if err == nil && resolved(b.dir) != b.dir {
		err = errors.Join(errors.New("a directory became a link"), root.Close())
	}
	if err == nil {
		defer root.Close()
		_ = doublestar.GlobWalk(root.FS(), b.rest, func(name string, d fs.DirEntry) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if len(c.doc.Artifacts) >= maxArtifacts {
				c.Gap(fmt.Sprintf("there are more than %d artifacts; the others are not kept", maxArtifacts))
				return fs.SkipAll
			}
			if info, err := root.Lstat(name); err != nil || !b.since.IsZero() && !changedSince(info, b.since) {
				return nil
			}
			found, err := c.artifact(root, path.Join(b.dir, name), name)
			matched = matched || found
			return err
		}, doublestar.WithFilesOnly(), doublestar.WithNoFollow())
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !matched && b.since.IsZero() {
		c.doc.Unmatched = append(c.doc.Unmatched, schema.Readable(b.glob))
	}
	return nil
}

// changedSince reports whether a file's content or attributes changed since a time.
func changedSince(info fs.FileInfo, since time.Time) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && !time.Unix(st.Ctim.Unix()).Before(since)
}

// artifact stores one file, unless it is among the changes.
func (c *Comparison) artifact(root *os.Root, name, below string) (matched bool, err error) {
	if rel, err := filepath.Rel(c.o.Dir, name); err == nil {
		i, listed := slices.BinarySearchFunc(c.doc.Changes, rel, func(ch schema.WorkspaceChange, name string) int {
			return strings.Compare(ch.Name(), name)
		})
		if listed && c.doc.Changes[i].After != nil {
			return true, nil
		}
	}
	if slices.ContainsFunc(c.doc.Artifacts, func(a schema.WorkspaceChange) bool { return a.Name() == name }) ||
		schema.Below(name, c.o.Skip...) {
		return true, nil
	}
	info, err := root.Lstat(below)
	if err != nil || !info.Mode().IsRegular() {
		return false, nil // a link, or removed
	}
	s := stateOfInfo(info)
	f, err := root.OpenFile(below, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		err = unchanged(f, &s)
	}
	if err != nil {
		return false, nil
	}
	defer f.Close()
	change := schema.WorkspaceChange{Change: schema.WorkspaceArtifact}
	change.SetName(name)
	defer func() { c.doc.Artifacts = append(c.doc.Artifacts, change) }()
	if s.size > min(maxContent, c.left, c.unread) {
		if change.After = described(&s, content{}); !c.hides(&change) {
			c.holes(&change, f, &s)
		}
		return true, nil
	}
	c.unread -= s.size
	if err := c.take(f, &s, s.size); err != nil {
		change.After, change.NotKept = described(&s, content{}), schema.NotKeptChanging
		c.hides(&change)
		return true, nil
	}
	change.After = described(&s, sums(c.buf.Bytes()))
	switch {
	case c.hides(&change):
	case c.store.Secret(c.buf.Bytes()):
		hideContent(&change)
	default:
		c.left -= s.size
		c.blob(&change, c.buf.Bytes())
	}
	return true, nil
}
