package runner

import "github.com/assay-run/assay-run/runner/internal/evidence"

// Recorder is where a run leaves what it observed. archive.Spool is one. All
// methods are safe for concurrent use.
type Recorder = evidence.Recorder
