package trial

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// layer is a tar file with empty files and the given ones.
func layer(t *testing.T, heads ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, head := range heads {
		head.Typeflag = tar.TypeReg
		if err := w.WriteHeader(&head); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestChangesAreReadWholeOrNotAtAll(t *testing.T) {
	file := filepath.Join(t.TempDir(), ChangesFile)
	read := func(data []byte) ([]string, error) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		kept, removed, err := readChanges(file)
		if err == nil && kept.Len() == 0 {
			t.Error("there is no tar file")
		}
		return removed, err
	}
	good := layer(t, tar.Header{Name: "a"}, tar.Header{Name: "d/.wh.b"}, tar.Header{Name: "e/" + opaque})
	removed, err := read(good)
	if d := cmp.Diff([]string{"/d/b", "/e/"}, removed); d != "" || err != nil {
		t.Error(d, err)
	}
	// tar --sparse of a file with a hole of 1 TiB, compressed, in the formats of POSIX and GNU.
	for _, hole := range []string{
		"H4sIAAAAAAACA+3U0WqDMBQG4FznKXyCeE5MjF54u+1qDMYeIKyBObSOxEHZ0y/1qhXWwiiF0v+7MHJOApH4R5UvfvcU/CbEVH5M" +
			"QxCXR1ltzDJm65EqqgTb/GS2ZLUgZq5qUezEFXyn2ce8FXGftC4en99U+vIxBTX6zyl2LFfVfpurJLU5rG79GLr9HyMrd1iPwQ+p" +
			"/wkdU9ta5lo752pZUTHOfV7CrrVt0xCTahybWhuzdP3J7vvfXQH/p8p8dK/LyT30Q1DaaEMXvgjO5J/378f5t6xz/uma+Y/TNJ+a" +
			"d66//rgbwfI4poQ4AQAAAAAAAAAAAAAAAAAAANyUX6wJaRgAKAAA",
		"H4sIAAAAAAACA+3QMQoCMRAF0HiTHCHZTfQgnsBCsBAC69p7dJeAFhYKwlrIe8X8gRkYmFM7H8PK0mJbSs/Fa/Y+1zGNOddUh5Dy" +
			"kHYlxH34getlPkwxhqm1+d3ep/nXbr1unp96fGSVAwAAAAAAAAAAAPyJO8nTEFUAKAAA",
	} {
		data, err := base64.StdEncoding.DecodeString(hole)
		if err != nil {
			t.Fatal(err)
		}
		packed, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if data, err = io.ReadAll(packed); err != nil {
			t.Fatal(err)
		}
		if _, err := read(data); err == nil || !strings.Contains(err.Error(), "its files have more than") {
			t.Errorf("a hole was read: %v", err)
		}
	}
	// More than is read, of which the limit is the end of a file.
	if err := os.WriteFile(file, layer(t, tar.Header{Name: "a"}), 0o600); err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat(good[:512], 2*maxChanges/512+1)
	if _, err := read(append(long, good...)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a long file was cut: %v", err)
	}
	if _, err := read(good[:700]); err == nil {
		t.Error("a truncated file was read")
	}
}
