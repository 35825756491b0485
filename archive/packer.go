package archive

import (
	"bytes"
	"io"
	"runtime"
	"sync"
)

// packBlock is how much of the tar one gzip member or zstd frame holds. The
// blocks begin at multiples of it, so that equal input gives equal output
// whatever the number of CPUs, and each is packed on its own: that costs less
// than a hundredth of the size.
const packBlock = 1 << 20

// maxPackers bounds the CPUs that pack at once, and so the memory: some 4 MiB
// for each.
const maxPackers = 4

// encoder packs whole blocks, one after the other.
type encoder interface {
	// encode appends src, the block of that number, as a gzip member or zstd frame to dst.
	encode(dst *bytes.Buffer, src []byte, number int) error
}

// packer compresses what it is given, block by block, and writes it to w. Up to the first full
// block it works by itself, then on as many CPUs as there are. It is not safe for concurrent use; w
// is used by one goroutine at a time, and by none once Close has returned.
type packer struct {
	w     io.Writer
	c     codec
	block []byte
	count int // of the blocks before it

	in, out int64 // bytes taken and written, by write

	todo, ordered chan *packed // nil until the first full block
	free          chan *packed
	work          sync.WaitGroup
	wrote         chan struct{}

	mu  sync.Mutex
	err error // sticky
}

// packed is one block on its way.
type packed struct {
	in     []byte
	number int
	out    bytes.Buffer
	done   chan struct{}
}

func newPacker(w io.Writer, c codec) *packer {
	return &packer{w: w, c: c, block: make([]byte, 0, 64<<10)}
}

func (p *packer) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if len(p.block) == packBlock {
			p.pass()
			if err := p.fail(nil); err != nil {
				return 0, err
			}
		}
		k := min(len(b), packBlock-len(p.block))
		p.block = append(p.block, b[:k]...)
		b = b[k:]
	}
	return n, nil
}

// pass hands the full block to the packing goroutines, and starts them with the
// first.
func (p *packer) pass() {
	if p.todo == nil {
		n := min(runtime.GOMAXPROCS(0), maxPackers)
		p.todo, p.ordered, p.free = make(chan *packed, n), make(chan *packed, n), make(chan *packed, 2*n+2)
		p.wrote = make(chan struct{})
		for range n {
			p.work.Go(p.pack)
		}
		go p.write()
	}
	var b *packed
	select {
	case b = <-p.free:
	default:
		b = &packed{in: make([]byte, 0, packBlock), done: make(chan struct{}, 1)}
	}
	p.block, b.in, b.number = b.in[:0], p.block, p.count
	p.count++
	p.ordered <- b // first, so that what is packed can be written
	p.todo <- b
}

func (p *packer) pack() {
	e := p.c.encoder()
	for b := range p.todo {
		b.out.Reset()
		if err := e.encode(&b.out, b.in, b.number); err != nil {
			p.fail(err)
		}
		b.done <- struct{}{}
	}
}

func (p *packer) write() {
	defer close(p.wrote)
	for b := range p.ordered {
		<-b.done
		p.in += int64(len(b.in))
		if lacking := p.in/(bombRatio-1) - p.out - int64(b.out.Len()); p.in > bombFloor && lacking > 0 {
			p.loosen(b, min(int(lacking), len(b.in)))
		}
		data := b.out.Bytes()
		p.out += int64(len(data))
		if p.fail(nil) == nil {
			if _, err := p.w.Write(data); err != nil {
				p.fail(err)
			}
		}
		p.free <- b
	}
}

// loosen stores the first n bytes of a block as they are. What packs better than
// bombRatio looks like a decompression bomb to a reader.
func (p *packer) loosen(b *packed, n int) {
	stored := p.c.stored(b.in[:n])
	b.out.Reset()
	b.out.Write(stored)
	if err := p.c.encoder().encode(&b.out, b.in[n:], b.number); err != nil {
		p.fail(err)
	}
}

// fail keeps the first error and returns it.
func (p *packer) fail(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	return p.err
}

// Close packs what is left, and ends the goroutines. It does not close w. A
// second Close does nothing.
func (p *packer) Close() error {
	if p.todo != nil {
		close(p.todo)
		close(p.ordered)
		p.work.Wait()
		<-p.wrote
		p.todo = nil
	}
	if err := p.fail(nil); err != nil || len(p.block) == 0 {
		return err
	}
	var last bytes.Buffer
	rest := p.block
	p.block = nil
	if err := p.c.encoder().encode(&last, rest, p.count); err != nil {
		return p.fail(err)
	}
	_, err := p.w.Write(last.Bytes())
	return p.fail(err)
}
