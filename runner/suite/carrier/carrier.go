//go:build linux

// Package carrier carries the tries of a suite to workers, and what they tell to the coordinator, over NATS. It decides
// nothing: when all that it holds is lost, the coordinator publishes again what its ledger has open.
//
// A [Hub] is the coordinator's end. It alone makes the streams, and makes them again when the servers lost them. A
// [Line] is a worker's end, which needs no right but those of [Rights]. Both are the same within one process ([Server])
// and over a network ([Access]).
package carrier

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// maxMessage bounds a message in bytes: a result with the end of what a run said.
	maxMessage = 8 << 20
	// workers and coordinator are the names of the streams' consumers.
	workers, coordinator = "assay-workers", "assay-coordinator"
	// firstPause and longestPause are between the times that something is tried again while NATS is away.
	firstPause, longestPause = 100 * time.Millisecond, 2 * time.Second
)

// names are those of a suite on a server.
type names struct {
	work, told, workspaces                  string // subjects
	workStream, toldStream, workspaceStream string
	bundles                                 string // an object store
}

// namesOf are the names for the suite with the id.
func namesOf(id string) names {
	return names{work: "assay." + id + ".work", told: "assay." + id + ".told", workspaces: "assay." + id + ".workspace",
		workStream: "ASSAY_WORK_" + id, toldStream: "ASSAY_RESULT_" + id, workspaceStream: "ASSAY_WORKSPACE_" + id,
		bundles: "assay-bundles-" + id}
}

// hello is the subject on which the worker asks coordinators; "*" is for all workers.
func hello(worker string) string { return "assay.hello." + worker }

// Name makes a word that NATS takes as a part of a subject out of a name, such as a host's.
func Name(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '_', r == '-':
			return r
		}
		return '-'
	}, s)
}

func isName(s string) bool { return s != "" && Name(s) == s }

// inboxes is the subject below which the worker gets answers.
func inboxes(worker string) string { return "assay.inbox." + worker }

// Rights are all that the worker with the name needs. They do not reach what another worker is told, nor its results
// and bundles. life may restrict the answers to one connection.
func Rights(worker, life string) *server.Permissions {
	inbox := inboxes(worker)
	if life != "" {
		inbox += "." + life
	}
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			hello(worker),
			"assay.*.told." + worker,
			"$JS.API.CONSUMER.INFO.*." + workers,
			"$JS.API.CONSUMER.MSG.NEXT.*." + workers,
			"$JS.ACK.*." + workers + ".>",
			"$JS.API.STREAM.INFO.*",
			"$JS.API.DIRECT.GET.*.assay.*.workspace.>",
			"$JS.API.DIRECT.GET.*.$O.*.M.*",
			"$O.*.C.*",
			"$O.*.M.*",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{inbox + ".>"}},
	}
}

// insist does something until it succeeds or ctx ends, with pauses between. lost is told of each error.
func insist(ctx context.Context, lost func(error), do func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if lost != nil {
			lost(err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}
