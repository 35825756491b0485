package archive

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"

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
	// Output is where the bundle goes. Empty means where it was meant to go.
	Output string
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
	spool, lock, err := lockSpool(dir, runID)
	if err != nil {
		return Sealed{}, err
	}
	defer lock.Close()
	run, err := readRun(lock)
	if err == nil && run.RunID != runID {
		err = fmt.Errorf("it is of run %s", run.RunID)
	}
	if err != nil {
		return Sealed{}, fmt.Errorf("%s: %w (the run had not begun, or its spool was damaged; remove %s to forget it)", filepath.Join(spool, schema.RunPath), err, spool)
	}
	if opt.Output != "" {
		if run.Output, err = filepath.Abs(opt.Output); err != nil {
			return Sealed{}, err
		}
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
	sources, notes, err := complete(spool, run, sources, scans)
	if err != nil {
		return Sealed{}, err
	}
	integrity, found, err := recoveredIntegrity(runID, sources, scans, points)
	if err != nil {
		return Sealed{}, err
	}
	sources = append(sources, integrity)
	if len(found) > 0 {
		if err := markTampered(sources, found); err != nil {
			return Sealed{}, err
		}
	}
	out, err := OpenOutput(run.Output, true)
	if err != nil {
		return Sealed{}, err
	}
	defer out.Close()
	sealed, err := writeBundle(ctx, run, out, sources, nil)
	if err != nil {
		return Sealed{}, err
	}
	sealed.Notes, sealed.Tampered, sealed.ResultOutput = notes, found, run.ResultOutput
	return sealed, removeSpool(spool)
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

// flockSoon waits a moment for a lock that a listing holds in passing, or that
// goes with the last child of a runner that was killed as it forked.
func flockSoon(f *os.File) (err error) {
	for range 10 {
		if err = flock(f); !errors.Is(err, errLocked) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// layerScan is what a layer's file in a spool holds.
type layerScan struct {
	lines uint64       // whole lines
	size  int64        // their bytes
	torn  int64        // bytes of a torn last line, to be cut
	bad   uint64       // lines that verify will refuse
	last  schema.Event // the last lifecycle line
	notes []string
	tree  schema.LayerTree // of the whole lines
	fault string           // how they are not what checkpoints say
}

// scanLayers reads all layers of a spool. Missing ones are empty.
func scanLayers(dir, runID string) (map[string]*layerScan, checkpoints, error) {
	scans := map[string]*layerScan{}
	var points checkpoints
	for _, p := range schema.Layers { // the lifecycle, with the checkpoints, first
		s, err := scanLayer(filepath.Join(dir, filepath.FromSlash(p)), p, runID, &points)
		if err != nil {
			return nil, points, err
		}
		scans[p] = s
	}
	return scans, points, nil
}

func scanLayer(name, path, runID string, points *checkpoints) (*layerScan, error) {
	s := &layerScan{tree: schema.LayerTree{Root: digest(emptyRoot)}}
	info, err := os.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		s.fault = newTreeCheck(points.layers[path]).fault()
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	check, err := schema.NewLineChecker(lineSchemas(path)...)
	if err != nil {
		return nil, err
	}
	var leaves []tlog.Hash // of the lifecycle, whose checkpoints are in it
	grown := newTreeCheck(points.layers[path])
	err = eachLine(name, info.Size(), func(line []byte) {
		leaf := tlog.RecordHash(line)
		if path == schema.EventsPath {
			leaves = append(leaves, leaf)
			points.line(line)
		} else {
			grown.add(leaf)
		}
		got, err := check.Check(line)
		switch {
		case err == nil && got.Seq != s.lines:
			err = fmt.Errorf("seq is %d, want %d", got.Seq, s.lines)
		case err == nil && got.RunID != runID:
			err = fmt.Errorf("run_id is %.128q", got.RunID)
		}
		if err != nil {
			if s.bad++; s.bad == 1 {
				s.notes = append(s.notes, fmt.Sprintf("%s:%d: %v; the line is sealed as it is", path, s.lines+1, err))
			}
		}
		s.lines++
		s.size += int64(len(line)) + 1
		if path == schema.EventsPath {
			s.last = schema.Event{}
			json.Unmarshal(line, &s.last)
		}
	})
	if path == schema.EventsPath {
		grown = newTreeCheck(points.layers[path])
		for _, leaf := range leaves {
			grown.add(leaf)
		}
	}
	s.tree, s.fault = grown.state(), grown.fault()
	if s.torn = info.Size() - s.size; s.torn > 0 && err == nil {
		s.notes = append(s.notes, fmt.Sprintf("%s: a torn last line of %d bytes was cut", path, s.torn))
	}
	return s, err
}

// eachLine calls f with each whole line in the first size bytes of a file,
// without its newline, valid until f returns. A missing file has none. A line
// longer than any that Append writes is an error.
func eachLine(name string, size int64, f func(line []byte)) error {
	file, err := openRegular(name, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	r := bufio.NewReaderSize(io.LimitReader(file, size), MaxLine+1)
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case err == nil:
			f(bytes.TrimSuffix(line, []byte{'\n'}))
		case err == io.EOF:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("%s holds a line of more than %d bytes, which this program never writes", name, MaxLine)
		default:
			return err
		}
	}
}
