package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/assay-run/assay-run/schema"
)

// ErrProof is wrapped by the error of [Prove] for a line that cannot be proved, and
// of [CheckProof] for a proof that proves nothing.
var ErrProof = errors.New("no proof")

func noProof(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProof, fmt.Sprintf(format, args...))
}

// Prove makes a proof that line seq of a layer, by its name, is in the bundle. It
// reads the bundle once, and refuses to prove anything of one whose layer is not
// what its integrity.json says.
func (r *Reader) Prove(ctx context.Context, layer string, seq uint64) (*schema.InclusionProof, error) {
	i := slices.IndexFunc(schema.Layers, func(p string) bool { return schema.LayerName(p) == layer })
	if i < 0 {
		return nil, noProof("there is no layer %q", layer)
	}
	manifest, err := schema.Document(r.manifest)
	if err != nil {
		return nil, err
	}
	proof := &schema.InclusionProof{Schema: schema.InclusionProofV0, Identity: r.identity, Layer: layer, Seq: seq,
		Manifest: string(manifest), Path: []string{}}
	sound, err := r.proveLine(ctx, proof, schema.Layers[i])
	if err == nil && !sound {
		err = noProof("the lines of %s are not those that its %s tells of", schema.Layers[i], schema.IntegrityPath)
	}
	if err != nil {
		return nil, fmt.Errorf("prove line %d of %s in %s: %w", seq, layer, r.name, err)
	}
	return proof, nil
}

// proveLine fills in the line, its path and integrity.json.
func (r *Reader) proveLine(ctx context.Context, proof *schema.InclusionProof, layerPath string) (sound bool,
	err error) {
	var want schema.LayerTree
	var whole tree
	// The lifecycle stands before integrity.json, which tells how long it is: its
	// path is made of the leaves.
	var leaves []tlog.Hash
	var path []leafRange
	var subtrees []tree
	for m, err := range r.Members(ctx) {
		switch {
		case err != nil:
			return false, err
		case m.Path == schema.IntegrityPath:
			doc, err := readAll(m, m.Path, m.Size, maxDocument)
			if err != nil {
				return false, err
			}
			var integrity schema.Integrity
			if want, err = layerTree(doc, proof.Layer, &integrity); err != nil {
				return false, err
			}
			proof.Integrity = string(doc)
			if proof.Seq >= want.Lines {
				return false, noProof("the layer has %d lines", want.Lines)
			}
			path = auditPath(proof.Seq, want.Lines)
			subtrees = make([]tree, len(path))
		case m.Path == layerPath:
			n := uint64(0)
			for line, err := range m.Lines() {
				if err != nil {
					return false, err
				}
				if n == proof.Seq {
					proof.Line = string(line)
				}
				leaf := tlog.RecordHash(line)
				whole.add(leaf)
				if layerPath == schema.EventsPath {
					leaves = append(leaves, leaf)
				}
				growPath(path, subtrees, n, leaf)
				n++
			}
		}
	}
	if proof.Integrity == "" {
		return false, noProof("the bundle has no %s: a recorder of an earlier version made it", schema.IntegrityPath)
	}
	for n, leaf := range leaves {
		growPath(path, subtrees, uint64(n), leaf)
	}
	for i := range subtrees {
		proof.Path = append(proof.Path, digest(subtrees[i].root()))
	}
	return whole.state() == want, nil
}

// growPath adds leaf n to the subtree of the path that has it.
func growPath(path []leafRange, subtrees []tree, n uint64, leaf tlog.Hash) {
	for i, r := range path {
		if r.from <= n && n < r.end {
			subtrees[i].add(leaf)
			return
		}
	}
}

// layerTree reads what integrity.json says of a layer.
func layerTree(doc []byte, layer string, into *schema.Integrity) (schema.LayerTree, error) {
	if err := schema.Validate(schema.IntegrityV0, doc); err != nil {
		return schema.LayerTree{}, noProof("%s: %v", schema.IntegrityPath, err)
	}
	if err := json.Unmarshal(doc, into); err != nil {
		return schema.LayerTree{}, noProof("%s: %v", schema.IntegrityPath, err)
	}
	t, ok := into.Layers[layer]
	if !ok {
		return t, noProof("%s has no layer %.100q", schema.IntegrityPath, layer)
	}
	return t, nil
}

// CheckProof checks a proof from [Prove] without its bundle: that a bundle of the
// identity in it has the line. That the identity is the one of the bundle in
// question is for the caller to compare.
func CheckProof(in io.Reader) (*schema.InclusionProof, error) {
	doc, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(doc) > maxDocument {
		return nil, noProof("more than %d bytes", maxDocument)
	}
	if err := schema.Validate(schema.InclusionProofV0, doc); err != nil {
		return nil, noProof("%v", err)
	}
	var p schema.InclusionProof
	if err := json.Unmarshal(doc, &p); err != nil {
		return nil, noProof("%v", err)
	}
	if got := digest(sha256.Sum256([]byte(p.Manifest))); got != p.Identity {
		return nil, noProof("the identity is %s, the digest of the manifest %s", p.Identity, got)
	}
	m, err := parseManifest([]byte(p.Manifest))
	if err != nil {
		return nil, noProof("%v", err)
	}
	if got := digest(sha256.Sum256([]byte(p.Integrity))); got != m.Files[schema.IntegrityPath].SHA256 {
		return nil, noProof("the manifest lists another %s", schema.IntegrityPath)
	}
	var integrity schema.Integrity
	t, err := layerTree([]byte(p.Integrity), p.Layer, &integrity)
	if err != nil {
		return nil, err
	}
	return &p, checkLine(&p, t, m.RunID)
}

func checkLine(p *schema.InclusionProof, t schema.LayerTree, runID string) error {
	var head struct {
		RunID string  `json:"run_id"`
		Seq   *uint64 `json:"seq"`
	}
	if err := json.Unmarshal([]byte(p.Line), &head); err != nil || head.RunID != runID || head.Seq == nil ||
		*head.Seq != p.Seq {
		return noProof("the line is not line %d of run %s", p.Seq, runID)
	}
	if t.Lines > 1<<62 || p.Seq >= t.Lines {
		return noProof("the layer has %d lines", t.Lines)
	}
	root, ok := parseDigest(t.Root)
	var path tlog.RecordProof
	for _, s := range p.Path {
		h, good := parseDigest(s)
		ok = ok && good
		path = append(path, h)
	}
	if !ok {
		return noProof("a digest is none")
	}
	if err := tlog.CheckRecord(path, int64(t.Lines), root, int64(p.Seq), tlog.RecordHash([]byte(p.Line))); err != nil {
		return noProof("the path does not lead from the line to the root of %d lines", t.Lines)
	}
	return nil
}
