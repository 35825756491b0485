package runner

import (
	"fmt"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// diagnoseSandbox builds every layer once, for a process that then ends.
func diagnoseSandbox(host *cgroup.Host) []Finding {
	dir := ""
	if session, err := host.NewSession(New().RunID, cgroup.Limits{}); err == nil {
		defer session.Remove()
		dir = session.Path()
	}
	layers, err := sandbox.Probe(dir)
	if err != nil {
		return []Finding{{Subject: "sandbox", Name: "layers", State: StateMissing, Reasons: []schema.Reason{{Subject: "sandbox", Code: "probe_failed", Message: err.Error()}}}}
	}
	var findings []Finding
	for _, l := range layers {
		f := Finding{Subject: "sandbox", Name: l.Layer, State: StateOK, Detail: sandbox.Detail(l)}
		if l.State != sandbox.Enforced {
			f.State, f.Detail = StateMissing, ""
			if l.State == sandbox.Degraded {
				f.State = StateDegraded
			}
			f.Reasons = []schema.Reason{{Subject: "sandbox", Code: "layer_" + l.State, Message: fmt.Sprintf("the layer %s is %s: %s", l.Layer, l.State, l.Reason), Remedy: sandbox.Remedy(l)}}
		}
		findings = append(findings, f)
	}
	return findings
}
