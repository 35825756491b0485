//go:build linux

// Package carrier carries the tries of a suite to workers, and their results to the coordinator, over NATS. It decides
// nothing. If NATS loses everything, the coordinator publishes again every try that its ledger has open.
//
// A [Hub] is the coordinator's end. Only it creates the suite's streams, and it creates them again if the servers lose
// them. A [Client] is a worker's end, which only needs the rights of [Rights]. Both work alike with a server in this
// process ([Server]) and with servers elsewhere ([Access]).
package carrier

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// maxMessage limits a message, in bytes. Work has copies of contracts, policies and price lists in it.
	maxMessage = 8 << 20
	// workers and coordinator are the names of the consumers that take work and results.
	workers, coordinator = "assay-workers", "assay-coordinator"
	// firstPause and longestPause bound the pause between two tries of an operation while NATS does not answer.
	firstPause, longestPause = 100 * time.Millisecond, 2 * time.Second
)

// names are the subjects, streams and the object store of one suite.
type names struct {
	work, results, workspaces                 string // subjects
	workStream, resultStream, workspaceStream string
	bundles                                   string // an object store
}

// namesOf returns the names for the suite with the given id.
func namesOf(id string) names {
	return names{work: "assay." + id + ".work", results: "assay." + id + ".told",
		workspaces: "assay." + id + ".workspace",
		workStream: "ASSAY_WORK_" + id, resultStream: "ASSAY_RESULT_" + id, workspaceStream: "ASSAY_WORKSPACE_" + id,
		bundles: "assay-bundles-" + id}
}

// hello is the subject of a worker's questions to coordinators. The worker "*" stands for all of them.
func hello(worker string) string { return "assay.hello." + worker }

// Name replaces what NATS does not allow in one part of a subject by "-".
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

// inboxes is the prefix of the subjects on which a worker gets answers.
func inboxes(worker string) string { return "assay.inbox." + worker }

// Rights are the permissions that a worker needs. They do not let it read what another worker gets or reports, nor its
// bundles. With an instance it only gets the answers for that process of the worker.
func Rights(worker, instance string) *server.Permissions {
	inbox := inboxes(worker)
	if instance != "" {
		inbox += "." + instance
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

// retry calls do until it succeeds or ctx ends, with growing pauses. It calls onError, unless that is nil, with each
// error after which it tries again.
func retry(ctx context.Context, onError func(error), do func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if onError != nil {
			onError(err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}
