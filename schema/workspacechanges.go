package schema

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// WorkspaceChanges is workspace/changes.json: what the command left in its workspace, and the files that were to be
// kept of other places. It is there when the run was asked for either.
type WorkspaceChanges struct {
	Schema string `json:"schema"` // WorkspaceChangesV0
	RunID  string `json:"run_id"`
	// Workspace is the absolute path of the directory; empty if only artifacts were asked for.
	Workspace string `json:"workspace"`
	// WorkspaceDigest identifies the workspace before the command: schema/SPEC.md says of what it is. It is
	// absent where that is not known: if the checks of a contract had run there before, and
	// if there were gaps.
	WorkspaceDigest string `json:"workspace_digest,omitzero"`
	// LimitBytes bounds the contents that are kept, KeptBytes is how much that is.
	LimitBytes int64 `json:"limit_bytes"`
	KeptBytes  int64 `json:"kept_bytes"`
	// PatchBytes is how much of workspace/changes.patch is whole: a full disk can leave a part of a section behind it.
	PatchBytes int64 `json:"patch_bytes"`
	// Gaps are what was not looked at, so that there may be changes that are not listed. Never null.
	Gaps []WorkspaceGap `json:"gaps"`
	// Changes are sorted by the bytes of their paths, a directory before what is in it. Never null.
	Changes []WorkspaceChange `json:"changes"`
	// Unmatched are the globs for artifacts that no file matched.
	Unmatched []string `json:"unmatched,omitempty"`
	// Artifacts are the files that the globs of the run matched outside of Changes. Never null.
	Artifacts []WorkspaceChange `json:"artifacts"`
}

