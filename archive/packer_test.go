package archive

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"
)

// sampleBlocks is a little more than ten blocks of kernel lines, so that the last are
// packed in a hurry.
func sampleBlocks() []byte {
	var b []byte
	for i := uint64(0); len(b) < (fastFrom+2)*packBlock+packBlock/3; i++ {
		b = append(kernelLine(b, testRunID, i), '\n')
	}
	return b
}

func TestPackedBytesAreThoseOfEachBlockAlone(t *testing.T) {
	data := sampleBlocks()
	for _, c := range []codec{gzipCodec, zstdCodec, tarCodec} {
		var want bytes.Buffer
		for i, b := 0, data; len(b) > 0; i++ {
			n := min(len(b), packBlock)
			if err := c.encoder().encode(&want, b[:n], i); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
		for _, cpus := range []int{1, 2, 7} {
			before := runtime.GOMAXPROCS(cpus)
			var got bytes.Buffer
			p := newPacker(&got, c)
			for b := data; len(b) > 0; { // in pieces that no block is a multiple of
				n := min(len(b), 77_777)
				if _, err := p.Write(b[:n]); err != nil {
					t.Fatal(err)
				}
				b = b[n:]
			}
			err := p.Close()
			runtime.GOMAXPROCS(before)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("codec %d on %d CPUs: other bytes than the blocks packed alone", c, cpus)
			}
			r, err := c.decompressor(&got)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := io.ReadAll(r); err != nil || !bytes.Equal(back, data) {
				t.Errorf("codec %d: unpacked to %d bytes, %v", c, len(back), err)
			}
			r.Close()
		}
	}
}

type fullAfter struct{ left int }

var errFull = errors.New("full")

func (f *fullAfter) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestPackerStopsAtTheFirstWriteError(t *testing.T) {
	data := sampleBlocks()
	for _, room := range []int{0, 30_000, 150_000} {
		p := newPacker(&fullAfter{room}, gzipCodec)
		var err error
		for range 100 {
			if _, err = p.Write(data); err != nil {
				break
			}
		}
		if !errors.Is(err, errFull) {
			t.Errorf("room for %d bytes: Write says %v", room, err)
		}
		for range 2 {
			if err := p.Close(); !errors.Is(err, errFull) {
				t.Errorf("room for %d bytes: Close says %v", room, err)
			}
		}
	}
}

// TestStoredOfAnySizeIsRead: a manifest may be larger than the window that
// readers grant a zstd frame.
func TestStoredOfAnySizeIsRead(t *testing.T) {
	want := bytes.Repeat([]byte("manifest"), maxManifest/8)
	for _, c := range []codec{gzipCodec, zstdCodec, tarCodec} {
		for _, n := range []int{0, 1, 128 << 10, 128<<10 + 1, maxManifest} {
			r, err := c.decompressor(bytes.NewReader(c.stored(want[:n])))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want[:n]) {
				t.Errorf("codec %d: of %d bytes stored, %d read: %v", c, n, len(got), err)
			}
			r.Close()
		}
	}
}
