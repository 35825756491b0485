package schema

// Integrity is integrity.json: what the recorder had written when it sealed the run. It has a Merkle tree over the
// lines of each layer, and the digest of each member that was written piece by piece.
type Integrity struct {
	Schema string `json:"schema"` // IntegrityV0
	RunID  string `json:"run_id"`
	Checkpoint
}

// Checkpoint is how much a recorder has written so far. In a lifecycle event it has only the layers and members
// that grew since the last checkpoint.
type Checkpoint struct {
	// Layers has the tree of each layer by its name, as in observation-health.json.
	Layers map[string]LayerTree `json:"layers"`
	// Members describes the members below stdio/, by path.
	Members map[string]MemberBytes `json:"members,omitempty"`
	// Run is the digest of run.json as it is in the spool, "sha256:" and 64 hex digits. Only lifecycle events have it.
	Run string `json:"run,omitempty"`
}

// LayerTree is the Merkle tree (RFC 6962, section 2.1) of the first lines of a
// layer; a leaf is a line without its newline.
type LayerTree struct {
	Lines uint64 `json:"lines"`
	Root  string `json:"root"` // "sha256:" and 64 hex digits
}

// MemberBytes is the beginning of a member.
type MemberBytes struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // "sha256:" and 64 hex digits
}