// WorkspaceGap is a place that was not compared.
type WorkspaceGap struct {
	// Path is relative to the workspace, "." for all of it.
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// WorkspaceChange is a path that is not as it was before the command.
type WorkspaceChange struct {
	// Path is relative to the workspace, with slashes; of an artifact it is absolute. Where it is not UTF-8, bytes
	// are replaced in it, and PathRaw has them.
	Path    string `json:"path"`
	PathRaw []byte `json:"path_raw,omitempty"`
	// Change is added, deleted or modified; of an artifact, artifact.
	Change string `json:"change"`
	// Before is null if nothing was there or that is not known, After if nothing is there.
	Before *WorkspaceFile `json:"before"`
	After  *WorkspaceFile `json:"after"`
	// Program is the executable that wrote it last, as the kernel layer has it; null where that cannot tell.
	Program *string `json:"program"`
	// InPatch tells that workspace/changes.patch makes the change. Blob names the member below blobs/sha256/ that
	// has the new content, where git's form cannot hold it. Extents are set if that has only the data of a file
	// with holes.
	InPatch bool              `json:"in_patch,omitzero"`
	Blob    string            `json:"blob,omitempty"`
	Extents []WorkspaceExtent `json:"extents,omitempty"`
	// NotKept says why the new content is not in the bundle; empty where it is, or where there is none.
	NotKept string `json:"not_kept,omitempty"`
}

// WorkspaceFile is the state of a path.
type WorkspaceFile struct {
	// Kind is file, directory, link or one of the special kinds: fifo, socket, device.
	Kind string `json:"kind"`
	// Mode has the permissions in octal digits, with the bits for setuid, setgid and sticky: "0644".
	Mode string `json:"mode"`
	// Bytes is the size of a file or of a link's target.
	Bytes int64 `json:"bytes"`
	// Digest is "sha256:" and 64 hex digits of the content of a file, GitBlob the id that git (with SHA-1) has for
	// it. Each is null where nobody computed it.
	Digest  *string `json:"digest"`
	GitBlob *string `json:"git_blob"`
	// Target is where a link leads, TargetRaw its bytes where they are not UTF-8.
	Target    string `json:"target,omitempty"`
	TargetRaw []byte `json:"target_raw,omitempty"`
}

// WorkspaceExtent is a part of a file that is not a hole.
type WorkspaceExtent struct {
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
}

// Changes and kinds of [WorkspaceChange].
const (
	WorkspaceAdded    = "added"
	WorkspaceDeleted  = "deleted"
	WorkspaceModified = "modified"
	WorkspaceArtifact = "artifact"

	KindOfFile      = "file"
	KindOfDirectory = "directory"
	KindOfLink      = "link"
	KindOfFifo      = "fifo"
	KindOfSocket    = "socket"
	KindOfDevice    = "device"
)

// Reasons of WorkspaceChange.NotKept.
const (
	NotKeptRedacted   = "redacted"   // its content, target or path holds a secret; a path is then not the exact one
	NotKeptCut        = "cut"        // it did not fit into LimitBytes, or is too large by itself
	NotKeptSpecial    = "special"    // it is a fifo, a socket or a device
	NotKeptUnreadable = "unreadable" // it could not be read
	NotKeptChanging   = "changing"   // it changed while it was read
)

// Name is the exact path.
func (c *WorkspaceChange) Name() string {
	if c.PathRaw != nil {
		return string(c.PathRaw)
	}
	return c.Path
}

// SetName sets the path.
func (c *WorkspaceChange) SetName(name string) { c.Path, c.PathRaw = readableName(name) }

// LinkTarget is where a link leads, exactly.
func (f *WorkspaceFile) LinkTarget() string {
	if f.TargetRaw != nil {
		return string(f.TargetRaw)
	}
	return f.Target
}

// SetLinkTarget sets where a link leads.
func (f *WorkspaceFile) SetLinkTarget(target string) { f.Target, f.TargetRaw = readableName(target) }

func readableName(name string) (string, []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return Readable(name), []byte(name)
}

// check says what is wrong with a change that its JSON Schema cannot say.
func (c *WorkspaceChange) check(artifact bool) error {
	name := c.Name()
	bad := func(format string, args ...any) error {
		return refuse("%.200q: %s", c.Path, fmt.Sprintf(format, args...))
	}
	if c.PathRaw != nil && Readable(name) != c.Path {
		return bad("path_raw is another path")
	}
	switch {
	case artifact && (!path.IsAbs(name) || path.Clean(name) != name):
		return bad("the path of an artifact is absolute and without \".\" and \"..\"")
	case !artifact && !localName(name):
		return bad("the path leaves the workspace, or is not in its plain form")
	case artifact != (c.Change == WorkspaceArtifact):
		return bad("change is %q", c.Change)
	case (c.Before == nil) != (c.Change == WorkspaceAdded || artifact):
		return bad("it was %s, which does not go with its state before", c.Change)
	case (c.After == nil) != (c.Change == WorkspaceDeleted):
		return bad("it was %s, which does not go with its state after", c.Change)
	case c.NotKept != "" && (c.InPatch || c.Blob != ""):
		return bad("it is kept and not kept")
	case c.InPatch && (c.Blob != "" || artifact):
		return bad("it cannot be in the patch")
	case c.Blob != "" && c.After == nil:
		return bad("there is nothing of it to keep")
	case c.Blob != "" && c.After.Kind != KindOfFile, len(c.Extents) > 0 && c.Blob == "":
		return bad("only the content of a file is in a blob")
	}
	if c.NotKept != "" && !slices.Contains(notKept, c.NotKept) {
		return bad("not_kept is %.100q", c.NotKept)
	}
	if c.Blob != "" && !isDigest(c.Blob) {
		return bad("blob is %.100q", c.Blob)
	}
	for _, f := range []*WorkspaceFile{c.Before, c.After} {
		if f == nil {
			continue
		}
		if why := f.check(); why != "" {
			return bad("%s", why)
		}
	}
	return c.checkExtents(bad)
}

// check says what is wrong with a state; empty for nothing.
func (f *WorkspaceFile) check() string {
	isFile := f.Kind == KindOfFile
	switch {
	case !slices.Contains(kindsOfFile, f.Kind):
		return fmt.Sprintf("kind is %.100q", f.Kind)
	case len(f.Mode) != 4 || strings.Trim(f.Mode, "01234567") != "":
		return fmt.Sprintf("mode is %.100q", f.Mode)
	case f.Bytes < 0:
		return fmt.Sprintf("bytes is %d", f.Bytes)
	case f.Digest != nil && (!isFile || !isDigest(*f.Digest)):
		return fmt.Sprintf("digest is %.100q", *f.Digest)
	case f.GitBlob != nil && (!isFile || len(*f.GitBlob) != 40 || !isHex(*f.GitBlob)):
		return fmt.Sprintf("git_blob is %.100q", *f.GitBlob)
	case f.TargetRaw != nil && Readable(string(f.TargetRaw)) != f.Target:
		return "target_raw is another target"
	case (f.Kind == KindOfLink) != (f.LinkTarget() != ""), strings.ContainsRune(f.LinkTarget(), 0):
		return "a link has a target, and nothing else has"
	}
	return ""
}

var (
	kindsOfFile = []string{KindOfFile, KindOfDirectory, KindOfLink, KindOfFifo, KindOfSocket, KindOfDevice}
	notKept     = []string{NotKeptRedacted, NotKeptCut, NotKeptSpecial, NotKeptUnreadable, NotKeptChanging}
)

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && isHex(hex)
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func (c *WorkspaceChange) checkExtents(bad func(string, ...any) error) error {
	end := int64(0)
	for _, e := range c.Extents {
		if e.Offset < end || e.Bytes < 1 || e.Bytes > c.After.Bytes || e.Offset > c.After.Bytes-e.Bytes {
			return bad("its extents overlap, or go beyond its end")
		}
		end = e.Offset + e.Bytes
	}
	return nil
}

// Encode is the document, with a line for each change.
func (d *WorkspaceChanges) Encode() ([]byte, error) {
	head := *d
	head.Changes, head.Artifacts = nil, nil
	var b bytes.Buffer
	if err := encodeTo(&b, struct {
		*WorkspaceChanges
		Changes   *int `json:"changes,omitempty"` // hide those of the whole
		Artifacts *int `json:"artifacts,omitempty"`
	}{WorkspaceChanges: &head}, ""); err != nil {
		return nil, err
	}
	b.Truncate(b.Len() - len("}\n"))
	for _, list := range []struct {
		name  string
		items []WorkspaceChange
	}{{"changes", d.Changes}, {"artifacts", d.Artifacts}} {
		fmt.Fprintf(&b, ",\n%q:[", list.name)
		for i := range list.items {
			if b.WriteByte('\n'); i > 0 {
				b.Truncate(b.Len() - 1)
				b.WriteString(",\n")
			}
			if err := encodeTo(&b, &list.items[i], ""); err != nil {
				return nil, err
			}
			b.Truncate(b.Len() - 1)
		}
		b.WriteByte(']')
	}
	b.WriteString("}\n")
	return b.Bytes(), nil
}

// localName reports whether a path names something below a directory: relative, with single slashes, and without
// "." and ".." and bytes that are zero.
func localName(name string) bool {
	return name != "" && name != "." && !path.IsAbs(name) && path.Clean(name) == name &&
		name != ".." && !strings.HasPrefix(name, "../") && !strings.ContainsRune(name, 0)
}

// ReadWorkspaceChanges reads workspace/changes.json as it comes: it may list a great many changes. each is called
// with every change and artifact, which it may keep; nil collects them in the document that is returned, whose
// lists are otherwise empty. A document that was read is valid. Errors wrap [ErrSyntax], [ErrDuplicateKey] or
// [ErrSchema], or are those of r.
func ReadWorkspaceChanges(r io.Reader, each func(c *WorkspaceChange) error) (*WorkspaceChanges, error) {
	d := &changesReader{surfaceReader: surfaceReader{in: jsontext.NewDecoder(r)}, each: each,
		doc: &WorkspaceChanges{Gaps: []WorkspaceGap{}, Changes: []WorkspaceChange{}, Artifacts: []WorkspaceChange{}}}
	if err := d.document(); err != nil {
		return nil, d.classify(err)
	}
	if _, err := d.in.ReadToken(); err != io.EOF {
		if err == nil {
			err = errMore
		}
		return nil, d.classify(err)
	}
	return d.doc, nil
}

type changesReader struct {
	surfaceReader
	each func(*WorkspaceChange) error
	doc  *WorkspaceChanges
}

func (d *changesReader) document() error {
	if err := d.open('{'); err != nil {
		return err
	}
	into := map[string]any{"schema": &d.doc.Schema, "run_id": &d.doc.RunID, "workspace": &d.doc.Workspace,
		"limit_bytes": &d.doc.LimitBytes, "kept_bytes": &d.doc.KeptBytes,
		"patch_bytes": &d.doc.PatchBytes, "gaps": &d.doc.Gaps,
		"changes": &d.doc.Changes, "artifacts": &d.doc.Artifacts}
	missing := len(into)
	optional := map[string]any{"unmatched": &d.doc.Unmatched, "workspace_digest": &d.doc.WorkspaceDigest}
	maps.Copy(into, optional)
	for d.in.PeekKind() == '"' {
		key, err := d.in.ReadToken()
		if err != nil {
			return err
		}
		name := key.String()
		to, known := into[name]
		if known && optional[name] == nil {
			missing--
		}
		switch list := to.(type) {
		case nil:
			err = d.in.SkipValue()
		case *[]WorkspaceChange:
			err = d.changes(list, name == "artifacts")
		default:
			err = d.value(name, to)
		}
		if err != nil {
			return err
		}
	}
	if _, err := d.in.ReadToken(); err != nil {
		return err
	}
	doc := d.doc
	switch {
	case missing > 0:
		return refuse("a key is missing")
	case doc.Schema != WorkspaceChangesV0:
		return refuse("schema is %.100q", doc.Schema)
	case doc.PatchBytes < 0:
		return refuse("patch_bytes is %d", doc.PatchBytes)
	case doc.KeptBytes < 0 || doc.KeptBytes > doc.LimitBytes:
		return refuse("kept_bytes is %d of %d", doc.KeptBytes, doc.LimitBytes)
	case doc.WorkspaceDigest != "" && !isDigest(doc.WorkspaceDigest):
		return refuse("workspace_digest is %.100q", doc.WorkspaceDigest)
	case doc.Workspace != "" && !path.IsAbs(doc.Workspace):
		return refuse("workspace %.200q is not absolute", doc.Workspace)
	}
	return nil
}

// value decodes a value strictly.
func (d *changesReader) value(what string, into any) error {
	v, err := d.in.ReadValue()
	if err != nil {
		return err
	}
	if v.Kind() == 'n' {
		return refuse("%s is null", what)
	}
	if err := json.Unmarshal(v, into); err != nil {
		return refuse("%s: %v", what, err)
	}
	return nil
}

func (d *changesReader) changes(list *[]WorkspaceChange, artifacts bool) error {
	if err := d.open('['); err != nil {
		return err
	}
	for d.in.PeekKind() != ']' {
		v, err := d.in.ReadValue()
		if err != nil {
			return err
		}
		var c WorkspaceChange
		if err := json.Unmarshal(v, &c); err != nil {
			return refuse("%v", err)
		}
		if err := c.check(artifacts); err != nil {
			return err
		}
		if d.each == nil {
			*list = append(*list, c)
		} else if err := d.each(&c); err != nil {
			return err
		}
	}
	_, err := d.in.ReadToken()
	return err
}
