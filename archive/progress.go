package archive

import (
	"context"
	"io"
)

type progressKey struct{}

// WithProgress returns a context with which reading or sealing a bundle reports its progress: done of total bytes of
// the file that is read, or of the members that are sealed. onProgress is called often, by one goroutine at a time for
// a bundle, and must return at once. Each pass over a bundle begins at 0.
func WithProgress(ctx context.Context, onProgress func(done, total int64)) context.Context {
	if onProgress == nil {
		return ctx
	}
	return context.WithValue(ctx, progressKey{}, onProgress)
}

// progressOf returns the function of [WithProgress]; nil if there is none.
func progressOf(ctx context.Context) func(done, total int64) {
	onProgress, _ := ctx.Value(progressKey{}).(func(done, total int64))
	return onProgress
}

// reportProgress returns a writer to w that reports progress towards total bytes, if ctx asks for that.
func reportProgress(ctx context.Context, w io.WriteCloser, total int64) io.WriteCloser {
	if onProgress := progressOf(ctx); onProgress != nil {
		return &progressWriter{WriteCloser: w, onProgress: onProgress, total: total}
	}
	return w
}

type progressWriter struct {
	io.WriteCloser
	onProgress  func(done, total int64)
	done, total int64
}

func (t *progressWriter) Write(b []byte) (int, error) {
	n, err := t.WriteCloser.Write(b)
	t.done += int64(n)
	t.onProgress(min(t.done, t.total), t.total)
	return n, err
}
