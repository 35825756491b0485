package store

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// memory is an index in memory.
type memory map[string]Known

func (m memory) Known(context.Context) (map[string]Known, error) { return maps.Clone(m), nil }

func (m memory) Update(_ context.Context, read map[string]Known, gone []string) error {
	maps.Copy(m, read)
	for _, name := range gone {
		delete(m, name)
	}
	return nil
}

func TestEachBundleIsReadOnce(t *testing.T) {
	dir, index := t.TempDir(), memory{}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := func() []os.FileInfo {
		t.Helper()
		all, err := Files(dir)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	var read []string
	opt := Options{Index: index, Stage: func(_, _ int, name string) { read = append(read, name) }}
	reads := func(files []os.FileInfo, want ...string) {
		t.Helper()
		read = nil
		known, err := Read(t.Context(), dir, files, opt)
		slices.Sort(read)
		if err != nil || len(known) != len(files) || !slices.Equal(read, want) {
			t.Errorf("%v is read of %d, %d are known, want %v; %v", read, len(files), len(known), want, err)
		}
		for name, k := range known {
			if k.Entry.Damage == "" { // none of them is a bundle
				t.Errorf("%s is not damaged", name)
			}
		}
	}
	write("a.tar.gz", "a")
	write("b.tar.gz", "b")
	write("other", "c")
	reads(files(), "a.tar.gz", "b.tar.gz")
	reads(files())
	write("c.tar.gz", "c")
	write("b.tar.gz", "longer")
	reads(files()[2:], "c.tar.gz") // a query of some
	reads(files(), "b.tar.gz")
	if err := os.Remove(filepath.Join(dir, "a.tar.gz")); err != nil {
		t.Fatal(err)
	}
	reads(files())
	if names := slices.Sorted(maps.Keys(index)); !slices.Equal(names, []string{"b.tar.gz", "c.tar.gz"}) {
		t.Errorf("the index has %v", names)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, dir, files(), Options{}); err == nil {
		t.Error("it is not interrupted")
	}
}

func TestWhatIsPruned(t *testing.T) {
	now := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	var all []Entry // one a day, the newest first, of 10 bytes each
	for day := range 10 {
		all = append(all, Entry{RunID: fmt.Sprint(day), Bytes: 10, StartedAt: now.AddDate(0, 0, -day)})
	}
	for name, c := range map[string]struct {
		p    Prune
		want string
	}{
		"all but the newest":             {Prune{Keep: 7}, "7 8 9"},
		"what is old":                    {Prune{Older: 6 * 24 * time.Hour}, "7 8 9"},
		"what is old, but for the kept":  {Prune{Keep: 9, Older: 24 * time.Hour}, "9"},
		"what has no room":               {Prune{MaxBytes: 75}, "7 8 9"},
		"no room, but for the kept":      {Prune{Keep: 9, MaxBytes: 10}, "9"},
		"old, or no room":                {Prune{Older: 8 * 24 * time.Hour, MaxBytes: 80}, "8 9"},
		"more than there is":             {Prune{Keep: 20}, ""},
		"nothing asked for lets nothing": {Prune{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var ids []string
			for _, e := range c.p.Select(all, now) {
				ids = append(ids, e.RunID)
			}
			if got := strings.Join(ids, " "); got != c.want {
				t.Errorf("%q goes, want %q", got, c.want)
			}
		})
	}
}
