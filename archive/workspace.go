package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/gitpatch"
	"github.com/assay-run/assay-run/schema/redact"
)

// keptContents are what workspace/changes.json says of the patch, which comes behind it.
type keptContents struct {
	bytes    int64 // of whole sections
	sections []expectedSection
}

type expectedSection struct {
	gitpatch.Section
	after *schema.WorkspaceFile // whose content it has
}

// changes checks workspace/changes.json as it is read.
func (v *verifier) changes(r io.Reader, size int64) error {
	path := schema.ChangesPath
	if size > maxDocument {
		v.report.add(problem(CodeLimit, path, "%d bytes, at most %d are allowed", size, maxDocument))
		return nil
	}
	kept := &keptContents{}
	seen := map[string]bool{}
	doc, err := schema.ReadWorkspaceChanges(r, func(c *schema.WorkspaceChange) error {
		name := c.Name()
		if c.NotKept != schema.NotKeptRedacted && seen[name] {
			v.report.add(problem(CodeWorkspace, path, "it lists %.200q twice", c.Path))
		}
		seen[name] = true
		list, err := gitpatch.Expect(c)
		if err != nil {
			v.report.add(problem(CodeWorkspace, path, "%v", err))
		}
		for _, s := range list {
			kept.sections = append(kept.sections, expectedSection{s, c.After})
		}
		v.blob(c)
		return nil
	})
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case err != nil && schemaRefused(err):
		v.report.add(problem(schemaCode(err), path, "%v", err))
		return nil
	case err != nil:
		return err
	}
	if doc.RunID != v.manifest.RunID {
		v.report.add(problem(CodeRunID, path, "run_id is %.128q, the manifest says %q", doc.RunID, v.manifest.RunID))
	}
	if kept.bytes = doc.PatchBytes; kept.bytes > v.manifest.Files[schema.PatchPath].Bytes {
		v.report.add(problem(CodeWorkspace, path, "patch_bytes is %d, the patch has %d", kept.bytes,
			v.manifest.Files[schema.PatchPath].Bytes))
		return nil
	}
	v.kept = kept
	return nil
}

// blob checks that the content that a change names is in the bundle.
func (v *verifier) blob(c *schema.WorkspaceChange) {
	if c.Blob == "" {
		return
	}
	bytes := c.After.Bytes
	if len(c.Extents) > 0 {
		bytes = 0
		for _, e := range c.Extents {
			bytes += e.Bytes
		}
	} else if c.After.Digest == nil || *c.After.Digest != c.Blob {
		v.report.add(problem(CodeWorkspace, schema.ChangesPath, "%.200q: its blob is of another content", c.Path))
	}
	entry, ok := v.manifest.Files[schema.BlobsDir+strings.TrimPrefix(c.Blob, "sha256:")]
	if !ok || entry.Bytes != bytes {
		v.report.add(problem(CodeWorkspace, schema.ChangesPath,
			"%.200q: its blob is not in the bundle, or has another "+
				"size", c.Path))
	}
}

// patch checks that workspace/changes.patch has the contents that changes.json tells of, and no others.
func (v *verifier) patch(r io.Reader) error {
	bad := func(format string, args ...any) error {
		v.report.add(problem(CodeWorkspace, schema.PatchPath, format, args...))
		return nil
	}
	in := gitpatch.NewReader(io.LimitReader(r, v.kept.bytes))
	for i := 0; ; i++ {
		s, err := in.Next()
		switch {
		case err == io.EOF && i < len(v.kept.sections):
			return bad("it has %d sections, %s tells of %d", i, schema.ChangesPath, len(v.kept.sections))
		case err == io.EOF:
			return nil
		case errors.Is(err, gitpatch.ErrForm):
			return bad("section %d: %v", i+1, err)
		case err != nil:
			return err
		case i >= len(v.kept.sections) || !s.Equal(&v.kept.sections[i].Section):
			return bad("section %d, for %.200q, is not the one that %s tells of", i+1, s.Name, schema.ChangesPath)
		case !s.HasContent:
			continue
		}
		h := sha256.New()
		_, err = io.Copy(h, in)
		want := v.kept.sections[i].after
		switch got := digest([sha256.Size]byte(h.Sum(nil))); {
		case errors.Is(err, gitpatch.ErrForm):
			return bad("section %d: %v", i+1, err)
		case err != nil:
			return err
		case want.Kind == schema.KindOfFile && (want.Digest == nil || got != *want.Digest),
			want.Kind == schema.KindOfLink && got != digest(sha256.Sum256([]byte(want.LinkTarget()))):
			return bad("section %d, for %.200q, has another content than %s tells of", i+1, s.Name, schema.ChangesPath)
		}
	}
}

// maxPatched is the most of one content that is searched for secrets, in bytes. A recorder keeps no larger ones.
const maxPatched = 64 << 20

