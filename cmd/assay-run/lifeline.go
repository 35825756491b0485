package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/assay-run/assay-run/cmd/internal/console"
)

// lifeline is the value of --lifeline: a descriptor whose other end the starter of the run holds. When that end
// is closed, also by the death of its holder, the run is cancelled. The zero value means none.
type lifeline struct{ file *os.File }

func (l *lifeline) String() string {
	if l.file == nil {
		return ""
	}
	return strconv.FormatUint(uint64(l.file.Fd()), 10)
}

func (*lifeline) Type() string { return "FD" }

func (l *lifeline) Set(s string) error {
	fd, err := strconv.ParseUint(s, 10, 16)
	if err != nil || fd < 3 {
		return fmt.Errorf("%q is not a descriptor from 3 on", s)
	}
	l.file = os.NewFile(uintptr(fd), "lifeline")
	return nil
}

// check reports what is wrong with the descriptor. The command does not inherit it.
func (l *lifeline) check() error {
	if l.file == nil {
		return nil
	}
	info, err := l.file.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("--lifeline %s: no such descriptor is open here", l)
	case info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0:
		err = fmt.Errorf("--lifeline %s: it is neither a pipe nor a socket", l)
	default:
		notInherited(l.file)
		return nil
	}
	return console.WithHint(err,
		"pass the reading end of a pipe, and hold the other end for as long as the run may take")
}

var errLifeline = errors.New("the lifeline was closed: whoever started the run is gone")

// hold returns a context that ends when the other end is closed.
func (l *lifeline) hold(ctx context.Context) context.Context {
	if l.file == nil {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, l.file) // after an error, too, nobody is known to hold it
		cancel(errLifeline)
	}()
	return ctx
}
