package hook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// between is the time between two looks at the rollout files.
const between = 20 * time.Millisecond

// Follow reports the tool calls of Codex to the run that the environment names. It reads
// them from the rollout files that every Codex, interactive or not, writes about its
// sessions. It skips what the files contain already, and goes on until stop is called. Call
// stop once: its error says what could not be reported.
func Follow(env func(string) string) (stop func() error) {
	s := &session{env: env, log: openLog("codex", env)}
	if s.log == nil {
		return func() error { return nil }
	}
	home := env("CODEX_HOME")
	if home == "" {
		home = filepath.Join(env("HOME"), ".codex")
	}
	f := &rollouts{session: s, dir: filepath.Join(home, "sessions"), began: time.Now(), at: map[string]*rollout{}}
	f.known()
	done, failed := make(chan struct{}), make(chan error)
	go func() {
		ticks := time.NewTicker(between)
		defer ticks.Stop()
		for err := error(nil); ; err = cmp.Or(err, f.look()) {
			select {
			case <-done:
				failed <- cmp.Or(err, f.look(), f.end())
				return
			case <-ticks.C:
			}
		}
	}()
	return func() error {
		close(done)
		return <-failed
	}
}

// rollouts are the files of sessions, in dir/YEAR/MONTH/DAY.
type rollouts struct {
	*session
	dir   string
	began time.Time
	// listed is when the directories were read. One that has not changed since is skipped.
	listed time.Time
	at     map[string]*rollout // by path
}

// rollout is one file: how far it was read, and the calls in it that are open.
type rollout struct {
	offset int64
	torn   []byte
	open   []event
}

// maxSessions is how many of the latest older sessions are watched, since somebody may
// resume one.
const maxSessions = 256

// known notes the sessions from before, and how long their files are.
func (f *rollouts) known() {
	old, _ := filepath.Glob(filepath.Join(f.dir, "*", "*", "*", "rollout-*.jsonl")) // sorted by name, and so by time
	for _, path := range old[max(0, len(old)-maxSessions):] {
		if info, err := os.Lstat(path); err == nil {
			f.at[path] = &rollout{offset: info.Size()}
		}
	}
}

// look reads what is new. Codex names a day's directory by the local date. look opens a
// directory only if it has changed: the run records opens, but not stats.
func (f *rollouts) look() error {
	var errs []error
	for day := f.began.AddDate(0, 0, -1); day.Before(time.Now().AddDate(0, 0, 2)); day = day.AddDate(0, 0, 1) {
		dir := filepath.Join(f.dir, day.Format("2006/01/02"))
		info, err := os.Stat(dir)
		if err != nil || info.ModTime().Before(f.listed) {
			continue
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if f.at[path] == nil && strings.HasPrefix(e.Name(), "rollout-") && strings.HasSuffix(e.Name(), ".jsonl") {
				f.at[path] = &rollout{}
			}
		}
	}
	f.listed = time.Now().Add(-time.Second) // file times are coarse
	for path, r := range f.at {
		info, err := os.Lstat(path)
		if err == nil && info.Mode().IsRegular() && info.Size() > r.offset {
			errs = append(errs, f.read(path, r))
		}
	}
	return errors.Join(errs...)
}

// read reports the calls in the lines that were added to a file.
func (f *rollouts) read(path string, r *rollout) error {
	file, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := file.ReadAt(buf, r.offset)
		r.offset += int64(n)
		r.torn = append(r.torn, buf[:n]...)
		for {
			line, rest, whole := bytes.Cut(r.torn, []byte{'\n'})
			if !whole {
				break
			}
			if err := f.line(r, line); err != nil {
				return err
			}
			r.torn = rest
		}
		if len(r.torn) > maxEvent {
			return fmt.Errorf("%s: a line is larger than %d bytes", path, maxEvent)
		}
		if err == io.EOF || n == 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// rolloutLine is a line of a rollout file.
type rolloutLine struct {
	Timestamp time.Time `json:"timestamp"`
	Type      string    `json:"type"`
	Payload   struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		CallID  string `json:"call_id"`
		Name    string `json:"name"`
		Version string `json:"cli_version"`
	} `json:"payload"`
}

// line reports the call in one line, if there is one. A session that continues another
// begins with the other's lines, which keep their times: line skips them.
func (f *rollouts) line(r *rollout, line []byte) error {
	var l rolloutLine
	if json.Unmarshal(line, &l) != nil || l.Timestamp.Before(f.began.Truncate(time.Millisecond)) {
		return nil
	}
	p := l.Payload
	switch kind, call := strings.CutSuffix(p.Type, "_call"); {
	case l.Type == "session_meta":
		f.log.base.SDKVersion = p.Version
	case l.Type == "response_item" && call:
		start := event{EventType: agentlog.ToolCallStarted, ToolCallID: cmp.Or(p.CallID, p.ID), Tool: cmp.Or(p.Name, kind)}
		if start.ToolCallID == "" {
			return nil
		}
		if p.CallID == "" { // the model's service made the call, and it is over, as a search
			return f.report(func([]event) []event { return []event{start, completed(start)} })
		}
		r.open = append(r.open, start)
		return f.report(func([]event) []event { return []event{start} })
	case l.Type == "response_item" && strings.HasSuffix(p.Type, "_output"):
		for i, o := range r.open {
			if o.ToolCallID == p.CallID {
				r.open = append(r.open[:i], r.open[i+1:]...)
				return f.report(func([]event) []event { return []event{completed(o)} })
			}
		}
	case l.Type == "event_msg" && (p.Type == "task_complete" || p.Type == "turn_aborted"):
		return f.endOf(r)
	}
	return nil
}

func completed(call event) event {
	call.EventType = agentlog.ToolCallCompleted
	return call
}

// endOf reports the end of a session's calls that are still open.
func (f *rollouts) endOf(r *rollout) error {
	if len(r.open) == 0 {
		return nil
	}
	var ends []event
	for _, o := range r.open {
		ends = append(ends, completed(o))
	}
	r.open = nil
	return f.report(func([]event) []event { return ends })
}

// end reports the end of all open calls, and of the agent.
func (f *rollouts) end() error {
	var errs []error
	for _, r := range f.at {
		errs = append(errs, f.endOf(r))
	}
	return errors.Join(append(errs, f.report(just(agentlog.RunFinished, "", "")))...)
}
