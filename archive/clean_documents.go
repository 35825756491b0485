package archive

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// document cleans a JSON member. One that a bundle can do without is dropped where it
// would not be valid without a secret.
func (c *cleaner) document(src source) (source, error) {
	data := src.data
	if data == nil {
		var b bytes.Buffer
		if err := src.copyTo(&b); err != nil {
			return source{}, fmt.Errorf("%s: %w", src.path, err)
		}
		data = b.Bytes()
	}
	clean := c.r.JSON(src.path, data)
	var err error
	if src.path == schema.SurfacePath {
		clean, err = c.surface(data)
	}
	if err != nil {
		return source{}, fmt.Errorf("%s: %w", src.path, err)
	}
	if !bytes.Equal(clean, data) && schema.Validate(documentSchema(src.path), data) == nil {
		if err := schema.Validate(documentSchema(src.path), clean); err != nil {
			if isDocument(src.path) {
				return source{}, fmt.Errorf("%s: it is not valid without a secret: %w", src.path, err)
			}
			c.dropped = append(c.dropped, src.path)
			return source{}, nil
		}
	}
	return source{path: src.path, size: int64(len(clean)), data: clean}, nil
}

// surface cleans the names of a surface, which are sets in order.
func (c *cleaner) surface(data []byte) ([]byte, error) {
	s := schema.CapabilitySurface{Schema: schema.CapabilitySurfaceV0}
	lists := map[string]*[]string{
		"filesystem_paths": &s.FilesystemPaths, "network_endpoints": &s.NetworkEndpoints, "process_execs": &s.ProcessExecs,
		"mcp_tools": &s.MCPTools, "policy_decisions": &s.PolicyDecisions,
	}
	for _, list := range lists {
		*list = []string{}
	}
	changed := false
	var err error
	s.RunID, err = schema.ReadSurface(bytes.NewReader(data), func(list, name string) {
		clean := c.r.Name(schema.SurfacePath, name)
		changed = changed || clean != name
		*lists[list] = append(*lists[list], clean)
	})
	if err != nil || !changed {
		return data, nil // what is at fault with it, verify tells
	}
	for _, list := range lists {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return schema.Document(s)
}

// account makes the documents tell of the sizes that captures have now, and of what
// was dropped.
func (c *cleaner) account(done []source) error {
	gone := func(path string) bool { return slices.Contains(c.dropped, path) }
	changed := func(path string) bool { return c.grown[path] != 0 || gone(path) }
	streams := map[string]func(*schema.Stdio) *schema.Stream{
		schema.StdoutPath:   func(s *schema.Stdio) *schema.Stream { return s.Stdout },
		schema.StderrPath:   func(s *schema.Stdio) *schema.Stream { return s.Stderr },
		schema.TerminalPath: func(s *schema.Stdio) *schema.Stream { return s.Terminal },
	}
	if changed(schema.StdoutPath) || changed(schema.StderrPath) || gone(schema.TerminalPath) {
		err := amend(done, schema.ResultPath, func(r *schema.Result) {
			for path, of := range streams {
				switch s := of(&r.Stdio); {
				case s == nil:
				case gone(path):
					s.Captured, s.RedactedBytes, s.Truncated = 0, 0, s.Bytes > 0
				case path != schema.TerminalPath: // which counts the bytes of the output
					s.Captured, s.RedactedBytes = s.Captured+c.grown[path], s.RedactedBytes+c.grown[path]
				}
			}
		})
		if err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(done, func(src source) bool { return src.path == schema.ContractPath && changedBelow(c, schema.ChecksDir) }) {
		return nil
	}
	return amend(done, schema.ContractPath, func(contract *schema.Contract) {
		for _, list := range [][]schema.CheckResult{contract.Results, contract.Baseline} {
			for i := range list {
				switch r := &list[i]; {
				case r.OutputPath == "":
				case gone(r.OutputPath):
					r.OutputPath, r.OutputKept, r.OutputRedacted, r.OutputError = "", 0, 0, "a secret could not be removed from it"
				default:
					r.OutputKept, r.OutputRedacted = r.OutputKept+c.grown[r.OutputPath], r.OutputRedacted+c.grown[r.OutputPath]
				}
			}
		}
	})
}

func changedBelow(c *cleaner, dir string) bool {
	below := func(path string) bool { return len(path) > len(dir) && path[:len(dir)] == dir }
	for path, n := range c.grown {
		if n != 0 && below(path) {
			return true
		}
	}
	return slices.ContainsFunc(c.dropped, below)
}

// tell puts what was taken out into the health.
func (c *cleaner) tell(sources []source, removal schema.Removal, receipt func(*schema.Redaction)) error {
	return amend(sources, schema.HealthPath, func(h *schema.ObservationHealth) {
		if h.Redaction == nil {
			h.Redaction = &schema.Redaction{Mode: schema.RedactionDisabled, ByRule: map[string]uint64{}, ByField: map[string]uint64{}}
		}
		h.Redaction.Removals = append(h.Redaction.Removals, removal)
		receipt(h.Redaction)
		for _, path := range c.dropped {
			subject := "bundle"
			if isLayer(path) {
				subject = schema.LayerName(path)
				n := c.lost[path]
				counts := h.Layers[subject]
				counts.Written, counts.Dropped = counts.Written-min(counts.Written, n), counts.Dropped+n
				h.Layers[subject] = counts
			}
			if path == schema.KernelPath && h.KernelLayer == schema.Complete {
				h.KernelLayer, h.KernelState = schema.PartialRingbufDrops, schema.Partial
			}
			h.Reasons = append(h.Reasons, schema.Reason{
				Subject: subject, Code: CodeSecretDropped, Message: path + " was left out: assay-run could not remove a secret from it",
				Remedy: "name the secret with --secret-env or --secret-file, so that it is redacted before it is written",
			})
		}
	})
}

// CodeSecretDropped is the code of the reason in observation-health.json for a member
// that was left out since a secret could not be taken out of it.
const CodeSecretDropped = "secret_dropped"
