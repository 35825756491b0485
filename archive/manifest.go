package archive

import (
	"bytes"
	"crypto/sha256"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// manifestChunk returns the manifest's canonical bytes, and the start of the archive: the manifest's header, bytes and
// padding, stored by the codec.
func manifestChunk(c codec, m schema.Manifest) (doc, head []byte, err error) {
	if doc, err = schema.Document(m); err != nil {
		return nil, nil, err
	}
	b := appendHeaders(nil, schema.ManifestPath, int64(len(doc)))
	b = append(b, doc...)
	b = append(b, zeros[:padding(int64(len(doc)))]...)
	return doc, c.stored(b), nil
}

func manifestFile(path string, size int64, sum [sha256.Size]byte) schema.ManifestFile {
	return schema.ManifestFile{Path: path, SHA256: digest(sum), Bytes: size}
}

// parseManifest decodes a manifest. It must be valid and canonical, and its paths must be safe.
func parseManifest(doc []byte) (m schema.Manifest, err error) {
	if err := schema.Validate(schema.ManifestV0, doc); err != nil {
		return m, problem(CodeManifest, schema.ManifestPath, "%v", err)
	}
	if err := json.Unmarshal(doc, &m); err != nil {
		return m, problem(CodeManifest, schema.ManifestPath, "%v", err)
	}
	if len(m.Files) >= maxMembers {
		return m, problem(CodeLimit, schema.ManifestPath, "%d members, at most %d are allowed", len(m.Files),
			maxMembers-1)
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

// fileAbove returns a member that would have to be a directory for path to be extracted; empty if there is none.
func fileAbove(m schema.Manifest, path string) string {
	for i, c := range []byte(path) {
		if _, file := m.Files[path[:i]]; c == '/' && (file || path[:i] == schema.ManifestPath) {
			return path[:i]
		}
	}
	return ""
}
