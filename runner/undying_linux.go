package runner

import (
	"errors"
	"fmt"
	"time"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/schema"
)

const (
	// deathTime is how long what was killed may take to end.
	deathTime = 10 * time.Second
	// killAgain is when what has not ended is killed again: somebody may have frozen
	// it, or it forks faster than it is found.
	killAgain = time.Second
)

func (s *supervisor) killAgain() {
	_ = s.agent.Kill()
	s.again = time.After(killAgain)
}

// lose gives up on what was killed and does not end, such as a process of another
// user where no cgroup is writable. The run ends all the same, says who is left, and
// leaves them to the guard.
func (s *supervisor) lose() {
	s.lostAny, s.again, s.giveUp, s.killAt = true, nil, nil, nil
	left, _ := s.agent.Procs()
	list := named(s.session.Session, left)
	s.survivors, s.survivorNames = max(1, len(left)), namedShort(list)
	s.log.Event(schema.Event{
		Type: schema.RecorderError, Code: codeSurvivors, Count: int64(s.survivors), Processes: list, Message: s.survived(),
	})
	if !s.exited {
		s.exited, s.changes, s.ended = true, nil, bootTime()
		s.lost = sandboxError("command_undying", errors.New("the command was killed and did not end"))
	}
}

const codeSurvivors = "processes_survived"

// survived says who is left of the command's processes; empty for nobody.
func (c *command) survived() string {
	if c.survivors == 0 {
		return ""
	}
	names := ""
	if c.survivorNames != "" {
		names = ", " + c.survivorNames + ","
	}
	return fmt.Sprintf("the run's processes were killed, but %d%s did not end: the bundle does not show what they do from now on", c.survivors, names)
}

// remedy is how such processes can be ended for certain.
func (c *command) remedy() string {
	if c.session.host.Mode() == cgroup.None {
		return "run with --isolate pid or --mode, whose PID namespace ends every process with the command, or where a cgroup is writable"
	}
	return "end them by hand; /proc/PID/status shows the state of each"
}

func (c *command) health(h *schema.ObservationHealth) {
	if why := c.survived(); why != "" {
		h.Reasons = append(h.Reasons, schema.Reason{Subject: "cgroup", Code: codeSurvivors, Message: why, Remedy: c.remedy()})
	}
}
