//go:build linux

package suite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// TestAgentsTakeTurnsAndTheLongestGoesFirst chooses one attempt after the other; none of them ends.
func TestAgentsTakeTurnsAndTheLongestGoesFirst(t *testing.T) {
	whose, tries := newTurns(), map[string]*try{}
	for _, agent := range []string{"a", "b"} {
		whose.took(Attempt{Task: "short", Agent: agent}, &schema.SuiteTry{Seconds: new(1.0)})
		whose.took(Attempt{Task: "long", Agent: agent}, &schema.SuiteTry{Seconds: new(9.0)})
	}
	var ready []*attempt
	for _, agent := range []string{"a", "b"} {
		for _, task := range []string{"short", "long", "new"} {
			for n := range 2 {
				ready = append(ready, &attempt{Attempt: Attempt{Task: task, Agent: agent, Attempt: n + 1}})
			}
		}
	}
	var got []string
	for _, a := range whose.choose(ready, 100, tries) {
		got = append(got, a.String())
	}
	want := "new/a/1 new/b/1 new/a/2 new/b/2 long/a/1 long/b/1 long/a/2 long/b/2 " +
		"short/a/1 short/b/1 short/a/2 short/b/2"
	if strings.Join(got, " ") != want {
		t.Errorf("it was %v, want %v", got, want)
	}
	// An agent with open tries waits until the other has as many.
	open := &attempt{Attempt: Attempt{Task: "x", Agent: "a"}}
	tries["1"], tries["2"] = &try{of: open}, &try{of: open}
	got = nil
	for _, a := range whose.choose(ready, 3, tries) {
		got = append(got, a.Agent)
	}
	if strings.Join(got, "") != "bba" && strings.Join(got, "") != "bbb" {
		t.Errorf("then it was %v", got)
	}
}

// TestMemoryBoundsWhatRuns reserves at most the machine's memory. A run that asks for more runs alone.
func TestMemoryBoundsWhatRuns(t *testing.T) {
	var m memory
	ctx := context.Background()
	give, err := m.reserve(ctx, machineMemory()*2)
	if err != nil {
		t.Fatal(err)
	}
	if none, err := m.reserve(ctx, 0); err != nil {
		t.Fatal(err)
	} else {
		none()
	}
	short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	if _, err := m.reserve(short, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside all memory there was more: %v", err)
	}
	give()
	give, err = m.reserve(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	give()
}