// eachPatched reads the contents of a patch, with the section's own bytes where raw is set. What is behind a section
// that cannot be read is left out. The error is f's, or that of reading.
func eachPatched(in io.Reader, raw bool, f func(name string, content, raw []byte) error) error {
	r := gitpatch.NewReader(in)
	if raw {
		r.KeepRaw()
	}
	for {
		s, err := r.Next()
		var content []byte
		if err == nil {
			content, err = io.ReadAll(io.LimitReader(r, maxPatched+1))
		}
		switch {
		case err == io.EOF, errors.Is(err, gitpatch.ErrForm):
			_, err = io.Copy(io.Discard, in)
			return err
		case err != nil:
			return err
		case len(content) > maxPatched:
			return fmt.Errorf("%.200q has a content of more than %d bytes", s.Name, maxPatched)
		}
		var own []byte
		if raw {
			own = r.Raw()
		}
		if err := f(s.Name, content, own); err != nil {
			return err
		}
	}
}

// holdsPatched reports whether a known secret is in a patch, unpacked.
func holdsPatched(ctx context.Context, r *redact.Redactor, src source) (held bool, err error) {
	in, err := src.open()
	if err != nil {
		return false, err
	}
	defer in.Close()
	err = eachPatched(io.LimitReader(in, src.size), false, func(name string, content, _ []byte) error {
		held = held || r.Finds([]byte(name)) || r.Finds(content)
		return ctx.Err()
	})
	return held, err
}

// search finds the sections of a patch that hold a secret.
func (c *cleaner) search(src source) error {
	c.patched = &patched{secret: map[string]bool{}}
	return c.read(src, func(r io.Reader) error {
		return eachPatched(r, false, func(name string, content, _ []byte) error {
			if c.secret([]byte(name)) || c.secret(content) {
				c.patched.secret[name] = true
			}
			return c.ctx.Err()
		})
	})
}

// patch leaves the sections out that hold a secret: in a part of a content, nothing could be replaced.
func (c *cleaner) patch(src source) (source, error) {
	if err := c.search(src); err != nil {
		return source{}, err
	}
	clean, err := c.out.member(src.path, func(w io.Writer) error {
		return c.read(src, func(r io.Reader) error {
			return eachPatched(r, true, func(name string, _, raw []byte) error {
				if c.patched.secret[name] {
					return nil
				}
				c.patched.have = append(c.patched.have, name)
				_, err := w.Write(raw)
				return err
			})
		})
	})
	c.patched.bytes = clean.size
	return clean, err
}

// patched is what became of a patch.
type patched struct {
	secret map[string]bool // names of the sections that are left out
	have   []string        // of the others
	bytes  int64
}

// secret reports whether anything is to be taken out of a content, and learns what that is.
func (c *cleaner) secret(content []byte) bool {
	return !bytes.Equal(c.r.Text(schema.PatchPath, content), content)
}

// changes makes workspace/changes.json say what is not kept now.
func (c *cleaner) changes(data []byte) []byte {
	doc, err := schema.ReadWorkspaceChanges(bytes.NewReader(data), nil)
	if err != nil {
		return data // what is at fault with it, verify tells
	}
	have := map[string]bool{}
	if c.patched != nil {
		for _, name := range c.patched.have {
			have[name] = true
		}
		doc.PatchBytes = c.patched.bytes
	}
	changed := c.patched != nil && len(c.patched.secret) > 0
	for _, list := range [][]schema.WorkspaceChange{doc.Changes, doc.Artifacts} {
		for i := range list {
			ch := &list[i]
			named := c.secret([]byte(ch.Name()))
			for _, f := range []*schema.WorkspaceFile{ch.Before, ch.After} {
				if f != nil && f.LinkTarget() != "" && c.secret([]byte(f.LinkTarget())) {
					named, f.TargetRaw = true, nil
				}
			}
			lost := ch.InPatch && c.patched != nil && !have[ch.Name()] ||
				ch.Blob != "" && c.lostBlobs[strings.TrimPrefix(ch.Blob, "sha256:")]
			if !named && !lost {
				continue
			}
			changed = true
			if ch.PathRaw = nil; lost && ch.After != nil {
				doc.KeptBytes -= min(doc.KeptBytes, ch.After.Bytes)
			}
			for _, f := range []*schema.WorkspaceFile{ch.Before, ch.After} { // a digest could tell which secret
				if f != nil {
					f.Digest, f.GitBlob = nil, nil
				}
			}
			ch.InPatch, ch.Blob, ch.Extents, ch.NotKept = false, "", nil, schema.NotKeptRedacted
		}
	}
	if !changed {
		return data
	}
	clean, err := doc.Encode()
	if err != nil {
		return data // plain data always encodes
	}
	return clean
}
