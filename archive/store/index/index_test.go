package index

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
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
	x, err := Open(t.Context(), dir, "1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func known(stamp, id string) store.Known {
	one := 1
	return store.Known{Stamp: stamp, Entry: store.Entry{
		RunID: id, Bytes: 7, Identity: "sha256:0", StartedAt: time.Unix(1, 5).UTC(), Command: []string{"a\xff"},
		Labels: map[string]string{"k": "v"}, Outcome: "exited", ExitCode: &one, Damage: "why",
	}, Facts: []byte(`{"x":"` + id + `"}`), Lists: []byte(`{"z":[]}`)}
}

// What one process remembers, the next one knows, if it is of the same version.
func TestWhatIsRemembered(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	first := opened(t, dir)
	a, b := known("1", "a"), known("2", "b")
	b.Lists = make([]byte, maxLists+1)
	if err := first.Update(ctx, map[string]store.Known{"a.tar.gz": a, "b.tar.gz": b, "c.tar.gz": a}, nil); err != nil {
		t.Fatal(err)
	}
	if err := first.Update(ctx, nil, []string{"c.tar.gz"}); err != nil {
		t.Fatal(err)
	}
	second := opened(t, dir)
	got, err := second.Known(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]store.Known{"a.tar.gz": a, "b.tar.gz": b}
	for name, k := range want {
		k.Entry.Command, k.Lists = []string{"a\ufffd"}, nil // as far as it is text
		want[name] = k
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, c := range map[string]struct {
		file, stamp string
		want        []byte
	}{
		"of a bundle":                   {"a.tar.gz", "1", a.Lists},
		"of a file that has changed":    {"a.tar.gz", "2", nil},
		"that are too large to be kept": {"b.tar.gz", "2", nil},
		"of a bundle that is not known": {"c.tar.gz", "1", nil},
	} {
		if lists, err := second.Lists(ctx, c.file, c.stamp); err != nil || !bytes.Equal(lists, c.want) {
			t.Errorf("the lists %s: %.20q, %v", name, lists, err)
		}
	}
	third, err := Open(ctx, dir, "2")
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if got, err := third.Known(ctx); err != nil || len(got) != 0 {
		t.Errorf("another version knows %d bundles, %v", len(got), err)
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
			x, err := Open(context.Background(), dir, "1")
			if err != nil {
				t.Error(err)
				return
			}
			defer x.Close()
			name := string(rune('a'+i)) + ".tar.gz"
			if err := x.Update(context.Background(), map[string]store.Known{name: known("1", name)},
				nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := opened(t, dir).Known(t.Context()); err != nil || len(got) != 8 {
		t.Errorf("%d entries, %v", len(got), err)
	}
}

func TestWhereOthersCanWrite(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir, "1"); !errors.Is(err, errUnsafe) {
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
