package runner

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/assay-run/assay-run/runner/internal/strict"
)

// maxSpecFile bounds a spec file, in bytes: no command line is longer than
// the kernel's own 2 MiB for arguments and environment.
const maxSpecFile = 4 << 20

// specFile is a Spec as it is written in a file. Absent keys leave the Spec as
// it is.
type specFile struct {
	RunID        *string           `json:"run_id"`
	AgentShim    *string           `json:"agent_shim"`
	Command      []string          `json:"command"`
	Env          map[string]string `json:"env"`
	Workdir      *string           `json:"workdir"`
	Timeout      *duration         `json:"timeout"`
	Grace        *duration         `json:"grace"`
	Limits       *limitsFile       `json:"limits"`
	Contract     *string           `json:"contract"`
	Baseline     *bool             `json:"contract_baseline"`
	Labels       map[string]string `json:"labels"`
	Capture      *bool             `json:"capture"`
	CaptureBytes *byteSize         `json:"capture_bytes"`
	Kernel       *string           `json:"kernel"`
	KernelBuffer *byteSize         `json:"kernel_buffer"`
	Compat       *string           `json:"compat"`

	SDKEventLog       *string `json:"sdk_event_log"`
	PolicyDecisionLog *string `json:"policy_decision_log"`

	Policy  *string    `json:"policy"`
	Gateway *string    `json:"gateway"`
	Turns   *turnsFile `json:"turns"`
}

type turnsFile struct {
	CLITool   *string   `json:"cli_tool"`
	CheckTool *string   `json:"check_tool"`
	MaxField  *byteSize `json:"max_field"`
	MaxTurn   *byteSize `json:"max_turn"`
}

type limitsFile struct {
	Memory     *byteSize `json:"memory"`
	Pids       *int64    `json:"pids"`
	CPUs       *cpuMilli `json:"cpus"`
	BestEffort *bool     `json:"best_effort"`
}

type duration time.Duration

func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = duration(v)
	return err
}

type byteSize int64

// UnmarshalJSON takes a number of bytes as well as a string.
func (n *byteSize) UnmarshalJSON(b []byte) error {
	v, err := ParseBytes(string(bytes.Trim(b, `"`)))
	*n = byteSize(v)
	return err
}

type cpuMilli int64

// UnmarshalJSON takes a number of CPUs as well as a string.
func (n *cpuMilli) UnmarshalJSON(b []byte) error {
	v, err := ParseCPUs(string(bytes.Trim(b, `"`)))
	*n = cpuMilli(v)
	return err
}

// LoadFile overlays s with the file at path, which may be a pipe. The notation
// is told by the name (.json, .yaml, .yml), else by the first character. Keys it
// does not know and keys given twice are errors that name the file and the line.
// A relative workdir, contract, policy or log is relative to the file.
func (s *Spec) LoadFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSpecFile+1))
	if err != nil {
		return fmt.Errorf("read spec %s: %w", path, err)
	}
	if len(data) > maxSpecFile {
		return fmt.Errorf("read spec %s: larger than %d bytes", path, maxSpecFile)
	}
	var file specFile
	if err := strict.Decode(data, strict.FormatOf(path, data), &file); err != nil {
		return fmt.Errorf("spec %s: %w", path, err)
	}
	for _, p := range []*string{file.Workdir, file.Contract, file.SDKEventLog, file.PolicyDecisionLog, file.Policy} {
		if p == nil || *p == "" || filepath.IsAbs(*p) {
			continue
		}
		dir, err := filepath.Abs(filepath.Dir(path))
		if err != nil {
			return fmt.Errorf("spec %s: %s: %w", path, *p, err)
		}
		*p = filepath.Join(dir, *p)
	}
	file.overlay(s)
	return nil
}

func (f *specFile) overlay(s *Spec) {
	set(&s.RunID, f.RunID)
	set(&s.AgentShim, f.AgentShim)
	if f.Command != nil {
		s.Command = f.Command
	}
	s.Env = merge(s.Env, f.Env)
	set(&s.Workdir, f.Workdir)
	set((*duration)(&s.Timeout), f.Timeout)
	set((*duration)(&s.Grace), f.Grace)
	if l := f.Limits; l != nil {
		set((*byteSize)(&s.Limits.MemoryBytes), l.Memory)
		set(&s.Limits.Pids, l.Pids)
		set((*cpuMilli)(&s.Limits.CPUMilli), l.CPUs)
		set(&s.Limits.BestEffort, l.BestEffort)
	}
	set(&s.Contract, f.Contract)
	set(&s.ContractBaseline, f.Baseline)
	s.Labels = merge(s.Labels, f.Labels)
	if f.Capture != nil {
		s.NoCapture = !*f.Capture
	}
	set((*byteSize)(&s.CaptureBytes), f.CaptureBytes)
	set(&s.Kernel, f.Kernel)
	set((*byteSize)(&s.KernelBuffer), f.KernelBuffer)
	set(&s.Compat, f.Compat)
	set(&s.SDKEventLog, f.SDKEventLog)
	set(&s.PolicyDecisionLog, f.PolicyDecisionLog)
	set(&s.Policy, f.Policy)
	set(&s.Gateway, f.Gateway)
	if t := f.Turns; t != nil {
		set(&s.Turns.CLITool, t.CLITool)
		set(&s.Turns.CheckTool, t.CheckTool)
		setInt(&s.Turns.FieldBytes, t.MaxField)
		setInt(&s.Turns.TurnBytes, t.MaxTurn)
	}
}

func set[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}

func setInt(dst *int, src *byteSize) {
	if src != nil {
		*dst = int(*src)
	}
}

func merge(dst, src map[string]string) map[string]string {
	if dst == nil && len(src) > 0 {
		dst = make(map[string]string, len(src))
	}
	for k, v := range src {
		dst[k] = v
	}
	return dst
}
