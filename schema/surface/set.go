package surface

import (
	"bufio"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
)

// set is a set of strings of any size. What is over limit bytes goes to a file
// in dir as sorted runs, which all merges into one ascending sequence. Adding
// never merges, so that no call of add takes long.
//
// The 600,000 paths of a run take 94 MiB in a map, and 20 MiB in a set.
type set struct {
	dir   string // "" keeps everything in memory
	name  string
	limit int
	mem   map[string]struct{}
	bytes int      // about what mem takes
	file  *os.File // without a name, so that nothing has to remove it; nil until the first run
	ends  []int64  // of the runs in file
}

// entryBytes is about what a map takes for a string besides its text.
const entryBytes = 40

func newSet(dir, name string, limit int) *set {
	return &set{dir: dir, name: name, limit: limit, mem: make(map[string]struct{})}
}

func (s *set) add(v string) error {
	if _, ok := s.mem[v]; ok {
		return nil
	}
	s.mem[strings.Clone(v)] = struct{}{} // v may be part of a whole line
	if s.bytes += len(v) + entryBytes; s.bytes <= s.limit || s.dir == "" {
		return nil
	}
	if err := s.spill(); err != nil {
		return fmt.Errorf("spill the capability surface: %w", err)
	}
	clear(s.mem)
	s.bytes = 0
	return nil
}

// size is where the next run begins.
func (s *set) size() int64 {
	if len(s.ends) == 0 {
		return 0
	}
	return s.ends[len(s.ends)-1]
}

// spill appends what is in memory as a further run: each string behind its length.
func (s *set) spill() error {
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
	end := s.size()
	w := bufio.NewWriterSize(io.NewOffsetWriter(s.file, end), 64<<10)
	var head [binary.MaxVarintLen64]byte
	for _, v := range slices.Sorted(maps.Keys(s.mem)) {
		n := binary.PutUvarint(head[:], uint64(len(v)))
		w.Write(head[:n])
		w.WriteString(v) // Flush returns its error
		end += int64(n + len(v))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.ends = append(s.ends, end)
	return nil
}

// close frees the runs.
func (s *set) close() {
	if s.file != nil {
		s.file.Close()
	}
	s.file, s.ends, s.mem = nil, nil, nil
}

// all yields every member once, ascending by bytes.
func (s *set) all() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var sources sourceHeap
		for _, next := range append(s.runs(), fromMemory(s.mem)) {
			c := &source{next: next}
			if err := c.advance(); err == nil {
				sources = append(sources, c)
			} else if !errors.Is(err, io.EOF) {
				yield("", fmt.Errorf("merge the capability surface: %w", err))
				return
			}
		}
		heap.Init(&sources)
		last, begun := "", false
		for len(sources) > 0 {
			c := sources[0]
			if !begun || c.v != last {
				begun, last = true, c.v
				if !yield(last, nil) {
					return
				}
			}
			switch err := c.advance(); {
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

// runs read the runs of the file.
func (s *set) runs() (next []func() (string, error)) {
	start := int64(0)
	for _, end := range s.ends {
		section := io.NewSectionReader(s.file, start, end-start)
		r := bufio.NewReaderSize(section, min(max(mergeBuffers/len(s.ends), 4<<10), 64<<10))
		next = append(next, func() (string, error) {
			v, err := readString(r)
			if at, _ := section.Seek(0, io.SeekCurrent); err == io.EOF && at < section.Size() {
				err = io.ErrUnexpectedEOF // somebody cut the file
			}
			return v, err
		})
		start = end
	}
	return next
}

// readString reads one string of a run.
func readString(r *bufio.Reader) (string, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return "", err
	}
	if n > 1<<20 {
		return "", errors.New("a length is impossible")
	}
	if int(n) <= r.Size() {
		v, err := r.Peek(int(n))
		if err != nil {
			return "", io.ErrUnexpectedEOF
		}
		s := string(v)
		_, err = r.Discard(len(v)) // what Peek has shown
		return s, err
	}
	v := make([]byte, n)
	if _, err := io.ReadFull(r, v); err != nil {
		return "", io.ErrUnexpectedEOF
	}
	return string(v), nil
}

func fromMemory(mem map[string]struct{}) func() (string, error) {
	order := slices.Sorted(maps.Keys(mem))
	return func() (v string, err error) {
		if len(order) == 0 {
			return "", io.EOF
		}
		v, order = order[0], order[1:]
		return v, nil
	}
}

// source goes through members in ascending order; v is where it is.
type source struct {
	v    string
	next func() (string, error) // io.EOF at the end
}

func (c *source) advance() (err error) {
	c.v, err = c.next()
	return err
}

// sourceHeap has the source with the least member first.
type sourceHeap []*source

func (h sourceHeap) Len() int           { return len(h) }
func (h sourceHeap) Less(i, j int) bool { return h[i].v < h[j].v }
func (h sourceHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *sourceHeap) Push(c any)        { *h = append(*h, c.(*source)) }
func (h *sourceHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	*h = (*h)[:last]
	return c
}
