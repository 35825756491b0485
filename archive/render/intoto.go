package render

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// statement is an in-toto Statement v1 with a runtime trace as its predicate
// (in-toto/attestation: spec/v1/statement.md, spec/predicates/runtime-trace.md).
// It is not signed.
type statement struct {
	Type          string       `json:"_type"`
	Subject       []descriptor `json:"subject"`
	PredicateType string       `json:"predicateType"`
	Predicate     runtimeTrace `json:"predicate"`
}

// descriptor is a ResourceDescriptor.
type descriptor struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest,omitempty"`
	URI    string            `json:"uri,omitempty"`
}

type runtimeTrace struct {
	Monitor          monitor          `json:"monitor"`
	MonitoredProcess monitoredProcess `json:"monitoredProcess"`
	MonitorLog       monitorLog       `json:"monitorLog"`
	Metadata         metadata         `json:"metadata"`
}

type monitor struct {
	Type        string      `json:"type"`
	TracePolicy tracePolicy `json:"tracePolicy"`
}

// tracePolicy says what was observed, and why the log may be incomplete.
type tracePolicy struct {
	Recorder string   `json:"recorder"`
	Kernel   string   `json:"kernelLayer"`
	Complete bool     `json:"complete"`
	Gaps     []string `json:"gaps"`
}

type monitoredProcess struct {
	HostID string `json:"hostID"`
	Type   string `json:"type"`
	Event  string `json:"event"`
}

type monitorLog struct {
	Process    []processLog `json:"process"`
	Network    []networkLog `json:"network"`
	FileAccess []descriptor `json:"fileAccess"`
}

type processLog struct {
	Executable string   `json:"executable"`
	Argv       []string `json:"argv"`
	Count      uint64   `json:"count"`
}

type networkLog struct {
	Endpoint string   `json:"endpoint"`
	Names    []string `json:"names,omitempty"`
	Count    uint64   `json:"count"`
}

type metadata struct {
	StartedOn  string `json:"buildStartedOn"`
	FinishedOn string `json:"buildFinishedOn,omitempty"`
}

// maxLog limits each list of the statement.
const maxLog = 10_000

func inToto(ctx context.Context, w io.Writer, _ string, b *view.Bundle) ([]string, error) {
	d := b.Docs
	sum, err := view.Summarize(ctx, b, maxLog)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Name, err)
	}
	gaps := []string{}
	for _, about := range []view.Subject{view.Programs, view.Files, view.Hosts} {
		for _, g := range view.Claim(d, about) {
			gaps = append(gaps, g.Text)
		}
	}
	s := statement{
		Type:          "https://in-toto.io/Statement/v1",
		PredicateType: "https://in-toto.io/attestation/runtime-trace/v0.1",
		// The identity is the digest of the manifest, which has the digests of all members.
		Subject: []descriptor{{Name: "pkg:generic/assay-run-bundle@" + b.RunID() + "#" + schema.ManifestPath,
			Digest: map[string]string{"sha256": strings.TrimPrefix(b.Identity(), "sha256:")}}},
		Predicate: runtimeTrace{
			Monitor: monitor{Type: "https://github.com/assay-run/assay-run/runtime-trace/v0",
				TracePolicy: tracePolicy{validUTF8(d.Run.Recorder), schema.KernelState(d.Health.KernelLayer),
					len(gaps) == 0, gaps}},
			MonitoredProcess: monitoredProcess{HostID: "urn:assay-run:host:unknown",
				Type: "https://github.com/assay-run/assay-run/run/v0", Event: b.RunID()},
			MonitorLog: monitorLog{Process: []processLog{}, Network: []networkLog{}, FileAccess: []descriptor{}},
			Metadata:   metadata{StartedOn: d.Run.StartedAt},
		},
	}
	if start, err := time.Parse(time.RFC3339Nano, d.Run.StartedAt); err == nil && d.Result.Timings.ChildNS != nil {
		s.Predicate.Metadata.FinishedOn = start.Add(time.Duration(*d.Result.Timings.ChildNS)).UTC().Format(
			time.RFC3339Nano)
	}
	log := &s.Predicate.MonitorLog
	for _, c := range sum.Commands.Items {
		p := processLog{Executable: validUTF8(c.Exe), Argv: []string{}, Count: c.Count}
		for _, a := range c.Argv {
			p.Argv = append(p.Argv, validUTF8(a))
		}
		log.Process = append(log.Process, p)
	}
	for _, h := range sum.Hosts.Items {
		log.Network = append(log.Network, networkLog{validUTF8(h.What()), h.Names, h.Count})
	}
	for i, path := range d.Surface.FilesystemPaths {
		if i == maxLog {
			break
		}
		log.FileAccess = append(log.FileAccess, descriptor{Name: validUTF8(path)})
	}
	left := []string{"the order and the times of events", "the output of the run",
		"the digests of the files: they were not read"}
	for what, more := range map[string]uint64{
		"commands": sum.Commands.Total - uint64(len(log.Process)) + sum.Commands.Beyond,
		"hosts":    sum.Hosts.Total - uint64(len(log.Network)) + sum.Hosts.Beyond,
		"files":    uint64(len(d.Surface.FilesystemPaths) - len(log.FileAccess)),
	} {
		if more > 0 {
			left = append(left, fmt.Sprintf("%d %s", more, what))
		}
	}
	return left, writeJSON(w, s)
}
