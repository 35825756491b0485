package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/schema"
)

// finish settles the result, takes the session apart and writes the closing
// event and the documents. why is what kept the command from running, or nil.
func (r *run) finish(why error) (*schema.Result, error) {
	r.settleContract(context.Background(), why)
	exit := r.settle(why)
	r.release()

	event := schema.Event{
		Type: schema.RunFinished, ExitCode: schema.None[int](), Signal: schema.None[string](),
	}
	elapsed := r.rec.elapsed().Milliseconds()
	success := r.result.Outcome == schema.OutcomeExited && r.exit.code == 0
	event.WindowElapsedMS, event.Success = &elapsed, &success
	if r.result.ExitCode != nil {
		event.ExitCode = schema.Some(*r.result.ExitCode)
	}
	if r.result.Signal != nil {
		event.Signal = schema.Some(*r.result.Signal)
	}
	r.rec.event(event)

	r.result.RunnerExitCode = &exit
	err := errors.Join(
		r.rec.failed(),
		r.unheard(),
		r.gate.recorded(),
		r.put(schema.ResultPath, &r.result),
		r.writeSurface(),
		r.put(schema.CorrelationPath, r.correlation()),
		r.put(schema.HealthPath, r.health()), // last: it counts what the others wrote
	)
	return &r.result, err
}

// settle fills the outcome fields of the result and gives the exit code.
func (r *run) settle(why error) int {
	res := &r.result
	var failure *runError
	switch {
	case errors.As(why, &failure):
		if failure.source != schema.SourceChild || res.Outcome == "" {
			res.Outcome = schema.OutcomeInfraError
		}
		if failure.outcome != "" {
			res.Outcome = failure.outcome
		}
		res.ErrorSource, res.Error = &failure.source, &failure.ResultError
		if why != r.lost {
			r.rec.event(schema.Event{Type: schema.StartFailed, Code: failure.Code, Message: failure.Message})
		}
		return failure.exit
	case why != nil:
		panic("runner: unsorted failure: " + why.Error())
	}
	if r.exit.signal != "" {
		res.Signal = &r.exit.signal
	} else {
		res.ExitCode = &r.exit.code
	}
	if res.Outcome == schema.OutcomeTimeout {
		return ExitTimeout
	}
	return r.judge(r.exit.code)
}

func (r *run) put(path string, doc any) error {
	data, err := schema.Document(doc)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return r.opt.Recorder.Put(path, data)
}

// cgroupCorrelation is clean when the kernel layer saw the session's cgroup
// and nobody left it.
func (r *run) cgroupCorrelation() string {
	if rep := r.kernelAccount.Report; rep != nil && rep.LeftCgroup == 0 {
		return schema.Clean
	}
	return schema.Partial
}

// health claims what this run may claim, and gives the reasons for what it may
// not.
func (r *run) health() *schema.ObservationHealth {
	h := &schema.ObservationHealth{
		Schema: schema.ObservationHealthV0, RunID: r.spec.RunID, Platform: runtime.GOOS,
		PolicyLayer: schema.Absent, SDKLayer: schema.Absent,
		CgroupCorrelation: r.cgroupCorrelation(),
		Notes:             []string{},
		Reasons:           append([]schema.Reason{}, r.reasons...),
		Layers:            map[string]schema.LayerCounts{},
	}
	for _, path := range schema.Layers {
		h.Layers[schema.LayerName(path)] = r.opt.Recorder.Counts(path)
	}
	if r.unobserved == nil && r.observation == nil && r.spec.Kernel != KernelOff {
		r.unobserved = &kernel.Unavailable{Reasons: []kernel.Reason{{
			Code: "not_started", Message: "the run failed before observation began", Remedy: "see error in result.json",
		}}}
	}
	r.kernelAccount.Unavailable = r.unobserved
	r.settleKernelAccount()
	layer.Health(h, r.kernelAccount)
	for _, reason := range h.Reasons {
		if reason.Code == layer.CodeLayerDropped {
			r.lose(reason)
		}
	}
	if h.NetworkEndpointClaimScope == schema.PeerSet && r.surface.EndpointsOmitted() {
		h.NetworkEndpointClaimScope = schema.DiagnosticOnly
	}
	r.agentHealth(h)
	if h.KernelLayer == schema.Absent {
		h.Notes = append(h.Notes, "contract_only_mode: kernel layer absent; lifecycle and stdio were recorded, kernel events were not")
	}
	return h
}
