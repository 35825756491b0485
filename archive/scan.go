package archive

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/assay-run/assay-run/schema"
)

// layerScan is what a layer's file in a spool contains.
type layerScan struct {
	lines       uint64       // whole lines
	size        int64        // their bytes
	torn        int64        // bytes of an incomplete last line, which will be cut
	bad         uint64       // lines that verify will refuse
	last        schema.Event // the last lifecycle line
	notes       []string
	tree        schema.LayerTree // of the whole lines
	fault       string           // how they contradict the checkpoints; empty if they do not
	checkpoints bool             // the lifecycle has a checkpoint
}

// scanLayers reads all layers of a spool. Missing ones are empty.
func scanLayers(dir string, run schema.Run) (map[string]*layerScan, checkpoints, error) {
	scans := map[string]*layerScan{}
	var points checkpoints
	for _, p := range run.Layers() { // the lifecycle is first; it has the checkpoints
		s, err := scanLayer(filepath.Join(dir, filepath.FromSlash(p)), p, run.RunID, &points)
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
	if otherNames(path, info) {
		s.fault = newTreeCheck(points.layers[path]).fault()
		return s, nil
	}
	decoder := schema.NewLineDecoder(path)
	var leaves []tlog.Hash // of the lifecycle, which itself contains the checkpoints to compare with
	grown := newTreeCheck(points.layers[path])
	err = eachLine(name, info.Size(), func(line []byte) {
		leaf := tlog.RecordHash(line)
		if path == schema.EventsPath {
			leaves = append(leaves, leaf)
		} else {
			grown.add(leaf)
		}
		got, err := decoder.Decode(line)
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
			if got.Event != nil {
				s.last = *got.Event
				points.add(got.Event)
				s.checkpoints = s.checkpoints || got.Event.Type == schema.CheckpointMade
			}
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

// eachLine calls f with each whole line in the first size bytes of a file, without its newline. A line is valid until
// f returns. A missing file has no lines. A line longer than MaxLine is an error.
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
