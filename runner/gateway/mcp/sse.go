package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// event is a server-sent event (WHATWG HTML, section 9.2).
type event struct {
	id    string
	data  []byte // nil if it has none
	retry time.Duration
}

// eachEvent calls f with each event of a stream, until the stream ends or f returns an error. An incomplete event at
// the end does not count.
func eachEvent(r io.Reader, f func(event) error) error {
	br := bufio.NewReaderSize(r, 64<<10)
	var e event
	size := 0
	for {
		line, err := readLine(br, &size)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if len(line) == 0 {
			if err := f(e); err != nil {
				return err
			}
			e, size = event{}, 0
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			e.id = string(value)
		case "data":
			if e.data != nil {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
				e.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// readLine reads a line that ends in LF or CRLF. size counts the bytes of the event.
func readLine(br *bufio.Reader, size *int) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		if *size += len(part); *size > maxLine {
			return nil, fmt.Errorf("a message is larger than %d bytes", maxLine)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimRight(line, "\r\n"), err
	}
}

// appendEvent appends an event with one line of data, or with none.
func appendEvent(dst []byte, id string, data []byte) []byte {
	dst = fmt.Appendf(dst, "id: %s\ndata: ", id)
	dst = append(dst, data...)
	return append(dst, "\n\n"...)
}

// oneLine returns a JSON text on one line. JSON has line breaks only between its tokens.
func oneLine(text []byte) []byte {
	if !bytes.ContainsAny(text, "\r\n") {
		return bytes.TrimSpace(text)
	}
	return bytes.TrimSpace(bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, text))
}

// wait is how long to wait before the stream is resumed.
func (e event) wait(now time.Duration) time.Duration {
	if e.retry == 0 {
		return now
	}
	return min(max(e.retry, resumeLeast), resumeMost)
}
