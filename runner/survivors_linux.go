package runner

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
)

// askTimeout bounds how long the observation is asked who is alive. It answers
// once nothing has come from the kernel for a moment.
const askTimeout = time.Second

// atLarge is how many processes of the run that were not seen to end are alive.
// While the session's cgroups are empty, they have left them.
func (o *observation) atLarge() int {
	if o.observer == nil {
		return 0
	}
	survivors := o.survivors
	if !o.observed() { // it goes on, and the builder is its goroutine's
		answer := make(chan []layer.Survivor, 1)
		select {
		case o.asked <- answer:
			survivors = <-answer
		case <-time.After(askTimeout):
		}
	}
	n := 0
	for _, s := range survivors {
		if alive(s) {
			n++
		}
	}
	return n
}

// alive tells whether a process is there and no zombie, by its start time, which
// tells it from another that got its number. See proc_pid_stat(5).
func alive(s layer.Survivor) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID))
	if err != nil {
		return false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return false
	}
	const tick = uint64(time.Second / 100) // USER_HZ
	ticks, err := strconv.ParseUint(string(fields[19]), 10, 64)
	return err == nil && (s.Start == 0 || ticks == s.Start/tick)
}

// tampered says how the evidence was tampered with, empty where nothing is known of
// it: the observer was changed, or the run reached into the recorder.
func (o *observation) tampered() string {
	if !o.observed() {
		return ""
	}
	for _, r := range o.account.Report.Reasons {
		if r.Code == kernel.CodeTampered || r.Code == kernel.CodeHookLost {
			return r.Message
		}
	}
	if n := o.account.Stats.Reach.RecorderTraced; n > 0 {
		return fmt.Sprintf("the run traced the recorder, or could write its memory, %d times", n)
	}
	return ""
}
