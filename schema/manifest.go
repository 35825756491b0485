package schema

// Manifest is manifest.json, the first member of a bundle. The sha256 of its
// canonical bytes is the bundle's identity.
type Manifest struct {
	Schema string                  `json:"schema"` // ManifestV0
	RunID  string                  `json:"run_id"`
	Files  map[string]ManifestFile `json:"files"`
}

// ManifestFile is one member: its path once more, "sha256:" and 64 lower-case
// hex digits, and its size in bytes.
type ManifestFile struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}
