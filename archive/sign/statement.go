package sign

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// Types in an envelope. See https://github.com/in-toto/attestation, spec v1.
const (
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://github.com/assay-run/assay-run/run/v0"
)

// statement is what is signed.
type statement struct {
	Type          string    `json:"_type"` // statementType
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"` // predicateType
	Predicate     predicate `json:"predicate"`
}

// subject names the bundle: its file name when it was signed, which proves nothing, and its identity as {"sha256": 64
// hex digits}.
type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// predicate repeats what a gate needs first. Every field comes from the bundle, so a reader can compare it with the
// bundle.
type predicate struct {
	RunID   string `json:"run_id"`
	Outcome string `json:"outcome"`
	// ExitCode is the command's, null if it has none. RunnerExitCode is assay-run's, null in a recovered bundle.
	ExitCode       *int `json:"exit_code"`
	RunnerExitCode *int `json:"runner_exit_code"`
	// Verdict is the outcome contract's, null without a contract.
	Verdict *string `json:"verdict"`
	// ContractDigest is "sha256:..." of the contract's file as read before the command started, and PolicyDigest of
	// policy.json. Null without a contract or policy.
	ContractDigest *string `json:"contract_digest"`
	PolicyDigest   *string `json:"policy_digest"`
	Health         health  `json:"health"`
	// Recorder names the program and version that recorded the run.
	Recorder string `json:"recorder"`
}

// health is the part of observation-health.json on which claims depend.
type health struct {
	KernelLayer       string `json:"kernel_layer"`
	PolicyLayer       string `json:"policy_layer"`
	SDKLayer          string `json:"sdk_layer"`
	CgroupCorrelation string `json:"cgroup_correlation"`
	RingbufDrops      uint64 `json:"ringbuf_drops"`
	// Reasons are the codes of all reasons in the health, in the bundle's order. Never null.
	Reasons []string `json:"reasons"`
}

// describe returns the statement about a bundle, which need not be verified.
func describe(ctx context.Context, path string) (*statement, error) {
	r, err := archive.Open(path)
	if err != nil {
		return nil, err
	}
	docs, err := r.Documents(ctx)
	if err != nil {
		return nil, err
	}
	p := predicate{
		RunID: r.RunID(), Outcome: docs.Result.Outcome, ExitCode: docs.Result.ExitCode,
		RunnerExitCode: docs.Result.RunnerExitCode, Verdict: docs.Result.Contract, Recorder: docs.Run.Recorder,
		Health: health{
			KernelLayer: docs.Health.KernelLayer, PolicyLayer: docs.Health.PolicyLayer, SDKLayer: docs.Health.SDKLayer,
			CgroupCorrelation: docs.Health.CgroupCorrelation, RingbufDrops: docs.Health.RingbufDrops,
			Reasons: []string{},
		},
	}
	for _, reason := range docs.Health.Reasons {
		p.Health.Reasons = append(p.Health.Reasons, reason.Code)
	}
	if docs.Contract != nil {
		p.ContractDigest = &docs.Contract.Digest
	}
	if policy, ok := r.Manifest().Files[schema.PolicyFilePath]; ok {
		p.PolicyDigest = &policy.SHA256
	}
	return &statement{
		Type: statementType, PredicateType: predicateType, Predicate: p,
		Subject: []subject{{Name: filepath.Base(path),
			Digest: map[string]string{"sha256": strings.TrimPrefix(r.Identity(), "sha256:")}}},
	}, nil
}

// about reports whether the statement's subject is the bundle with that identity.
func (s *statement) about(identity string) bool {
	for _, subject := range s.Subject {
		if hexDigest, ok := strings.CutPrefix(identity, "sha256:"); ok &&
			strings.EqualFold(subject.Digest["sha256"], hexDigest) {
			return true
		}
	}
	return false
}
