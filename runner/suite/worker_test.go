//go:build linux

package suite

import (
	"context"
	"testing"
	"time"
)

// answers is a worker's client that answers each question with the next of all, and calls end after the last. Further
// questions get an empty answer: a heartbeat may be due when end is called.
type answers struct {
	client
	all []Welcome
	end context.CancelFunc
}

func (a *answers) Ask(_ context.Context, _, answer any) error {
	if len(a.all) == 0 {
		return nil
	}
	*answer.(*Welcome) = a.all[0]
	if a.all = a.all[1:]; len(a.all) == 0 {
		a.end()
	}
	return nil
}

// TestAHeartbeatEndsNoTryThatWaits has a try that waits for its workspace while heartbeats are answered. Only the try
// that an answer names may be given up.
func TestAHeartbeatEndsNoTryThatWaits(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	w := &Worker{Client: &answers{all: []Welcome{{}, {GiveUp: []string{"taken"}}, {}}, end: end},
		tries: map[string]*activeTry{}}
	runs := map[string]context.Context{}
	for _, token := range []string{"waits", "taken"} {
		run, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		runs[token] = run
		w.tries[token] = &activeTry{cancelRun: cancel, cancelReport: func(error) {}, idle: true}
	}
	leave := func(err error) { t.Errorf("the worker leaves: %v", err) }
	w.heartbeat(ctx, nil, leave, &Welcome{LeaseNS: int64(3 * time.Millisecond)})
	if err := context.Cause(runs["waits"]); err != nil {
		t.Errorf("the try that waits is given up: %v", err)
	}
	if err := context.Cause(runs["taken"]); err != errOver { //nolint:errorlint // the same error
		t.Errorf("the try that is another worker's ends with %v", err)
	}
}
