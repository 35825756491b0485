package archive

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
	"github.com/assay-run/assay-run/schema/surface"
)

// emptySurface makes s an empty surface, and returns its lists by name.
func emptySurface(s *schema.CapabilitySurface) map[string]*[]string {
	*s = schema.CapabilitySurface{Schema: schema.CapabilitySurfaceV0}
	lists := map[string]*[]string{
		"filesystem_paths": &s.FilesystemPaths, "network_endpoints": &s.NetworkEndpoints,
		"process_execs": &s.ProcessExecs, "mcp_tools": &s.MCPTools, "policy_decisions": &s.PolicyDecisions,
	}
	for _, list := range lists {
		*list = []string{}
	}
	return lists
}

// surfaceOf makes capability-surface.json from a spool's layers as a live run does. The reasons say what was left out.
func surfaceOf(dir, runID string, scans map[string]*layerScan) (document []byte, _ []schema.Reason, err error) {
	s := surface.New(runID, dir)
	defer s.Close()
	var e schema.KernelEvent
	var failed error
	processes := facts.NewReader(true)
	err = eachLine(layerFile(dir, schema.KernelPath), scans[schema.KernelPath].size, func(line []byte) {
		if failed == nil && schema.DecodeKernelEvent(line, &e) == nil {
			exe := ""
			if by := processes.Add(&e); by != nil {
				exe = by.Exe
			}
			failed = s.Add(&e, exe)
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
		if json.Unmarshal(line, &p) == nil {
			s.AddPolicy(&p)
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
