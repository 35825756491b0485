package layer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
)

// sortedSet is a set of strings of any size: what is over limit bytes goes to
// dir as sorted runs, which all merges into one ascending sequence.
type sortedSet struct {
	dir   string // "" keeps everything in memory
	name  string
	limit int
	mem   stringSet
	runs  []string // paths of the runs
}

// maxRuns is how many runs are merged at once, each with an open file.
const maxRuns = 64

func newSortedSet(dir, name string, limit int) *sortedSet {
	return &sortedSet{dir: dir, name: name, limit: limit}
}

func (s *sortedSet) add(v string) error {
	if !s.mem.add(v) || s.mem.bytes() <= s.limit || s.dir == "" {
		return nil
	}
	if err := s.spill(s.mem.sorted()); err != nil {
		return err
	}
	s.mem.clear()
	if len(s.runs) < maxRuns {
		return nil
	}
	return s.compact()
}

// compact makes one run of all.
func (s *sortedSet) compact() (err error) {
	old := s.runs
	err = s.spill(func(yield func(string) bool) {
		for v, e := range mergeRuns(old, new(stringSet)) {
			if e != nil {
				err = e
				return
			}
			if !yield(v) {
				return
			}
		}
	}, &err)
	if err != nil {
		return err
	}
	s.runs = s.runs[len(old):]
	for _, path := range old {
		os.Remove(path)
	}
	return nil
}

// spill writes values, which ascend, as a further run. also is an error of the
// values' source, known once they have ended.
func (s *sortedSet) spill(values iter.Seq[string], also ...*error) (err error) {
	f, err := os.CreateTemp(s.dir, s.name+"-*.run")
	if err != nil {
		return fmt.Errorf("spill the capability surface: %w", err)
	}
	w := bufio.NewWriterSize(f, 64<<10)
	var n [binary.MaxVarintLen64]byte
	for v := range values {
		w.Write(n[:binary.PutUvarint(n[:], uint64(len(v)))])
		w.WriteString(v) // Flush tells of any error
	}
	err = w.Flush()
	for _, e := range also {
		err = errors.Join(err, *e)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("spill the capability surface: %w", err)
	}
	s.runs = append(s.runs, f.Name())
	return nil
}

// all yields every member once, ascending by bytes.
func (s *sortedSet) all() iter.Seq2[string, error] {
	return mergeRuns(s.runs, &s.mem)
}

// close removes the runs.
func (s *sortedSet) close() {
	for _, path := range s.runs {
		os.Remove(path)
	}
	s.runs, s.mem = nil, stringSet{}
}

// mergeRuns merges runs and a set. There are few of them, so the least
// is found by looking at each.
func mergeRuns(paths []string, mem *stringSet) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var srcs []*run
		order := mem.order()
		defer func() {
			for _, r := range srcs {
				r.f.Close()
			}
		}()
		for _, path := range paths {
			f, err := os.Open(path)
			if err != nil {
				yield("", fmt.Errorf("merge the capability surface: %w", err))
				return
			}
			srcs = append(srcs, &run{f: f, r: bufio.NewReaderSize(f, 16<<10)})
			if err := srcs[len(srcs)-1].next(); err != nil {
				yield("", err)
				return
			}
		}
		for {
			best, ok := "", false
			if len(order) > 0 {
				best, ok = mem.at(order[0]), true
			}
			for _, r := range srcs {
				if !r.end && (!ok || r.v < best) {
					best, ok = r.v, true
				}
			}
			if !ok || !yield(best, nil) {
				return
			}
			if len(order) > 0 && mem.at(order[0]) == best {
				order = order[1:]
			}
			for _, r := range srcs {
				if r.end || r.v != best {
					continue
				}
				if err := r.next(); err != nil {
					yield("", err)
					return
				}
			}
		}
	}
}

// run reads one run; v is its current value, until end.
type run struct {
	f   *os.File
	r   *bufio.Reader
	v   string
	end bool
}

func (r *run) next() error {
	n, err := binary.ReadUvarint(r.r)
	if err == io.EOF {
		r.end = true
		return nil
	}
	if err == nil && n > 1<<20 {
		err = errors.New("a length is impossible")
	}
	if err == nil {
		b := make([]byte, n)
		_, err = io.ReadFull(r.r, b)
		r.v = string(b)
	}
	if err != nil {
		return fmt.Errorf("merge the capability surface: run %s: %w", r.f.Name(), err)
	}
	return nil
}
