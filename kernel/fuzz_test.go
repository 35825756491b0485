package kernel

import (
	"bytes"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// FuzzDecode feeds the decoder any bytes, twice, as the ring would: it must not
// panic, and must not hand out paths that are not absolute without saying so.
func FuzzDecode(f *testing.F) {
	for kind := schema.KernelKind(0); kind <= kindCount; kind++ {
		b := make([]byte, recordSize)
		le.PutUint16(b[offKind:], uint16(kind))
		le.PutUint64(b[offID:], 1)
		le.PutUint16(b[offSeg:], 8)
		le.PutUint16(b[offSeg+2*segName:], 4)
		f.Add(append(b, "ls/bin/\x00abc"...))
		walked := bytes.Clone(b)
		le.PutUint32(walked[offBits:], bitWalked|bitSlot)
		f.Add(append(walked, "ls/bin//x\x00y\x00"...))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := newDecoder()
		for range 2 {
			e, err := d.decode(raw)
			if (e == nil) && err == nil && len(raw) < recordSize {
				t.Fatal("a short record passed")
			}
			if e == nil {
				continue
			}
			if e.Value != "" && len(e.Syscall) > 0 && e.Value[0] != '/' && e.Marks&schema.MarkRelative == 0 &&
				e.Protocol == "" && e.Kind < KindMovedV1 && // from there on, it is no path
				e.Kind != schema.KindMemfd && e.Kind != schema.KindSignal && e.Kind != schema.KindJoin &&
				e.Kind != schema.KindLeave &&
				!strings.HasPrefix(e.Value, "pipe:[") && !strings.HasPrefix(e.Value, "socket:[") {
				t.Fatalf("path %q", e.Value)
			}
			if e.Kind >= kindCount || e.Count == 0 && !e.Repeat {
				t.Fatalf("kind %v count %d", e.Kind, e.Count)
			}
		}
	})
}

func BenchmarkDecodeOpen(b *testing.B) {
	walk := "file/dir/home/"
	raw := make([]byte, recordSize, recordSize+len(walk))
	le.PutUint16(raw[offKind:], uint16(schema.KindOpen))
	le.PutUint32(raw[offBits:], bitWalked|bitSlot)
	le.PutUint64(raw[offID:], 1)
	le.PutUint16(raw[offSeg:], uint16(len(walk)))
	raw = append(raw, walk...)
	d := newDecoder()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}
