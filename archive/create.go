package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// ErrExists is returned by [CreateSpool], wrapped with the path, when a spool
// of that run id is there already: a live run's, or one to recover.
var ErrExists = errors.New("a spool of this run exists")

// DefaultSpoolDir is $XDG_STATE_HOME/assay-run/spool, or the same below
// ~/.local/state, where ~ is $HOME or else, as in a service of systemd's, what the
// password database says. A relative XDG_STATE_HOME is ignored, as the base
// directory specification asks.
func DefaultSpoolDir() (string, error) {
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "assay-run", "spool"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		if u, uerr := user.Current(); uerr == nil && filepath.IsAbs(u.HomeDir) {
			home, err = u.HomeDir, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("find the spool directory: %w (set XDG_STATE_HOME or name one with --spool-dir)", err)
	}
	return filepath.Join(home, ".local", "state", "assay-run", "spool"), nil
}

// CreateSpool is [StartSpool], and waits until the spool is on disk.
func CreateSpool(dir string, run schema.Run) (*Spool, error) {
	s, err := StartSpool(dir, run)
	if err != nil {
		return nil, err
	}
	if err := s.OnDisk(); err != nil {
		return nil, errors.Join(err, s.Close(), os.RemoveAll(s.dir))
	}
	return s, nil
}

// StartSpool makes dir/<run.RunID>/ (0700) and puts run.json in it. dir is created when
// missing. The spool appears under its name complete and locked, so a concurrent recover
// never meets half of one. It is on its way to the disk: see [Spool.OnDisk]. The error is
// [ErrExists] when the run id is taken.
func StartSpool(dir string, run schema.Run) (_ *Spool, err error) {
	if !safeRunID(run.RunID) {
		return nil, fmt.Errorf("create spool: run id %q is not 1 to 128 ASCII letters, digits, '_' or '-'", run.RunID)
	}
	if run.Output == "" || !filepath.IsAbs(run.Output) {
		return nil, fmt.Errorf("create spool of %s: output %q is not an absolute path", run.RunID, run.Output)
	}
	run.Schema = schema.RunV0
	doc, err := schema.Document(run)
	if err != nil {
		return nil, fmt.Errorf("create spool of %s: %w", run.RunID, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create spool directory: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("spool directory: %w", err)
	}
	if err := checkSpoolDir(dir); err != nil {
		return nil, fmt.Errorf("spool directory: %w", err)
	}
	sweep(dir)
	final := filepath.Join(dir, run.RunID)
	tmp, err := os.MkdirTemp(dir, newPrefix)
	if err != nil {
		return nil, fmt.Errorf("create spool of %s: %w", run.RunID, err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(tmp)
		}
	}()
	lock, err := os.OpenFile(filepath.Join(tmp, schema.RunPath), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create spool of %s: %w", run.RunID, err)
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := flock(lock); err != nil {
		return nil, fmt.Errorf("lock spool %s: %w (the spool needs a file system with locks: choose one with --spool-dir)", final, err)
	}
	if _, err := lock.Write(doc); err != nil {
		return nil, fmt.Errorf("write %s: %w", filepath.Join(final, schema.RunPath), err)
	}
	reserved := reserveSpace(filepath.Join(tmp, reserveName), reserveBytes) == nil
	// Renaming onto an existing spool fails, since no spool is empty.
	if err := os.Rename(tmp, final); err != nil {
		if errors.Is(err, os.ErrExist) || isNotEmpty(err) {
			return nil, fmt.Errorf("create spool %s: %w", final, ErrExists)
		}
		return nil, fmt.Errorf("create spool of %s: %w", run.RunID, err)
	}
	s := emptySpool(final, run, lock)
	s.reserve = reserved
	s.done.Go(s.flusher)
	s.disk.Go(func() {
		// The first of these commits the whole transaction on journalling file
		// systems; the others then cost little.
		if err := errors.Join(lock.Sync(), syncDir(final), syncDir(dir)); err != nil {
			s.diskErr = fmt.Errorf("sync spool %s: %w", final, err)
		}
	})
	return s, nil
}

// OnDisk waits until the spool and its run.json are on disk, so that a run of which
// anything is recorded can be recovered. Call it before a command starts.
func (s *Spool) OnDisk() error {
	s.disk.Wait()
	return s.diskErr
}

// reserveSpace makes a file of n bytes that are on its disk.
func reserveSpace(name string, n int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(allocate(f, n), f.Close())
}

// emptySpool has no line yet, and its flusher does not run.
func emptySpool(dir string, run schema.Run, lock *os.File) *Spool {
	s := &Spool{
		dir: dir, run: run, lock: lock,
		layers: make(map[string]*layer, len(schema.Layers)), members: map[string]*memberFile{}, documents: map[string]*document{},
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	for _, p := range schema.Layers {
		s.layers[p] = &layer{spool: s, path: p, ledger: newLedger(), batched: p == schema.KernelPath, final: p == schema.EventsPath}
	}
	return s
}

// readRun decodes a spool's run.json.
func readRun(f io.Reader) (run schema.Run, err error) {
	data, err := io.ReadAll(io.LimitReader(f, maxDocument))
	if err != nil {
		return run, err
	}
	if err := json.Unmarshal(data, &run); err != nil {
		return run, err
	}
	if run.Schema != schema.RunV0 || !safeRunID(run.RunID) {
		return run, fmt.Errorf("not a %s document", schema.RunV0)
	}
	return run, nil
}
