package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxLine limits a message from either side, in bytes.
const maxLine = 64 << 20

// lockedWriter writes whole lines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *lockedWriter) line(b []byte) error {
	if b == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.w.Write(append(b, '\n'))
	return err
}

// eachLine calls f with each line, without its newline, until the end of r or until f returns an error. A last line
// without a newline counts.
func eachLine(r io.Reader, f func(line []byte) error) error {
	br := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return fmt.Errorf("a message is larger than %d bytes", maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && err != io.EOF:
			return err
		}
		if text := bytes.TrimSuffix(line, []byte("\n")); len(bytes.TrimSpace(text)) > 0 {
			if ferr := f(text); ferr != nil {
				return ferr
			}
		}
		if err == io.EOF {
			return nil
		}
		line = line[:0]
	}
}
