package proctree

import (
	"context"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// TestWaitEndsWhatCameAfterTheHunt: a member that comes when the hunt has ended, as its time can be over on a busy
// machine, is killed by a later one. Wait does not wait for its end before.
func TestWaitEndsWhatCameAfterTheHunt(t *testing.T) {
	if err := Usable(); err != nil {
		t.Skip(err)
	}
	s, err := NewSession("proctree-"+t.Name(), "PROCTREE_TEST")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
	}()
	g := s.NewGroup()
	cmd := exec.Command("sleep", "1000")
	if err := g.Start(cmd, procs.Starter{Fork: (*exec.Cmd).Start}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// As Kill leaves the group, before the member came.
	forest.Lock()
	g.condemned = map[int]uint64{}
	forest.Unlock()
	huntTime = 0
	defer func() { huntTime = 100 * time.Millisecond }()
	if got := g.remaining(); !slices.Equal(got, []int{nobodyKnown}) {
		t.Errorf("it waits for %v, which nobody has killed", got)
	}
	huntTime = 100 * time.Millisecond
	if err := g.Wait(context.Background()); err != nil {
		t.Error(err)
	}
	<-ended
}
