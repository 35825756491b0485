package runner

import (
	"cmp"
	"runtime"
	"time"
	"unicode/utf8"

	"github.com/assay-run/assay-run/schema"
)

// Record is the spec in the form it has in run.json, values of environment
// variables left out. The wall clock start is startedAt.
func (s *Spec) Record(startedAt time.Time, recorder, output string) (schema.Run, error) {
	at, err := s.Absolute()
	if err != nil {
		return schema.Run{}, err
	}
	spec, err := at.withoutEnv()
	if err != nil {
		return schema.Run{}, err
	}
	turns := s.Turns.Gateway().Effective()
	return schema.Run{
		Schema: schema.RunV0, RunID: s.RunID, Platform: cmp.Or(s.Platform, runtime.GOOS), AgentShim: s.AgentShim,
		Command: s.Command, CommandRaw: rawArgs(s.Command), EnvKeys: sortedKeys(s.Env), Workdir: at.Workdir,
		TimeoutMS: s.Timeout.Milliseconds(), GraceMS: s.Grace.Milliseconds(),
		Limits:   schema.Limits{MemoryBytes: int64(s.Limits.Memory), Pids: s.Limits.Pids, CPUMilli: int64(s.Limits.CPUs)},
		Contract: at.Contract, ContractBaseline: s.ContractBaseline,
		Labels: s.Labels, Capture: s.Capture, CaptureBytes: int64(s.CaptureBytes),
		Kernel: s.Kernel, KernelBufferBytes: int64(s.KernelBuffer), Compat: s.Compat, SDKEventLog: at.SDKEventLog, PolicyDecisionLog: at.PolicyDecisionLog,
		Policy: at.Policy, Gateway: s.Gateway, Turns: &schema.RunTurns{
			CLITool: turns.CLITool, CheckTool: turns.CheckTool, FieldBytes: turns.FieldBytes, TurnBytes: turns.TurnBytes,
		},
		Spec:      spec,
		StartedAt: startedAt.UTC().Format(time.RFC3339Nano), Recorder: recorder, Output: output,
	}, nil
}

// rawArgs are the arguments that JSON cannot hold.
func rawArgs(argv []string) map[int][]byte {
	var raw map[int][]byte
	for i, arg := range argv {
		if !utf8.ValidString(arg) {
			if raw == nil {
				raw = map[int][]byte{}
			}
			raw[i] = []byte(arg)
		}
	}
	return raw
}
