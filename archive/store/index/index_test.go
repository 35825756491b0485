package index

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/archive/store"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Of(m).Run()) }

func opened(t *testing.T, dir string) *Index {
	t.Helper()
	x, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func entry(stamp, id string) store.Indexed {
	one := 1
	return store.Indexed{Stamp: stamp, Entry: store.Entry{
		RunID: id, Bytes: 7, Identity: "sha256:0", StartedAt: time.Unix(1, 5).UTC(), Command: []string{"a\xff"},
		Labels: map[string]string{"k": "v"}, Outcome: "exited", ExitCode: &one, Damage: "why",
	}}
}

// What one process remembers, the next one knows.
func TestWhatIsRemembered(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	first := opened(t, dir)
	a, b := entry("1", "a"), entry("2", "b")
	if err := first.Update(ctx, map[string]store.Indexed{"a.tar.gz": a, "b.tar.gz": b, "c.tar.gz": a},
		nil); err != nil {
		t.Fatal(err)
	}
	if err := first.Update(ctx, nil, []string{"c.tar.gz"}); err != nil {
		t.Fatal(err)
	}
	second := opened(t, dir)
	got, err := second.Entries(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a.Entry.Command, b.Entry.Command = []string{"a\ufffd"}, []string{"a\ufffd"} // as far as it is text
	if diff := cmp.Diff(map[string]store.Indexed{"a.tar.gz": a, "b.tar.gz": b}, got); diff != "" {
		t.Error(diff)
	}

	// Only what a query has verified has facts, and what is listed anew has none until then.
	large := Verified{Indexed: b, Facts: []byte(`{"x":1}`), Lists: make([]byte, maxLists+1)}
	small := Verified{Indexed: a, Facts: []byte(`{"y":1}`), Lists: []byte(`{"z":[]}`)}
	if err := first.Remember(ctx, map[string]Verified{"a.tar.gz": small, "b.tar.gz": large}); err != nil {
		t.Fatal(err)
	}
	large.Lists = nil
	with, err := second.Verified(ctx, true)
	if diff := cmp.Diff(map[string]Verified{"a.tar.gz": small, "b.tar.gz": large}, with); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if err := first.Update(ctx, map[string]store.Indexed{"a.tar.gz": entry("3", "a")}, nil); err != nil {
		t.Fatal(err)
	}
	without, err := second.Verified(ctx, false)
	if names := slices.Collect(maps.Keys(without)); err != nil || !slices.Equal(names, []string{"b.tar.gz"}) ||
		without["b.tar.gz"].Lists != nil {
		t.Error(err, names)
	}
}

// Several processes that find no index, or one of another version, make one together.
func TestMadeByManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			x, err := Open(context.Background(), dir)
			if err != nil {
				t.Error(err)
				return
			}
			defer x.Close()
			name := string(rune('a'+i)) + ".tar.gz"
			if err := x.Update(context.Background(), map[string]store.Indexed{name: entry("1", name)},
				nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := opened(t, dir).Entries(t.Context()); err != nil || len(got) != 8 {
		t.Errorf("%d entries, %v", len(got), err)
	}
}

func TestWhereOthersCanWrite(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir); !errors.Is(err, errUnsafe) {
		t.Errorf("%v", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(elsewhere, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, Name)); err != nil {
		t.Fatal(err)
	}
	opened(t, dir) // in place of the link
	if info, err := os.Stat(elsewhere); err != nil || info.Size() != 0 {
		t.Errorf("the index was written through a link: %v", err)
	}
}
