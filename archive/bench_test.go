package archive

import (
	"context"
	"os"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// BenchmarkCreateAndSeal is the part of the shortest run that is this
// package's: a spool with two lifecycle lines and four documents.
func BenchmarkCreateAndSeal(b *testing.B) {
	run, dir := testRun(b), b.TempDir()
	line := func(dst []byte, seq uint64) []byte { return append(dst, `{"schema":"assay.runner.event.v0"}`...) }
	for b.Loop() {
		s, err := CreateSpool(dir, run)
		if err != nil {
			b.Fatal(err)
		}
		s.Append(schema.EventsPath, line)
		s.Append(schema.EventsPath, line)
		for _, p := range documents[1:] {
			s.Put(p, make([]byte, 1000))
		}
		if _, err := s.Seal(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	s, _ := newSpool(b, testRun(b))
	encode := func(dst []byte, seq uint64) []byte { return kernelLine(dst, testRunID, seq) }
	for b.Loop() {
		s.Append(schema.KernelPath, encode)
	}
}

// BenchmarkSeal packs 256 MB of kernel lines on one CPU.
func BenchmarkSeal(b *testing.B) {
	b.Setenv("GOMAXPROCS", "1")
	name := b.TempDir() + "/kernel"
	f, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	var size int64
	var lines uint64
	for ; size < 256<<20; lines++ {
		buf = append(kernelLine(buf[:0], testRunID, lines), '\n')
		size += int64(len(buf))
		f.Write(buf)
	}
	f.Close()
	run := testRun(b)
	b.SetBytes(size)
	out, err := OpenOutput(run.Output, true)
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	var sealed Sealed
	for b.Loop() {
		sealed, err = writeBundle(context.Background(), run, out,
			[]source{{path: schema.KernelPath, size: size, file: name}}, nil)
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(sealed.Bytes)/float64(lines), "B/line")
}

// BenchmarkVerify checks a bundle of a million kernel lines.
func BenchmarkVerify(b *testing.B) {
	const lines = 1_000_000
	sealed := sealSample(b, "a.tar.gz", lines)
	for b.Loop() {
		r, err := Verify(context.Background(), sealed.Path)
		if err != nil || !r.OK() {
			b.Fatal(err, r.Problems)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/Mlines")
}
