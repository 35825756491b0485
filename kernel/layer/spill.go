package layer

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
)

// sortedSet is a set of strings of any size: what is over limit bytes goes to a
// file in dir as sorted runs, which all merges into one ascending sequence. The
// file has no name, so that nothing has to remove it. Adding never merges: it
// is done by who empties the kernel's ring, and may not take long.
type sortedSet struct {
	dir   string // "" keeps everything in memory
	name  string
	limit int
	mem   stringSet
	file  *os.File // nil until the first run
	ends  []int64  // of the runs in file
}

func newSortedSet(dir, name string, limit int) *sortedSet {
	return &sortedSet{dir: dir, name: name, limit: limit}
}

func (s *sortedSet) add(v string) error {
	if !s.mem.add(v) || s.mem.bytes() <= s.limit || s.dir == "" {
		return nil
	}
	if err := s.spill(); err != nil {
		return fmt.Errorf("spill the capability surface: %w", err)
	}
	s.mem.clear()
	return nil
}

// size is where the next run begins.
func (s *sortedSet) size() int64 {
	if len(s.ends) == 0 {
		return 0
	}
	return s.ends[len(s.ends)-1]
}

// spill appends what is in memory as a further run.
func (s *sortedSet) spill() error {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, s.name+"-*")
		if err != nil {
			return err
		}
		if err := os.Remove(f.Name()); err != nil {
			f.Close()
			return err
		}
		s.file = f
	}
	out := &countingWriter{w: io.NewOffsetWriter(s.file, s.size())}
	w := bufio.NewWriterSize(out, 64<<10)
	var n [binary.MaxVarintLen64]byte
	for v := range s.mem.sorted() {
		w.Write(n[:binary.PutUvarint(n[:], uint64(len(v)))])
		w.WriteString(v) // Flush tells of any error
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.ends = append(s.ends, s.size()+out.n)
	return nil
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// close frees the runs.
func (s *sortedSet) close() {
	if s.file != nil {
		s.file.Close()
	}
	s.file, s.ends, s.mem = nil, nil, stringSet{}
}

// all yields every member once, ascending by bytes.
func (s *sortedSet) all() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		sources, err := s.sources()
		if err != nil {
			yield("", err)
			return
		}
		heap.Init(&sources)
		var last []byte
		for begun := false; len(sources) > 0; {
			c := sources[0]
			if !begun || !bytes.Equal(c.v, last) {
				begun, last = true, append(last[:0], c.v...)
				if !yield(string(last), nil) {
					return
				}
			}
			switch err := c.next(); {
			case err == nil:
				heap.Fix(&sources, 0)
			case errors.Is(err, io.EOF):
				heap.Pop(&sources)
			default:
				yield("", fmt.Errorf("merge the capability surface: %w", err))
				return
			}
		}
	}
}

// mergeBuffers is what the runs' buffers take together, in bytes, as long as
// each has the least that is of use.
const mergeBuffers = 2 << 20

// sources are the runs and what is in memory, each at its first member.
func (s *sortedSet) sources() (sourceHeap, error) {
	var all sourceHeap
	add := func(c *source) error {
		err := c.next()
		if err == nil {
			all = append(all, c)
		} else if !errors.Is(err, io.EOF) {
			return fmt.Errorf("merge the capability surface: %w", err)
		}
		return nil
	}
	start := int64(0)
	for _, end := range s.ends {
		size := min(max(mergeBuffers/len(s.ends), 4<<10), 64<<10)
		section := io.NewSectionReader(s.file, start, end-start)
		r := bufio.NewReaderSize(section, size)
		c := &source{}
		c.next = func() error {
			err := c.read(r)
			if at, _ := section.Seek(0, io.SeekCurrent); err == io.EOF && at < section.Size() {
				err = io.ErrUnexpectedEOF // somebody cut the file
			}
			return err
		}
		if err := add(c); err != nil {
			return nil, err
		}
		start = end
	}
	order := s.mem.order()
	c := &source{}
	c.next = func() error {
		if len(order) == 0 {
			return io.EOF
		}
		c.v, order = append(c.v[:0], s.mem.at(order[0])...), order[1:]
		return nil
	}
	return all, add(c)
}

// source goes through members in ascending order; v is where it is. At the end
// next gives io.EOF.
type source struct {
	v    []byte
	next func() error
}

// read takes the next member from a run.
func (c *source) read(r *bufio.Reader) error {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	if n > 1<<20 {
		return errors.New("a length is impossible")
	}
	c.v = slices.Grow(c.v[:0], int(n))[:n]
	if _, err := io.ReadFull(r, c.v); err != nil {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// sourceHeap has the source with the least member first.
type sourceHeap []*source

func (h sourceHeap) Len() int           { return len(h) }
func (h sourceHeap) Less(i, j int) bool { return bytes.Compare(h[i].v, h[j].v) < 0 }
func (h sourceHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *sourceHeap) Push(c any)        { *h = append(*h, c.(*source)) }
func (h *sourceHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	*h = (*h)[:last]
	return c
}
