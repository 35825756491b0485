package hook

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
)

// maxLine limits a line of the log, in bytes.
const maxLine = 1 << 20

// event is a line of the SDK event log.
type event = schema.SDKEvent

// log is the SDK event log of the run that this process is part of.
type log struct {
	path string
	base event // fields that are equal in all lines
}

// Names of the variables by which hooks find the log.
const ()

// openLog finds the log. It returns nil outside a run, and in a run without a log.
func openLog(agent string, env func(string) string) *log {
	path := env(agents.EnvLog)
	if path == "" {
		return nil
	}
	return &log{path, event{
		Schema: env(agents.EnvLogSchema), RunID: env(agents.EnvRun), Source: agent, SDKName: agent,
	}}
}

// locked opens and locks the log, and calls f. Other processes wait for the lock.
func (l *log) locked(f func(*os.File) error) (err error) {
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|noFollow, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%s is not a regular file", l.path))
	}
	if err := lock(file); err != nil {
		return fmt.Errorf("lock %s: %w", l.path, err)
	}
	return f(file)
}

// add appends lines, each with one write. It calls lines while it holds the lock, with
// the calls that have started and not completed, oldest first.
func (l *log) add(lines func(open []event) []event) error {
	return l.locked(func(file *os.File) error {
		open, seq, torn, err := unfinished(io.NewSectionReader(file, 0, 1<<62))
		if err != nil {
			return fmt.Errorf("%s: %w", l.path, err)
		}
		for _, line := range lines(open) {
			e := l.base
			e.Seq, e.EventType, e.ToolCallID, e.Tool = seq, line.EventType, line.ToolCallID, line.Tool
			e.Argv, e.Failed = line.Argv, line.Failed
			e.Timestamp = time.Now().UTC().Format(time.RFC3339Nano)
			data, err := json.Marshal(e)
			if err != nil {
				return err
			}
			if len(data) >= maxLine {
				return errors.New("the tool's name or the call's id is too long")
			}
			if torn { // after a full disk or a kill; the incomplete line stays on a line of its own
				data = append([]byte{'\n'}, data...)
			}
			if _, err := file.Write(append(data, '\n')); err != nil {
				return err
			}
			seq, torn = seq+1, false
		}
		return nil
	})
}

// unfinished reads the log. It returns the open calls, the number of the next line, and whether the last line lacks
// its newline. It skips lines that it cannot decode; the runner reports them.
func unfinished(r io.Reader) (open []event, seq uint64, torn bool, err error) {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF {
			return open, seq, len(line) > 0, nil
		}
		if err != nil {
			return nil, 0, false, err
		}
		var e event
		if json.Unmarshal(bytes.TrimSpace(line), &e) != nil {
			continue
		}
		seq = e.Seq + 1
		switch e.EventType {
		case agentlog.ToolCallStarted:
			open = append(open, e)
		case agentlog.ToolCallCompleted:
			for i := range open {
				if open[i].ToolCallID == e.ToolCallID {
					open = append(open[:i], open[i+1:]...)
					break
				}
			}
		}
	}
}

// has reports whether a call is open.
func has(open []event, id string) bool {
	for _, o := range open {
		if o.ToolCallID == id {
			return true
		}
	}
	return false
}
