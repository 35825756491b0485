package archive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// codec is the compression around a bundle's tar.
type codec int

const (
	gzipCodec codec = iota
	zstdCodec
	plainCodec
)

// gzipLevel packs kernel lines at some 570 MB/s a core into 20 bytes each;
// level 6 saves a tenth of that for a quarter of the speed. From the block of number
// hurriedFrom on, hurriedLevel packs 1,400 MB/s: a large bundle then grows by a
// twentieth to an eighth, and whoever waits for it waits half as long.
const (
	gzipLevel    = 5
	hurriedLevel = 1
	hurriedFrom  = 8
)

// smallBlock is up to where a block is packed without the tables of gzipLevel: they are
// 384 KiB, and clearing them takes longer than packing. It costs a tenth of the size.
const smallBlock = 64 << 10

// ErrOtherFormat is returned by [CheckName], wrapped with the name.
var ErrOtherFormat = errors.New("is the name of another format; a bundle is a .tar.gz or a .tar.zst")

// CheckName refuses a name for a bundle that promises what a bundle is not.
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

// codecOf picks the codec by the output's name: .tar.zst and .tzst are zstd,
// .tar is none, and all else is gzip.
func codecOf(name string) codec {
	switch {
	case strings.HasSuffix(name, ".tar.zst"), strings.HasSuffix(name, ".tzst"):
		return zstdCodec
	case strings.HasSuffix(name, ".tar"):
		return plainCodec
	}
	return gzipCodec
}

// encoder packs with fixed settings, so that equal blocks give equal bytes.
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
	return plainEncoder{}
}

// gzipEncoder has one writer, since blocks come in their order.
type gzipEncoder struct {
	z     *gzip.Writer
	level int
}

func (e *gzipEncoder) encode(dst *bytes.Buffer, src []byte, number int) error {
	level := gzipLevel
	switch {
	case len(src) <= smallBlock:
		level = gzip.StatelessCompression
	case number >= hurriedFrom:
		level = hurriedLevel
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

type plainEncoder struct{}

func (plainEncoder) encode(dst *bytes.Buffer, src []byte, _ int) error {
	_, err := dst.Write(src)
	return err
}

// stored frames data without compressing it, as a gzip member or zstd frame of
// its own that others may follow. The length depends on len(data) alone: that
// lets the manifest, known last, stand first.
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
		// RFC 8878, 3.1.1. A window, since in a single segment that is all of
		// the data, which readers bound.
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

// decompressor undoes the codec's compression of a whole stream, refusing
// windows and dictionaries that would take more than a few MiB.
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
