package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// readEvents reads a stream of server-sent events (HTML standard, section 9.2.6). An event that the end of the stream
// cuts off counts if its data is complete.
func readEvents(body io.Reader, a *answer, d decoder) {
	in := &lines{r: bufio.NewReaderSize(body, 64<<10), at: a.at}
	var kind string
	var data []byte
	have, long := false, false
	dispatch := func() {
		switch {
		case long:
			a.unknown("too_long")
		case have:
			d.event(kind, data)
		}
		kind, data, have, long = "", data[:0], false, false
	}
	for {
		line, err := in.next()
		a.at = in.at
		if err != nil {
			if v := jsontext.Value(data); have && (isDone(data) || v.IsValid(options())) {
				dispatch()
			}
			return
		}
		if len(line) == 0 {
			dispatch()
			continue
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "event":
			kind = string(value)
		case "data":
			if have {
				data = append(data, '\n')
			}
			have = true
			if long = long || in.cut || len(data)+len(value) > maxDocument; !long {
				data = append(data, value...)
			}
		}
	}
}

// done ends a stream of OpenAI's chat completions.
const done = "[DONE]"

// isDone reports whether an event's data ends the stream. Clients ignore what follows the word.
func isDone(data []byte) bool { return bytes.HasPrefix(data, []byte(done)) }

// lines reads the lines of a stream of events. They end with CR LF, LF or CR.
type lines struct {
	r    *bufio.Reader
	at   int64 // bytes read
	buf  []byte
	cut  bool // the last line was longer than maxDocument, and is incomplete
	past bool // the last line ended with CR
}

// next returns the next line, which is valid until the next call. An unfinished line at the end counts as a line. Any
// error ends the lines.
func (l *lines) next() ([]byte, error) {
	l.buf, l.cut = l.buf[:0], false
	for {
		part, err := l.part()
		if l.cut = l.cut || len(l.buf)+len(part) > maxDocument; !l.cut {
			l.buf = append(l.buf, part...)
		}
		switch {
		case err == nil:
			return l.buf, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case len(l.buf) > 0:
			return l.buf, nil
		default:
			return nil, err
		}
	}
}

// part reads to the end of a line, without the end. It may return bufio.ErrBufferFull.
func (l *lines) part() ([]byte, error) {
	if l.past {
		l.past = false
		if b, err := l.r.Peek(1); err == nil && b[0] == '\n' {
			_, _ = l.r.Discard(1)
			l.at++
		}
	}
	if l.r.Buffered() == 0 {
		if _, err := l.r.Peek(1); err != nil {
			return nil, err
		}
	}
	b, _ := l.r.Peek(l.r.Buffered())
	i := bytes.IndexAny(b, "\r\n")
	if i < 0 {
		_, _ = l.r.Discard(len(b))
		l.at += int64(len(b))
		return b, bufio.ErrBufferFull
	}
	l.past = b[i] == '\r'
	_, _ = l.r.Discard(i + 1)
	l.at += int64(i + 1)
	return b[:i], nil
}
