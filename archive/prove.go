package archive

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/assay-run/assay-run/schema"
)

// ErrProof is wrapped by the error of [Reader.Prove] for a line that cannot be proved, and of [CheckProof] for an
// invalid proof.
var ErrProof = errors.New("no proof")

func noProof(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProof, fmt.Sprintf(format, args...))
}

// growPath adds leaf n to the subtree of the path that contains it.
func growPath(path []leafRange, subtrees []tree, n uint64, leaf tlog.Hash) {
	for i, r := range path {
		if r.from <= n && n < r.end {
			subtrees[i].add(leaf)
			return
		}
	}
}

// layerTree returns the tree of a layer in integrity.json.
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

// CheckProof checks a proof from [Reader.Prove] without the bundle. A valid proof shows that the bundle with the
// proof's identity contains the line. The caller must compare the identity.
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
		return noProof("a digest is not valid")
	}
	if err := tlog.CheckRecord(path, int64(t.Lines), root, int64(p.Seq), tlog.RecordHash([]byte(p.Line))); err != nil {
		return noProof("the path does not lead from the line to the root of %d lines", t.Lines)
	}
	return nil
}
