package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Limits of the format. The writer keeps them and the readers refuse more.
const (
	maxPath     = 255      // bytes of a member's path
	maxMembers  = 16384    // members of a bundle, manifest included
	maxManifest = 16 << 20 // bytes of manifest.json
	maxDocument = 64 << 20 // bytes of one JSON document
	maxNames    = 1 << 16  // names of one object in it; the manifest's files are at most maxMembers
	maxDepth    = 10_000   // open objects and arrays; readers refuse as many
)

// MaxLine is the maximum length of a layer's line in bytes, with its newline. Append refuses longer ones and counts
// them as dropped.
const MaxLine = 1 << 20

// safePath reports whether p may name a member: at most 255 bytes, in segments of ASCII letters, digits, '.', '_', '-'
// and '%' that do not start with a dot, joined by single slashes. So no path is absolute, leads to a parent directory,
// or needs escaping in tar or JSON.
func safePath(p string) bool {
	if p == "" || len(p) > maxPath {
		return false
	}
	start := true
	for i := range len(p) {
		c := p[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '%':
			start = false
		case c == '.' && !start:
		case c == '/' && !start:
			start = true
		default:
			return false
		}
	}
	return !start
}

// safeRunID reports whether id may name a spool directory and a run.
func safeRunID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	return strings.IndexFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}) < 0
}

// documents are the JSON members of every bundle, without the manifest.
var documents = []string{
	schema.RunPath, schema.ResultPath, schema.HealthPath, schema.SurfacePath, schema.CorrelationPath,
}

func isLayer(p string) bool { return slices.Contains(schema.AllLayers, p) }

func isDocument(p string) bool { return slices.Contains(documents, p) }

// documentSchema returns the schema of a JSON member; empty for other members.
func documentSchema(p string) string {
	switch p {
	case schema.RunPath:
		return schema.RunV0
	case schema.ResultPath:
		return schema.ResultV0
	case schema.HealthPath:
		return schema.ObservationHealthV0
	case schema.SurfacePath:
		return schema.CapabilitySurfaceV0
	case schema.CorrelationPath:
		return schema.CorrelationReportV0
	case schema.ContractPath:
		return schema.ContractV0
	case schema.PolicyFilePath:
		return schema.PolicyV0
	case schema.SessionPath:
		return schema.GatewaySessionV0
	case schema.IntegrityPath:
		return schema.IntegrityV0
	case schema.EvaluationPath:
		return schema.EvaluationV0
	case schema.ChangesPath:
		return schema.WorkspaceChangesV0
	}
	return ""
}

// isStream reports whether a member is captured from the command's standard streams or terminal.
func isStream(p string) bool { return strings.HasPrefix(p, "stdio/") }

// isCapture reports whether a member has bytes without a schema: streams, outputs of checks, blobs, or the patch.
func isCapture(p string) bool {
	return isStream(p) || strings.HasPrefix(p, schema.ChecksDir) || strings.HasPrefix(p, schema.BlobsDir) ||
		p == schema.PatchPath
}

func digest(sum [sha256.Size]byte) string { return "sha256:" + hex.EncodeToString(sum[:]) }
