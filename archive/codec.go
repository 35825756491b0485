package archive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// codec is the compression around a bundle's tar.
type codec int

const (
	gzipCodec codec = iota
	zstdCodec
	tarCodec
)

// gzipLevel packs about 570 MB/s of kernel lines per core, into 20 bytes each. Level 6 would save a tenth of the size
// at a quarter of the speed. From block fastFrom on, fastLevel packs 1,400 MB/s: a large bundle is then 5 % to 12 %
// larger, but is written in half the time.
const (
	gzipLevel = 5
	fastLevel = 1
	fastFrom  = 8
)

// smallBlock is the largest block that is packed without gzipLevel's tables of 384 KiB, since clearing them takes
// longer than packing. Such a block is a tenth larger.
const smallBlock = 64 << 10

// ErrOtherFormat is returned by [CheckName], wrapped with the name.
var ErrOtherFormat = errors.New("is the name of another format; a bundle is a .tar.gz or a .tar.zst")

// CheckName refuses a name for a bundle whose extension is that of another format.
func CheckName(name string) error {
	name = strings.ToLower(name)
	for _, other := range []string{".zip", ".7z", ".rar", ".jar", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar.lz4",
		".tar.br", ".json", ".ndjson"} {
		if strings.HasSuffix(name, other) {
			return fmt.Errorf("%s %w", filepath.Base(name), ErrOtherFormat)
		}
	}
	return nil
}

// codecOf returns the codec for an output's name: zstd for .tar.zst and .tzst, none for .tar, otherwise gzip.
func codecOf(name string) codec {
	switch {
	case strings.HasSuffix(name, ".tar.zst"), strings.HasSuffix(name, ".tzst"):
		return zstdCodec
	case strings.HasSuffix(name, ".tar"):
		return tarCodec
	}
	return gzipCodec
}

// encoder returns an encoder with fixed settings, so that equal blocks give equal bytes.
func (c codec) encoder() encoder {
	switch c {
	case gzipCodec:
		return &gzipEncoder{}
	case zstdCodec:
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(packBlock),
			zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			panic(err) // an option is wrong
		}
		return zstdEncoder{z}
	}
	return storing{}
}

// gzipEncoder keeps the writer of the last level.
type gzipEncoder struct {
	z     *gzip.Writer
	level int
}

func (e *gzipEncoder) encode(dst *bytes.Buffer, src []byte, number int) error {
	level := gzipLevel
	switch {
	case len(src) <= smallBlock:
		level = gzip.StatelessCompression
	case number >= fastFrom:
		level = fastLevel
	}
	if level != e.level {
		z, err := gzip.NewWriterLevel(nil, level)
		if err != nil {
			panic(err) // the level is wrong
		}
		e.z, e.level = z, level
	}
	e.z.Reset(dst)
	if _, err := e.z.Write(src); err != nil {
		return err
	}
	return e.z.Close()
}

type zstdEncoder struct{ z *zstd.Encoder }

func (e zstdEncoder) encode(dst *bytes.Buffer, src []byte, _ int) error {
	dst.Grow(len(src) / 4)
	_, err := dst.Write(e.z.EncodeAll(src, dst.AvailableBuffer()))
	return err
}

type storing struct{}

func (storing) encode(dst *bytes.Buffer, src []byte, _ int) error {
	_, err := dst.Write(src)
	return err
}

// stored returns data uncompressed, as a gzip member or zstd frame that others may follow. Its length depends only on
// len(data), so the manifest, which is known last, can be first in the file.
func (c codec) stored(data []byte) []byte {
	var b bytes.Buffer
	switch c {
	case gzipCodec:
		b.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255})
		for rest := data; ; {
			n := min(len(rest), 0xffff)
			last := byte(0)
			if n == len(rest) {
				last = 1
			}
			b.WriteByte(last)
			b.Write(binary.LittleEndian.AppendUint16(nil, uint16(n)))
			b.Write(binary.LittleEndian.AppendUint16(nil, ^uint16(n)))
			b.Write(rest[:n])
			if rest = rest[n:]; last == 1 {
				break
			}
		}
		b.Write(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(data)))
		b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(data))))
	case zstdCodec:
		// RFC 8878, 3.1.1. With a window, since without one (single segment) the window is all of the data, and
		// readers limit it.
		const magic, size4, window128K, block = "\x28\xb5\x2f\xfd", 0x80, 0x38, 128 << 10
		b.WriteString(magic)
		b.Write([]byte{size4, window128K})
		b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(data))))
		for rest := data; ; {
			n := min(len(rest), block)
			head := uint32(n) << 3
			if n == len(rest) {
				head |= 1
			}
			b.Write(binary.LittleEndian.AppendUint32(nil, head)[:3])
			b.Write(rest[:n])
			if rest = rest[n:]; head&1 == 1 {
				break
			}
		}
	default:
		b.Write(data)
	}
	return b.Bytes()
}

// decompressor decompresses a whole stream. It refuses windows that need more than a few MiB.
func (c codec) decompressor(r io.Reader) (io.ReadCloser, error) {
	switch c {
	case gzipCodec:
		return gzip.NewReader(r)
	case zstdCodec:
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20),
			zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}

// packBlock is the size of the part of the tar in one gzip member or zstd frame. Blocks begin at multiples of it, and
// each is packed alone, so that equal input gives equal output with any number of CPUs. That costs less than 1 % of the
// size.
const packBlock = 1 << 20

// maxPackers limits the CPUs that pack at the same time. Each needs about 4 MiB of memory.
const maxPackers = 4

// encoder packs whole blocks.
type encoder interface {
	// encode appends src to dst as a gzip member or zstd frame. number is the block's number in the tar.
	encode(dst *bytes.Buffer, src []byte, number int) error
}

// packer compresses block by block and writes to w. It works in the caller's goroutine until the first block is full,
// then on several CPUs. It is not safe for concurrent use. w is used by one goroutine at a time, and by none after
// Close.
type packer struct {
	w     io.Writer
	c     codec
	block []byte
	count int // number of blocks before block

	in, out int64 // bytes before and after packing, counted by write

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

// pass sends the full block to the packing goroutines, which it starts for the first block.
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
	p.ordered <- b // before todo, so that write can wait for it
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
		if missing := p.in/(bombRatio-1) - p.out - int64(b.out.Len()); p.in > bombFloor && missing > 0 {
			p.storePart(b, min(int(missing), len(b.in)))
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

// storePart stores the first n bytes of a block uncompressed. A reader would take a better ratio than bombRatio for a
// decompression bomb.
func (p *packer) storePart(b *packed, n int) {
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

// Close packs the last block and ends the goroutines. It does not close w. A second Close does nothing.
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

// A stream may unpack to bombFloor bytes plus bombRatio times its packed size. The packer keeps to this limit.
const (
	bombFloor = 256 << 20
	bombRatio = 200
)
