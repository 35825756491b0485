package archive

import (
	"context"
	"io"
)

// progressKey is the context key of what WithProgress was given.
type progressKey struct{}

// WithProgress returns a context under which reading a bundle and sealing one
// tell how far they are: done of total bytes of the file that is read, or of the
// members that are sealed. onProgress is called often, by one goroutine at a time for
// one bundle, and must return at once. Each pass over a bundle begins again.
func WithProgress(ctx context.Context, onProgress func(done, total int64)) context.Context {
	if onProgress == nil {
		return ctx
	}
	return context.WithValue(ctx, progressKey{}, onProgress)
}

// progressOf is what onProgress is in [WithProgress], nil without one.
func progressOf(ctx context.Context) func(done, total int64) {
	onProgress, _ := ctx.Value(progressKey{}).(func(done, total int64))
	return onProgress
}

// tell makes what goes to w known as progress towards total bytes, if ctx asks
// for that.
func tell(ctx context.Context, w io.WriteCloser, total int64) io.WriteCloser {
	if onProgress := progressOf(ctx); onProgress != nil {
		return &telling{WriteCloser: w, onProgress: onProgress, total: total}
	}
	return w
}

type telling struct {
	io.WriteCloser
	onProgress  func(done, total int64)
	done, total int64
}

func (t *telling) Write(b []byte) (int, error) {
	n, err := t.WriteCloser.Write(b)
	t.done += int64(n)
	t.onProgress(min(t.done, t.total), t.total)
	return n, err
}
