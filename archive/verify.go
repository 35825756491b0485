package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// maxProblems is how many problems a report keeps; the rest are counted.
const maxProblems = 100

// Report is what [Verify] found.
type Report struct {
	Identity string `json:"identity"` // "sha256:..." of the manifest; empty when there is none to read
	RunID    string `json:"run_id"`
	Members  int    `json:"members"` // manifest included
	Bytes    int64  `json:"bytes"`   // of all members, unpacked
	// Complete tells that the run's own recorder sealed the bundle: its outcome is not
	// incomplete.
	Complete bool `json:"complete"`
	// Lines counts each layer's lines by the layer's path.
	Lines map[string]uint64 `json:"lines"`
	// Unchecked names members this version knows nothing about: their digests
	// were checked, their meaning was not.
	Unchecked []string `json:"unchecked,omitempty"`
	// Problems are in the order of the archive, 100 at the most; More counts
	// those beyond. Of a layer, [Verify] lists the first one only.
	Problems []Problem `json:"problems"`
	More     uint64    `json:"more_problems,omitempty"`
	// Unfinished names the layers whose lines behind the last listed problem were
	// counted, not checked.
	Unfinished []string `json:"unfinished,omitempty"`

	worst [3]bool // classes seen, in the order of Class
}

// OK tells that nothing is wrong.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Class is the gravest class of the report's problems, empty when there are
// none: unreadable before damaged before invalid, since in a damaged bundle
// what is invalid may follow from the damage.
func (r *Report) Class() Class {
	for i, c := range []Class{Unreadable, Damaged, Invalid} {
		if r.worst[i] {
			return c
		}
	}
	return ""
}

func (r *Report) add(p *Problem) {
	r.worst[slices.Index([]Class{Unreadable, Damaged, Invalid}, p.Class)] = true
	if len(r.Problems) >= maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, *p)
}

// Verify checks a bundle from its first to its last byte: the form of the
// archive, every digest and size, every document and line against its schema,
// and all that the artifacts say about each other (schema/SPEC.md lists it by
// code). It streams in bounded memory, uses all cores, and never the network.
// What is wrong is in the report; the error is the context's alone.
//
// A bundle that is wrong costs no more than one that is right: Verify ends at a
// member that the manifest does not list, or lists with another size, and stops
// checking a layer at its first problem.
func Verify(ctx context.Context, path string) (*Report, error) { return verify(ctx, path, 1) }

// VerifyAll is [Verify] for whoever wants to know all that is wrong: it goes on
// behind a problem, up to 100 problems in each layer.
func VerifyAll(ctx context.Context, path string) (*Report, error) {
	return verify(ctx, path, maxProblems)
}

func verify(ctx context.Context, path string, perLayer int) (*Report, error) {
	v := &verifier{
		all:       perLayer > 1,
		report:    &Report{Lines: map[string]uint64{}, Problems: []Problem{}},
		documents: map[string][]byte{},
		sizes:     map[string]int64{},
		streams:   map[string]schema.MemberBytes{},
	}
	in, err := openInput(ctx, path)
	if err == nil {
		defer in.Close()
		v.lines = newLineVerifier(v.report, perLayer)
		err = v.archive(in)
		v.lines.close()
	}
	var p *Problem
	switch {
	case err == nil:
		v.documentsAgree()
	case errors.As(err, &p):
		v.report.add(p)
		// A manifest that makes no sense may be one that was damaged: the
		// checksums behind it tell.
		if p.Class == Invalid && in != nil {
			if _, err := io.Copy(io.Discard, in); errors.As(err, &p) && p.Class == Damaged {
				v.report.add(p)
			}
		}
	default:
		return nil, fmt.Errorf("verify %s: %w", path, err)
	}
	return v.report, ctx.Err()
}

// verifier holds one verification. Its archive part stops at the first problem
// of the archive's form, all else goes on.
type verifier struct {
	report    *Report
	all       bool // go on behind problems, see VerifyAll
	manifest  schema.Manifest
	lines     *lineVerifier
	documents map[string][]byte // without those that are no valid JSON of their schema
	sizes     map[string]int64  // of the members that are there
	streams   map[string]schema.MemberBytes
}

