package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

func TestAKilledRecorderIsAlwaysRecovered(t *testing.T) {
	layertest.Host(t)
	base := t.TempDir()
	start := time.Now()
	if n := killAfter(t, childCmd("record", filepath.Join(base, "whole"), filepath.Join(base, "whole.tar.gz")),
		time.Minute); n != 300 {
		t.Fatalf("undisturbed, the child wrote %d lines", n)
	}
	mustBeSound(t, filepath.Join(base, "whole.tar.gz"))
	whole := time.Since(start)
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	how := map[string]int{}
	for i := range rounds {
		dir, output := filepath.Join(base, fmt.Sprint("spool", i)), filepath.Join(base, fmt.Sprint(i, ".tar.gz"))
		acked := killAfter(t, childCmd("record", dir, output), time.Duration(rand.Int64N(int64(whole)*5/4)))
		if _, err := os.Stat(output); err == nil {
			mustBeSound(t, output)
		}
		list, err := ListSpools(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 {
			// A recover that is killed too changes nothing.
			killAfter(t, childCmd("recover", dir, ""), time.Duration(rand.Int64N(int64(whole))))
			if _, err := os.Stat(output); err == nil {
				mustBeSound(t, output)
			}
			if _, err := Recover(context.Background(), dir, testRunID, RecoverOptions{}); err != nil &&
				!errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		_, err = os.Stat(output)
		switch {
		case err != nil && acked == 0:
			how["never began"]++
			continue
		case err != nil:
			t.Fatalf("%d lines were written, and there is no bundle: %v", acked, err)
		}
		r := mustBeSound(t, output)
		if r.Lines[schema.EventsPath] < uint64(acked) {
			t.Errorf("%d lifecycle lines were written, %d are in the bundle", acked, r.Lines[schema.EventsPath])
		}
		how[documentsOf(t, output).Result.Outcome]++
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
		if _, err := os.Stat(output + ".tmp"); err == nil {
			t.Errorf("%s.tmp is left behind", output)
		}
	}
	t.Logf("ends: %v", how)
}

func TestALiveRunIsNotRecovered(t *testing.T) {
	s, dir := newSpool(t, testRun(t))
	record(t, s, 10)
	if _, err := Recover(context.Background(), dir, testRunID, RecoverOptions{}); !errors.Is(err, ErrAlive) {
		t.Errorf("recover of a live run: %v", err)
	}
	list, err := ListSpools(dir)
	if err != nil || len(list) != 1 || !list[0].Alive || list[0].RunID != testRunID {
		t.Errorf("list %+v, %v", list, err)
	}
	s.Close()
	if list, _ = ListSpools(dir); len(list) != 1 || list[0].Alive {
		t.Errorf("list after the end %+v", list)
	}
}

func TestOfTwoRecoversOneWins(t *testing.T) {
	s, dir := newSpool(t, testRun(t))
	record(t, s, 20000)
	s.Close()
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { _, errs[i] = Recover(context.Background(), dir, testRunID, RecoverOptions{}) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, ErrAlive) && !errors.Is(err, os.ErrNotExist):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d won: %v", won, errs)
	}
	mustBeSound(t, s.run.Output)
}

// A lock on a spool that was sealed meanwhile is worth nothing: without this
// the late one would replace a good bundle by an empty one.
func TestALockOnAMovedSpoolIsNoLock(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a", schema.RunPath)
	os.Mkdir(filepath.Dir(name), 0o700)
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !sameFile(f, name) {
		t.Error("a file is not itself")
	}
	if err := os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if sameFile(f, name) {
		t.Error("a file that was moved away is still there")
	}
	os.Mkdir(filepath.Dir(name), 0o700)
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if sameFile(f, name) {
		t.Error("a new file of the name is the old one")
	}
}

// A run that was over when its recorder died is sealed as it is.
func TestAFinishedRunIsRecoveredWhole(t *testing.T) {
	s, dir := newSpool(t, testRun(t))
	record(t, s, 100)
	s.Close()
	sealed, err := Recover(context.Background(), dir, testRunID, RecoverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := sealSample(t, "a.tar.gz", 100).Identity; sealed.Identity != want || len(sealed.Notes) != 0 {
		t.Errorf("recovered %+v, an undisturbed seal gives %s", sealed, want)
	}
}

func TestATornLineIsCutAndABadOneReported(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(b []byte) []byte
		lines uint64
		code  Code // of the bundle; empty: sound
		note  string
	}{
		"half a last line": {func(b []byte) []byte { return b[:len(b)-10] }, 99, "", "torn last line"},
		"zeros after a power cut": {func(b []byte) []byte {
			return append(b, make([]byte, 5000)...)
		}, 100, "", "torn last line of 5000 bytes"},
		"whole lines that never reached the disk": {func(b []byte) []byte {
			return b[:bytes.LastIndexByte(b[:len(b)/2], '\n')+1]
		}, 50, "", "incomplete"},
		"a bad line in the middle": {func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"seq":50,`), []byte(`"seq":xx,`), 1)
		}, 100, CodeJSON, "kernel.ndjson:51"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSpool(t, testRun(t))
			record(t, s, 100)
			s.Close()
			file := filepath.Join(s.Dir(), schema.KernelPath)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, c.spoil(b), 0o600); err != nil {
				t.Fatal(err)
			}
			sealed, err := Recover(context.Background(), dir, testRunID, RecoverOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(sealed.Notes, "\n"), c.note) {
				t.Errorf("notes %q do not tell of %q", sealed.Notes, c.note)
			}
			r := verified(t, sealed.Path)
			if r.Lines[schema.KernelPath] != c.lines {
				t.Errorf("%d lines", r.Lines[schema.KernelPath])
			}
			if c.code == "" {
				mustBeSound(t, sealed.Path)
			} else if r.OK() || r.Problems[0].Code != c.code {
				t.Errorf("problems %v", r.Problems)
			}
			if d := documentsOf(t, sealed.Path); d.Result.Outcome != schema.OutcomeIncomplete ||
				*d.Result.ErrorSource != schema.SourceRunner {
				t.Errorf("result %+v", d.Result)
			}
		})
	}
}

func TestWhatCannotBeRecoveredStays(t *testing.T) {
	dir := t.TempDir()
	spool := filepath.Join(dir, testRunID)
	os.MkdirAll(spool, 0o700)
	os.WriteFile(filepath.Join(spool, schema.RunPath), nil, 0o600) // a power cut before the first sync
	if _, err := Recover(context.Background(), dir, testRunID, RecoverOptions{}); err == nil ||
		!strings.Contains(err.Error(), "had not begun") {
		t.Errorf("error %v", err)
	}
	if list, err := ListSpools(dir); err != nil || len(list) != 1 || list[0].Damage == "" {
		t.Errorf("list %+v, %v", list, err)
	}
	if _, err := Recover(context.Background(), dir, "../x", RecoverOptions{}); err == nil {
		t.Error("a run id that climbs was taken")
	}
	if _, err := Recover(context.Background(), dir, "run_none", RecoverOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if list, err := ListSpools(filepath.Join(dir, "none")); err != nil || len(list) != 0 {
		t.Errorf("list %+v, %v", list, err)
	}
}

// Runs with one output leave a bundle each, whoever recovers them.
func TestARecoveredBundleDoesNotReplaceThatOfAnotherRun(t *testing.T) {
	dir, output := t.TempDir(), filepath.Join(t.TempDir(), "b.tar.gz")
	var paths []string
	for _, id := range []string{"run_a", "run_b", "run_c"} {
		run := testRun(t)
		run.RunID, run.Output = id, output
		s, err := CreateSpool(dir, run)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Append(schema.EventsPath, func(b []byte, _ uint64) []byte {
			return fmt.Appendf(b, `{"schema":"assay.runner.event.v0","run_id":%q,"seq":0,"type":"run_started","t_ns":0,"agent_shim":"none","command":["x"],"env_keys":[],"window_elapsed_ms":0}`, id)
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		sealed, err := Recover(context.Background(), dir, id, RecoverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, filepath.Base(sealed.Path))
	}
	for i, id := range []string{"run_a", "run_b", "run_c"} {
		if r := mustBeSound(t, filepath.Join(filepath.Dir(output), paths[i])); r.RunID != id {
			t.Errorf("%s is of %s, want %s", paths[i], r.RunID, id)
		}
	}
	if want := []string{"b.tar.gz", "b-run_b.tar.gz", "b-run_c.tar.gz"}; fmt.Sprint(paths) != fmt.Sprint(want) {
		t.Errorf("recovered to %v, want %v", paths, want)
	}
}
