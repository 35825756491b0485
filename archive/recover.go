package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// ErrAlive is returned by [Recover], wrapped with the run id, when the process
// that records the run still lives, or another recover is at work on it.
var ErrAlive = errors.New("the run is alive, or is being recovered by another process")

// ErrNoSpool is returned by [Recover], wrapped, when no run of the id left a spool,
// or it was sealed meanwhile. It is os.ErrNotExist too.
var ErrNoSpool = fmt.Errorf("there is no interrupted run of this id: %w", os.ErrNotExist)

// Interrupted is a spool: of a run that is alive, or of one to recover.
type Interrupted struct {
	RunID     string   `json:"run_id"`
	Dir       string   `json:"dir"`    // the spool's directory
	Output    string   `json:"output"` // where its bundle is meant to go
	StartedAt string   `json:"started_at"`
	Command   []string `json:"command"`
	Alive     bool     `json:"alive"` // a process holds it: not to be recovered
	// Damage says why the spool cannot be recovered, empty when it can.
	Damage string `json:"damage,omitempty"`
}

// ListSpools lists the spools in dir, sorted by run id, and removes what is
// left of spools that were sealed or never begun. A missing dir holds none.
func ListSpools(dir string) ([]Interrupted, error) {
	sweep(dir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list spools: %w", err)
	}
	list := []Interrupted{}
	for _, e := range entries {
		if !e.IsDir() || !safeRunID(e.Name()) {
			continue
		}
		in := Interrupted{RunID: e.Name(), Dir: filepath.Join(dir, e.Name())}
		name := filepath.Join(in.Dir, schema.RunPath)
		if err := foreign(in.Dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			in.Damage = err.Error()
			list = append(list, in)
			continue
		}
		f, err := openRegular(name, os.O_RDONLY)
		if errors.Is(err, os.ErrNotExist) {
			if _, err := os.Stat(in.Dir); err != nil {
				continue // sealed meanwhile
			}
		}
		if err != nil {
			in.Damage = err.Error()
			list = append(list, in)
			continue
		}
		in.Alive = isLocked(name)
		run, err := readRun(f)
		f.Close()
		if err == nil && run.RunID != in.RunID {
			err = fmt.Errorf("it is of run %s", run.RunID)
		}
		if err != nil {
			in.Damage = fmt.Sprintf("%s: %v", name, err)
		}
		in.Output, in.StartedAt, in.Command = run.Output, run.StartedAt, run.Command
		list = append(list, in)
	}
	return list, nil
}

// RecoverOptions say how to recover. The zero value will do.
type RecoverOptions struct {
	// Output is where the bundle goes. Empty means where it was meant to go, or beside
	// that where the bundle of another run is there.
	Output string
	// Keep leaves the spool as it is, for [ResumeSpool].
	Keep bool
}

