package render

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json/v1"
)

// Playback says how a recording is played. The zero value plays it at the recorded speed.
type Playback struct {
	// Speed is how many times faster than recorded; 0 means 1.
	Speed float64
	// MaxPause shortens longer pauses, before Speed is applied; 0 means no limit.
	MaxPause time.Duration
	// Wait waits before an event, and returns an error to stop playing. Nil means sleep.
	Wait func(context.Context, time.Duration) error
	// Size is called with the recorded terminal's size at the start and after each change. It may be nil.
	Size func(cols, rows int)
}

var errRecording = errors.New("not a recording of a terminal")

// maxLine limits a line of a recording, in bytes.
const maxLine = 16 << 20

// Play plays an asciicast of version 3 to w, which should be a terminal of the recorded size. It returns the recorded
// exit code, "" if there is none. The recording ends at an incomplete line.
func Play(ctx context.Context, w io.Writer, recording io.Reader, o Playback) (exit string, err error) {
	lines := bufio.NewScanner(recording)
	lines.Buffer(nil, maxLine)
	var head struct {
		Version int
		Term    struct{ Cols, Rows int }
	}
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &head) != nil || head.Version != 3 {
		return "", errors.Join(errRecording, lines.Err())
	}
	size := func(cols, rows int) {
		if o.Size != nil && cols > 0 && rows > 0 {
			o.Size(cols, rows)
		}
	}
	size(head.Term.Cols, head.Term.Rows)
	if o.Wait == nil {
		o.Wait = sleep
	}
	screen := &screen{w: w}
	for lines.Scan() {
		if len(lines.Bytes()) == 0 || lines.Bytes()[0] == '#' {
			continue
		}
		pause, code, text, ok := castEvent(lines.Bytes())
		if !ok {
			break
		}
		if err := o.Wait(ctx, o.pause(pause)); err != nil {
			return "", errors.Join(err, screen.end())
		}
		switch code {
		case "o":
			if err := screen.write(text); err != nil {
				return "", err
			}
		case "r":
			var cols, rows int
			if n, _ := fmt.Sscanf(text, "%dx%d", &cols, &rows); n == 2 {
				size(cols, rows)
			}
		case "x":
			exit = text
		}
	}
	return exit, errors.Join(lines.Err(), screen.end())
}

// castEvent decodes a line of an asciicast 3: an interval in seconds, a code and its text.
func castEvent(line []byte) (pause float64, code, text string, ok bool) {
	var fields []json.RawMessage
	if json.Unmarshal(line, &fields) != nil || len(fields) != 3 {
		return 0, "", "", false
	}
	err := errors.Join(json.Unmarshal(fields[0], &pause), json.Unmarshal(fields[1], &code),
		json.Unmarshal(fields[2], &text))
	return pause, code, text, err == nil && pause >= 0
}

// pause returns the time to wait for a recorded interval.
func (o *Playback) pause(seconds float64) time.Duration {
	const longest = 24 * 60 * 60 // protects against hostile recordings
	if o.MaxPause > 0 {
		seconds = min(seconds, o.MaxPause.Seconds())
	}
	if o.Speed > 0 {
		seconds /= o.Speed
	}
	return time.Duration(min(seconds, longest) * float64(time.Second))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