func (v *verifier) archive(in io.Reader) error {
	w := newWalker(in)
	if err := v.readManifest(w); err != nil {
		return err
	}
	for {
		path, size, err := w.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		entry, ok := v.manifest.Files[path]
		if p := unlisted(path, size, entry, ok); p != nil {
			if !v.all {
				return p
			}
			v.report.add(p)
			if !ok {
				continue
			}
		}
		if err := v.member(w, path, size, entry); err != nil {
			return err
		}
	}
	v.report.Members = len(w.seen)
	for _, path := range slices.Sorted(maps.Keys(v.manifest.Files)) {
		if !w.seen[path] {
			v.report.add(problem(CodeMissing, path, "the manifest lists the member, the archive does not have it"))
		}
	}
	return nil
}

// readAll reads a member of at most most bytes; what it says of itself is not
// believed before the bytes are there.
func readAll(r io.Reader, path string, size, most int64) ([]byte, error) {
	if size > most {
		return nil, problem(CodeLimit, path, "%d bytes, at most %d are allowed", size, most)
	}
	var b bytes.Buffer
	b.Grow(int(min(size, 1<<20)))
	_, err := b.ReadFrom(r)
	return b.Bytes(), err
}

// unlisted says how a member is not the one that the manifest lists; nil when it is.
func unlisted(path string, size int64, entry schema.ManifestFile, listed bool) *Problem {
	switch {
	case !listed:
		return problem(CodeExtra, path, "the member is not in the manifest")
	case size != entry.Bytes:
		return problem(CodeSize, path, "%d bytes, the manifest says %d", size, entry.Bytes)
	}
	return nil
}

// member checks one member against its manifest entry, and its content.
func (v *verifier) member(w *walker, path string, size int64, entry schema.ManifestFile) error {
	v.report.Bytes += size
	v.sizes[path] = size
	if name, ok := strings.CutPrefix(path, schema.BlobsDir); ok && entry.SHA256 != "sha256:"+name {
		v.report.add(problem(CodeBlobName, path, "the name is not the hex digest of the bytes, %s", entry.SHA256))
	}
	h := sha256.New()
	var fault string
	var err error
	switch {
	case isLayer(path):
		v.report.Lines[path], err = v.lines.layer(io.TeeReader(w, h), path)
		fault = v.lines.fault
	case path == schema.SurfacePath:
		err = v.surface(io.TeeReader(w, h), size)
	case documentSchema(path) != "":
		err = v.document(io.TeeReader(w, h), path, size)
	case isStream(path):
		c := newBytesCheck(v.lines.points.members[path])
		if _, err = io.Copy(io.MultiWriter(c, h), w); err == nil {
			v.streams[path], fault = c.state(), c.fault()
		}
	default:
		if !isCapture(path) {
			v.report.Unchecked = append(v.report.Unchecked, path)
		}
	}
	if err != nil {
		return err
	}
	whole, err := v.checkDigest(w, h, path, entry)
	switch {
	case !whole: // and that is enough
		delete(v.streams, path)
		delete(v.lines.integrity, schema.LayerName(path))
	case fault != "":
		v.report.add(problem(CodeIntegrity, path, "it %s: a checkpoint in %s tells", fault, schema.EventsPath))
	}
	return err
}

func (v *verifier) checkDigest(w *walker, h hash.Hash, path string, entry schema.ManifestFile) (whole bool, err error) {
	if _, err := io.Copy(h, w); err != nil {
		return false, err
	}
	if got := digest([sha256.Size]byte(h.Sum(nil))); got != entry.SHA256 {
		v.report.add(problem(CodeDigest, path, "its digest is %s, the manifest says %s", got, entry.SHA256))
		return false, nil
	}
	return true, nil
}

// document validates one JSON member and keeps it for documentsAgree.
func (v *verifier) document(r io.Reader, path string, size int64) error {
	doc, err := readAll(r, path, size, maxDocument)
	if p := (*Problem)(nil); errors.As(err, &p) && p.Code == CodeLimit {
		v.report.add(p) // the rest can be checked all the same
		return nil
	}
	if err != nil {
		return err
	}
	if err := schema.Validate(documentSchema(path), doc); err != nil {
		v.report.add(problem(schemaCode(err), path, "%v", err))
		return nil
	}
	v.documents[path] = doc
	return nil
}

// schemaRefused tells a document that is at fault from one that cannot be read.
func schemaRefused(err error) bool {
	return errors.Is(err, schema.ErrSyntax) || errors.Is(err, schema.ErrDuplicateKey) || errors.Is(err, schema.ErrSchema)
}

// schemaCode is the code for an error of package schema.
func schemaCode(err error) Code {
	switch {
	case errors.Is(err, schema.ErrDuplicateKey):
		return CodeDuplicateKey
	case errors.Is(err, schema.ErrSyntax):
		return CodeJSON
	}
	return CodeSchema
}
