package stdio

import (
	"fmt"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// cast writes an asciicast v3 (https://docs.asciinema.org/manual/asciicast/v3/): a header line, then one array per
// event, with the time since the previous event. Events are "o" (output), "r" (resize) and "x" (exit status). "i"
// (input) is never written, since it would contain passwords typed without echo.
//
// Its text is UTF-8. A character that is split between two reads is joined; a byte that is not UTF-8 becomes \xff,
// so such output is not kept exactly. Config.CaptureBytes limits the file, in whole lines. Captured bytes are bytes
// of output, before they became JSON. After a failed write the last line may be incomplete.
type cast struct {
	mu    sync.Mutex
	cap   capture        // kept counts bytes of output
	size  int64          // bytes of the file
	tail  []byte         // the start of an incomplete character
	clean *redact.Pieces // removes secrets; nil leaves them
	owed  int            // bytes of output without an event yet
	last  time.Time
	cols  int
	rows  int
	bytes int64 // bytes of output so far
	exit  string
	head  castHeader // written before the first event
	full  bool       // a line did not fit: only the exit event may follow
	// broken: a write failed, and nothing may follow.
	broken bool
}

// exitRoom is the space below the limit that is reserved for the exit event.
const exitRoom = 48

type castHeader struct {
	Version   int      `json:"version"`
	Term      castTerm `json:"term"`
	Timestamp int64    `json:"timestamp"`
}

type castTerm struct {
	Cols int    `json:"cols"`
	Rows int    `json:"rows"`
	Type string `json:"type,omitempty"`
}

// begin sets the header. Intervals count from here.
func (c *cast) begin(cols, rows int, term string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.cols, c.rows = now, cols, rows
	if c.cap.cfg.Pieces != nil {
		c.clean = c.cap.cfg.Pieces(c.cap.member)
	}
	c.head = castHeader{3, castTerm{cols, rows, term}, now.Unix()}
}

func (c *cast) output(p []byte, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += int64(len(p))
	c.owed += len(p)
	text := append(c.tail, c.clean.Next(p)...)
	cut := len(text) - partialRune(text)
	c.tail = append([]byte(nil), text[cut:]...)
	c.event(now, "o", string(text[:cut]), exitRoom)
}

func (c *cast) resize(cols, rows int, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cols == c.cols && rows == c.rows {
		return
	}
	c.cols, c.rows = cols, rows
	c.event(now, "r", fmt.Sprintf("%dx%d", cols, rows), exitRoom)
}

func (c *cast) setExit(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exit = strconv.Itoa(code)
}

func (c *cast) finish(now time.Time) *schema.Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.event(now, "o", string(append(c.tail, c.clean.End()...)), exitRoom)
	c.tail = nil
	if c.size > 0 {
		c.event(now, "x", c.exit, 0)
	}
	return c.cap.finish(c.bytes)
}

// event writes one event. An output event covers the bytes in owed.
func (c *cast) event(now time.Time, code, data string, room int64) {
	if data == "" {
		return
	}
	n := 0
	if code == "o" {
		n, c.owed = c.owed, 0
	}
	// Rounded intervals must add up to the true time.
	d := now.Sub(c.last).Round(time.Microsecond)
	c.last = c.last.Add(d)
	if c.size == 0 {
		c.line(c.head, 0, room)
	}
	interval := json.Number(strconv.FormatFloat(d.Seconds(), 'f', 6, 64))
	c.line([]any{interval, code, data}, n, room)
}

// line appends v unless fewer than room bytes would then be free.
func (c *cast) line(v any, n int, room int64) {
	if c.cap.done && room > 0 || c.broken {
		return
	}
	b, err := schema.Line(v)
	if err == nil {
		if c.full = c.full || c.size+int64(len(b))+room > c.cap.cfg.CaptureBytes; c.full && room > 0 {
			if n > 0 {
				c.cap.truncate()
			}
			return
		}
		_, err = c.cap.append(b)
	}
	if err != nil {
		c.broken = true
		c.cap.fail(err)
		return
	}
	c.size += int64(len(b))
	c.cap.kept += int64(n)
}

// partialRune returns how many bytes at the end of p start an incomplete character.
func partialRune(p []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if tail := p[len(p)-i:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return i
		}
	}
	return 0
}
