package archive

import (
	"bytes"
	"crypto/sha256"
	"io"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// readManifest reads the first member and checks it by itself.
func (v *verifier) readManifest(w *walker) error {
	path, size, err := w.next()
	if err == io.EOF {
		return problem(CodeManifestFirst, "", "the archive is empty")
	}
	if err != nil {
		return err
	}
	doc, err := manifestBytes(w, path, size)
	if err != nil {
		return err
	}
	v.report.Identity = digest(sha256.Sum256(doc))
	v.report.Bytes = size
	if v.manifest, err = parseManifest(doc); err != nil {
		return err
	}
	v.report.RunID = v.manifest.RunID
	v.lines.runID = v.manifest.RunID
	for _, p := range slices.Concat(schema.Layers, documents) {
		if _, ok := v.manifest.Files[p]; !ok {
			v.report.add(problem(CodeRequired, p, "every bundle has this member, this one's manifest does not list it"))
		}
	}
	return nil
}

func manifestBytes(w *walker, path string, size int64) ([]byte, error) {
	if path != schema.ManifestPath {
		return nil, problem(CodeManifestFirst, path, "the first member is not %s", schema.ManifestPath)
	}
	return readAll(w, path, size, maxManifest)
}

// parseManifest decodes a manifest that is valid, canonical, and lists only
// members that a bundle may have.
func parseManifest(doc []byte) (m schema.Manifest, err error) {
	if err := schema.Validate(schema.ManifestV0, doc); err != nil {
		return m, problem(CodeManifest, schema.ManifestPath, "%v", err)
	}
	if err := json.Unmarshal(doc, &m); err != nil {
		return m, problem(CodeManifest, schema.ManifestPath, "%v", err)
	}
	if len(m.Files) >= maxMembers {
		return m, problem(CodeLimit, schema.ManifestPath, "%d members, at most %d are allowed", len(m.Files), maxMembers-1)
	}
	for path, f := range m.Files {
		switch {
		case !safePath(path):
			return m, problem(CodeUnsafePath, schema.ManifestPath, "it lists the path %.300q", path)
		case path == schema.ManifestPath:
			return m, problem(CodeManifest, schema.ManifestPath, "it lists itself")
		case f.Path != path:
			return m, problem(CodeManifest, schema.ManifestPath, "the entry %s has the path %.300q", path, f.Path)
		}
		if file := fileAbove(m, path); file != "" {
			return m, problem(CodeUnsafePath, schema.ManifestPath, "it lists %.300q below the file %s", path, file)
		}
	}
	canonical, err := schema.Document(m)
	if err != nil || !bytes.Equal(canonical, doc) {
		return m, problem(CodeManifestForm, schema.ManifestPath, "its bytes are not the canonical form of what it says")
	}
	return m, nil
}

// fileAbove is the member that would have to be a directory for path to be
// extracted, or empty.
func fileAbove(m schema.Manifest, path string) string {
	for i, c := range []byte(path) {
		if _, file := m.Files[path[:i]]; c == '/' && (file || path[:i] == schema.ManifestPath) {
			return path[:i]
		}
	}
	return ""
}
