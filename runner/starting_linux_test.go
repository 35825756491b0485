package runner

import (
	"bytes"
	"os"
	"syscall"
	"testing"
	"time"

	_ "github.com/assay-run/assay-run/cgroup/reexec"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// signalsAt is a Recorder that sends SIGTERM to the run when an event is recorded, and then pauses.
type signalsAt struct {
	*memory
	event string
	c     chan os.Signal
}

func (s *signalsAt) Append(layer string, encode func(dst []byte, seq uint64) []byte) error {
	if layer == schema.EventsPath && bytes.Contains(encode(nil, 0), []byte(s.event)) {
		s.c <- syscall.SIGTERM
		time.Sleep(3 * killInterval)
	}
	return s.memory.Append(layer, encode)
}

// TestSIGTERMBetweenStartAndRunning sends SIGTERM when the command has been started and the run does not know yet:
// the command gets it, and is not killed like a process that holds up a start.
func TestSIGTERMBetweenStartAndRunning(t *testing.T) {
	spec := specfile.New("sleep", "60")
	spec.Kernel = specfile.KernelOff
	rec := &signalsAt{newMemory(), `"process_started"`, make(chan os.Signal)}
	res, err := Run(t.Context(), spec, Options{Recorder: rec, Signals: rec.c})
	if err != nil {
		t.Fatal(err)
	}
	if res.Outcome != schema.OutcomeSignaled || res.Signal == nil || *res.Signal != "SIGTERM" {
		t.Errorf("outcome %s, signal %v, want that the command ended by SIGTERM: %s", res.Outcome, res.Signal,
			rec.files[schema.EventsPath])
	}
	if got := rec.files[schema.EventsPath]; bytes.Contains(got, []byte(`"cancelled"`)) {
		t.Errorf("the run was cancelled: %s", got)
	}
}
