package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// Documents are the JSON members of a bundle.
type Documents struct {
	Run         schema.Run
	Result      schema.Result
	Health      schema.ObservationHealth
	Surface     schema.CapabilitySurface
	Correlation schema.CorrelationReport
	// Contract is nil in a run without an outcome contract.
	Contract *schema.Contract
}

// Documents reads the documents in one pass over the bundle, each checked against
// its schema. Those at the paths in without are left as they are: the surface of a
// large run takes 64 MiB.
func (r *Reader) Documents(ctx context.Context, without ...string) (*Documents, error) {
	d := &Documents{}
	left := map[string]any{
		schema.RunPath: &d.Run, schema.ResultPath: &d.Result, schema.HealthPath: &d.Health,
		schema.SurfacePath: &d.Surface, schema.CorrelationPath: &d.Correlation,
	}
	for m, err := range r.Members(ctx) {
		if err != nil {
			return nil, err
		}
		into := left[m.Path]
		if m.Path == schema.ContractPath {
			d.Contract = &schema.Contract{}
			into = d.Contract
		}
		delete(left, m.Path)
		if into == nil || slices.Contains(without, m.Path) {
			continue
		}
		decode := m.decode
		if m.Path == schema.SurfacePath {
			decode = m.decodeSurface
		}
		if err := decode(into); err != nil && !(r.tolerant && ctx.Err() == nil) {
			return nil, fmt.Errorf("read %s: %w", r.name, err)
		}
	}
	for path := range left {
		if r.tolerant {
			break
		}
		return nil, fmt.Errorf("read %s: %w", r.name, problem(CodeRequired, path, "every bundle has this member, this one does not"))
	}
	return d, nil
}

func (m *Member) decodeSurface(v any) (err error) {
	s := v.(*schema.CapabilitySurface)
	*s = schema.CapabilitySurface{
		Schema: schema.CapabilitySurfaceV0, FilesystemPaths: []string{}, NetworkEndpoints: []string{}, ProcessExecs: []string{},
		MCPTools: []string{}, PolicyDecisions: []string{},
	}
	lists := map[string]*[]string{
		"filesystem_paths": &s.FilesystemPaths, "network_endpoints": &s.NetworkEndpoints, "process_execs": &s.ProcessExecs,
		"mcp_tools": &s.MCPTools, "policy_decisions": &s.PolicyDecisions,
	}
	if m.Size > maxDocument {
		return problem(CodeLimit, m.Path, "%d bytes, at most %d are allowed", m.Size, maxDocument)
	}
	s.RunID, err = schema.ReadSurface(m, func(list, value string) { *lists[list] = append(*lists[list], value) })
	var unsorted *schema.UnsortedError
	switch {
	case errors.As(err, &unsorted):
		return nil // for verify to say
	case err != nil && schemaRefused(err):
		return problem(schemaCode(err), m.Path, "%v", err)
	}
	return err
}

func (m *Member) decode(v any) error {
	doc, err := readAll(m, m.Path, m.Size, maxDocument)
	if err != nil {
		return err
	}
	if !m.sound {
		if err := schema.Validate(documentSchema(m.Path), doc); err != nil {
			return problem(schemaCode(err), m.Path, "%v", err)
		}
	}
	if err := json.Unmarshal(doc, v); err != nil {
		return problem(CodeSchema, m.Path, "%v", err)
	}
	return nil
}
