package archive

import (
	"context"
	"path/filepath"
	"testing"
)

// TestProgressMovesWithinOneBundle follows the bytes of a bundle that is sealed,
// verified and read.
func TestProgressMovesWithinOneBundle(t *testing.T) {
	sealed := sealSample(t, "a.tar.gz", 20_000)
	read := func(ctx context.Context) error {
		r, err := Open(sealed.Path)
		if err != nil {
			return err
		}
		for _, err := range r.Lines(ctx, "layers/kernel.ndjson") {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for name, work := range map[string]func(context.Context) error{
		"verify": func(ctx context.Context) error { _, err := Verify(ctx, sealed.Path); return err },
		"read":   read,
		"seal": func(ctx context.Context) error {
			run := testRun(t)
			run.Output = filepath.Join(t.TempDir(), "b.tar.gz")
			spool, _ := newSpool(t, run)
			record(t, spool, 20_000)
			_, err := spool.Seal(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps, last := 0, int64(-1)
			err := work(WithProgress(context.Background(), func(done, total int64) {
				if done < last || done > total {
					t.Fatalf("%d of %d after %d", done, total, last)
				}
				if done > last {
					steps++
				}
				last = done
			}))
			if err != nil {
				t.Fatal(err)
			}
			if steps < 3 {
				t.Errorf("it moved %d times", steps)
			}
		})
	}
}
