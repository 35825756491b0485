package archive

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// Surface makes capability-surface.json of a run from what is in its layers. It
// is kernel/layer's Surface: a run that is recovered has the same rules as one
// that ended.
type Surface interface {
	Add(*schema.KernelEvent) error
	AddTool(name string)
	AddDecision(decision string)
	// WriteTo writes the document, of at most 64 MiB. Reasons then says what it
	// does not hold.
	WriteTo(io.Writer) (int64, error)
	Reasons() []schema.Reason
	Close()
}

// NewSurface makes a Surface of a run, which may keep files in dir, with names
// that start with a dot, until it is closed.
type NewSurface func(runID, dir string) Surface

// surfaceOf feeds what is in a spool's layers to a new surface, and returns its
// document. Without newSurface the document is empty, and a reason says so.
func surfaceOf(dir, runID string, scans map[string]*layerScan, newSurface NewSurface) (document []byte, _ []schema.Reason, err error) {
	if newSurface == nil {
		document, err = schema.Document(schema.CapabilitySurface{
			Schema: schema.CapabilitySurfaceV0, RunID: runID, FilesystemPaths: []string{}, NetworkEndpoints: []string{},
			ProcessExecs: []string{}, MCPTools: []string{}, PolicyDecisions: []string{},
		})
		return document, []schema.Reason{{Subject: "surface", Code: "surface_not_written", Message: "capability-surface.json is empty: nothing made it from the layers"}}, err
	}
	s := newSurface(runID, dir)
	defer s.Close()
	var e schema.KernelEvent
	var failed error
	err = eachLine(layerFile(dir, schema.KernelPath), scans[schema.KernelPath].size, func(line []byte) {
		if failed == nil && schema.DecodeKernelEvent(line, &e) == nil {
			failed = s.Add(&e)
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make %s: %w", schema.SurfacePath, err)
	}
	err = eachLine(layerFile(dir, schema.PolicyPath), scans[schema.PolicyPath].size, func(line []byte) {
		var p schema.PolicyEvent
		if json.Unmarshal(line, &p) == nil && p.Tool != "" {
			s.AddTool(p.Tool)
			s.AddDecision(p.Decision + ":" + p.Tool)
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make %s: %w", schema.SurfacePath, err)
	}
	var b bytes.Buffer
	if _, err := s.WriteTo(&b); err != nil {
		return nil, nil, fmt.Errorf("make %s: %w", schema.SurfacePath, err)
	}
	return b.Bytes(), s.Reasons(), nil
}

func layerFile(dir, path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
