package schema

// CapabilitySurface is capability-surface.json: sorted sets without repeats of
// what the run touched, and nothing about order or number.
type CapabilitySurface struct {
	Schema           string   `json:"schema"` // CapabilitySurfaceV0
	RunID            string   `json:"run_id"`
	FilesystemPaths  []string `json:"filesystem_paths"`
	NetworkEndpoints []string `json:"network_endpoints"`
	ProcessExecs     []string `json:"process_execs"`
	MCPTools         []string `json:"mcp_tools"`
	PolicyDecisions  []string `json:"policy_decisions"`
}
