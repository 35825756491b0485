package archive

import (
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// genuine leaves out what no recorder of this run makes, and tells of it. Who
// recovers a spool does not know what its recorder made, as who seals does: a file
// that the recorder could have made is not found out. It made no stream of a run that
// captures none, and no output of a check that it did not tell it would start.
func genuine(dir string, run schema.Run, sources []source, checked map[string]bool) (kept []source, found []Tampered) {
	var checks []string
	if c := readDocument[schema.Contract](dir, run, schema.ContractPath); c != nil {
		for _, check := range c.Contract.Checks {
			checks = append(checks, schema.CheckOutputPath(check.Name))
		}
	}
	for _, src := range sources {
		switch {
		case isStream(src.path) && !run.Capture:
			found = append(found, notMade(src.path))
		case isLayer(src.path), isDocument(src.path), slices.Contains(recorded, src.path),
			strings.HasPrefix(src.path, schema.BlobsDir),
			slices.Contains(checks, src.path) && (checked[src.path] || src.size == 0): // a full disk loses lines
			kept = append(kept, src)
		default:
			found = append(found, notMade(src.path))
		}
	}
	return kept, bounded(found)
}

// recorded are members that a recorder may make besides documents and layers.
var recorded = []string{
	schema.ContractPath, schema.PolicyFilePath, schema.SessionPath, schema.StdoutPath, schema.StderrPath, schema.TerminalPath,
}