// Recover seals what an interrupted run left in dir. Of each layer only a torn
// last line is cut; documents that are missing are made, and the run is marked
// incomplete, unless it had come to its end and only its sealing was interrupted.
// Sealed.Notes says what was found. Killed at any point it can be run again; of
// two at a time one gets [ErrAlive]. The error is [ErrNoSpool] when there is no
// such spool. On any error the spool stays as it is.
func Recover(ctx context.Context, dir, runID string, opt RecoverOptions) (_ Sealed, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("recover run %s: %w", runID, err)
		}
	}()
	spool, lock, run, err := takeSpool(dir, runID)
	if err != nil {
		return Sealed{}, err
	}
	defer lock.Close()
	var moved string
	if opt.Output != "" {
		if run.Output, err = filepath.Abs(opt.Output); err != nil {
			return Sealed{}, err
		}
	} else if beside := besideOther(run.Output, runID); beside != run.Output {
		moved = fmt.Sprintf("%s is the bundle of another run and stays: the recovered bundle is %s", run.Output, beside)
		run.Output = beside
	}
	scans, points, err := scanLayers(spool, runID)
	if err != nil {
		return Sealed{}, err
	}
	sizes := map[string]int64{}
	for p, s := range scans {
		sizes[p] = s.size
	}
	sources, err := spoolSources(spool, sizes)
	if err != nil {
		return Sealed{}, err
	}
	sources, planted := genuine(spool, run, sources, points.checked)
	sources, notes, err := complete(spool, run, sources, scans)
	if err != nil {
		return Sealed{}, err
	}
	integrity, found, err := recoveredIntegrity(runID, sources, scans, points)
	if err != nil {
		return Sealed{}, err
	}
	sources, found = append(sources, integrity), append(found, planted...)
	out, err := OpenOutput(run.Output, true)
	if err != nil {
		return Sealed{}, err
	}
	defer out.Close()
	sources, removed, cleaned, err := sweepRecovered(ctx, run, sources)
	if err != nil {
		return Sealed{}, err
	}
	if cleaned != nil {
		defer cleaned.Close()
	}
	if len(found) > 0 {
		if err := markTampered(sources, found); err != nil {
			return Sealed{}, err
		}
	}
	if run.Compat == CompatV0 {
		room, err := newScratch(filepath.Dir(run.Output))
		if err != nil {
			return Sealed{}, err
		}
		defer room.Close()
		v0, err := projectV0(ctx, sources, room)
		if err != nil {
			return Sealed{}, err
		}
		sources, notes = v0.members, append(notes, v0.notes...)
	}
	sealed, err := writeBundle(ctx, run, out, sources, nil)
	if err != nil {
		return Sealed{}, err
	}
	if moved != "" {
		notes = append(notes, moved)
	}
	sealed.Notes, sealed.Tampered, sealed.Removed, sealed.ResultOutput = notes, found, removed, run.ResultOutput
	if opt.Keep {
		return sealed, nil
	}
	return sealed, removeSpool(spool)
}

// besideOther is where a recovered bundle goes: to the output, unless the bundle of
// another run is there, which is not replaced.
func besideOther(output, runID string) string {
	in, err := Open(output)
	if err != nil || in.RunID() == runID {
		return output
	}
	dir, base := filepath.Split(output)
	for _, end := range []string{".tar.gz", ".tar.zst", ".tgz", ".tzst", ".tar"} {
		if name, ok := strings.CutSuffix(base, end); ok {
			return filepath.Join(dir, name+"-"+runID+end)
		}
	}
	return output + "-" + runID
}

// recoveredIntegrity makes integrity.json of what is in a spool, and tells what the
// checkpoints show to be other than it was written.
func recoveredIntegrity(runID string, sources []source, scans map[string]*layerScan, points checkpoints) (_ source, found []Tampered, err error) {
	doc := schema.Integrity{Schema: schema.IntegrityV0, RunID: runID, Checkpoint: schema.Checkpoint{Layers: map[string]schema.LayerTree{}}}
	for _, p := range schema.Layers {
		doc.Layers[schema.LayerName(p)] = scans[p].tree
		if scans[p].fault != "" {
			found = append(found, Tampered{p, scans[p].fault})
		}
	}
	streams := map[string]bool{}
	for _, src := range sources {
		if !isStream(src.path) {
			continue
		}
		streams[src.path] = true
		c := newBytesCheck(points.members[src.path])
		if err := src.copyTo(c); err != nil {
			return source{}, nil, err
		}
		if doc.Members == nil {
			doc.Members = map[string]schema.MemberBytes{}
		}
		doc.Members[src.path] = c.state()
		if fault := c.fault(); fault != "" {
			found = append(found, Tampered{src.path, fault})
		}
	}
	for _, p := range slices.Sorted(maps.Keys(points.members)) {
		if !streams[p] {
			found = append(found, Tampered{p, newBytesCheck(points.members[p]).fault()})
		}
	}
	data, err := schema.Document(doc)
	return source{path: schema.IntegrityPath, size: int64(len(data)), data: data}, found, err
}
