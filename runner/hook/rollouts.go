package hook

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// between is the time between two polls of the rollout files.
const between = 20 * time.Millisecond

// Follow reports the tool calls of Codex to the run that the environment names. It reads them from the rollout files
// that every Codex, interactive or not, writes about its sessions. It skips existing lines, and continues until stop
// is called. Call stop once; its error says what could not be reported.
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
	// listed is when the directories were last read. Directories that have not changed since are skipped.
	listed time.Time
	at     map[string]*rollout // by path
}

// rollout is one file: how far it was read, and its open calls.
type rollout struct {
	file   os.FileInfo // when it was last read; nil: never
	offset int64
	torn   []byte // the start of an incomplete line
	inside bool   // offset is inside a line that is skipped
	middle bool   // the first line may lack its start, which was there before the run
	told   map[string]bool
	open   []event
}

// changed reports whether a file has something new to read.
func (r *rollout) changed(now os.FileInfo) bool { return r.replaced(now) || now.Size() > r.offset }

// replaced reports whether the file was replaced or cut.
func (r *rollout) replaced(now os.FileInfo) bool {
	return r.file != nil && (!os.SameFile(r.file, now) || now.Size() < r.offset)
}

// maxSessions limits how many older sessions are watched, the latest ones, since somebody may resume one.
const maxSessions = 256

// known records the existing sessions, and the sizes of their files.
func (f *rollouts) known() {
	old, _ := filepath.Glob(filepath.Join(f.dir, "*", "*", "*", "rollout-*.jsonl")) // sorted by name, and so by time
	for _, path := range old[max(0, len(old)-maxSessions):] {
		if info, err := os.Lstat(path); err == nil {
			f.at[path] = &rollout{file: info, offset: info.Size(), middle: true}
		}
	}
}

// look reads what is new. Codex names a day's directory by the local date. look opens a directory only if it has
// changed, since the run records opens, but not stats.
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
		if err == nil && info.Mode().IsRegular() && r.changed(info) {
			errs = append(errs, f.read(path, r))
		}
	}
	return errors.Join(errs...)
}

// read reports the calls in the lines that were added to a file. It reads a replaced or cut file from its start. The
// errors name the lines that it could not use.
func (f *rollouts) read(path string, r *rollout) error {
	file, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if r.replaced(info) {
		r.offset, r.torn, r.inside, r.middle = 0, nil, false, false
	}
	r.file = info
	var errs []error
	buf := make([]byte, 64<<10)
	for {
		n, err := file.ReadAt(buf, r.offset)
		r.offset += int64(n)
		for part := range bytes.Lines(buf[:n]) {
			if err := f.part(r, part); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", path, err))
			}
		}
		if err == io.EOF || n == 0 {
			return errors.Join(errs...)
		}
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
}

// part handles a part of a line, which may be its end.
func (f *rollouts) part(r *rollout, part []byte) error {
	ends := bytes.HasSuffix(part, []byte{'\n'})
	if !r.inside {
		r.torn = append(r.torn, part...)
	}
	if !ends && len(r.torn) > maxEvent {
		r.torn, r.inside = nil, true
		return fmt.Errorf("a line is larger than %d bytes, and was skipped", maxEvent)
	}
	if !ends {
		return nil
	}
	line, skip := r.torn, r.inside || r.middle && !json.Valid(r.torn)
	r.torn, r.inside, r.middle = nil, false, false
	if skip {
		return nil
	}
	return f.line(r, line)
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

// line reports the call in a line, if there is one. A session that continues another one starts with the other's
// lines and their times; line skips those.
func (f *rollouts) line(r *rollout, line []byte) error {
	var l rolloutLine
	if len(bytes.TrimSpace(line)) > 0 && !json.Valid(line) {
		return errors.New("a line is not JSON, such as one that was never written to its end")
	}
	if json.Unmarshal(line, &l) != nil || l.Timestamp.Before(f.began.Truncate(time.Millisecond)) {
		return nil
	}
	p := l.Payload
	switch kind, call := strings.CutSuffix(p.Type, "_call"); {
	case l.Type == "session_meta":
		f.log.base.SDKVersion = p.Version
	case l.Type == "response_item" && call:
		start := event{EventType: agentlog.ToolCallStarted, ToolCallID: cmp.Or(p.CallID, p.ID),
			Tool: cmp.Or(p.Name, kind)}
		if start.ToolCallID == "" || r.told[start.ToolCallID] { // the file was rewritten
			return nil
		}
		if r.told == nil {
			r.told = map[string]bool{}
		}
		r.told[start.ToolCallID] = true
		if p.CallID == "" { // the model's service made the call, such as a search, and it has ended
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

// endOf reports the end of a session's open calls.
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
	for path, r := range f.at {
		if err := f.line(r, r.torn); err != nil && !r.middle { // it may only lack its newline
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		errs = append(errs, f.endOf(r))
	}
	return errors.Join(append(errs, f.report(just(agentlog.RunFinished, "", "")))...)
}
