package engine

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
)

// TestEndedSinceTheAnswer: a container whose process has ended since the engine named it has ended; a Tree that
// waited for its start has missed it.
func TestEndedSinceTheAnswer(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	e := answering(t, 200, fmt.Sprintf(`{"Id":"0a","State":{"Status":"running","Running":true,"Pid":%d}}`+"\n",
		gone.Process.Pid))
	c, err := e.Container(t.Context(), "0a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Tree(t.Context(), c); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	e.Follow(ctx, c, nil, stop)
	if cause := context.Cause(ctx); !errors.Is(cause, ErrEnded) || !Over(cause) {
		t.Errorf("observation ends because of %v", cause)
	}
}
