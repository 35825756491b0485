package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"path"
	"sort"
	"strings"
	"time"
)

// tarGz packs files below prefix, sorted, with the folders that they are in.
func tarGz(prefix string, files []file, when time.Time) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the header contains no time
	writeTar(z, prefix, files, when)
	z.Close()
	return b.Bytes()
}

// writeTar writes a tar to a writer that cannot fail.
func writeTar(w interface{ Write([]byte) (int, error) }, prefix string, files []file, when time.Time) {
	t := tar.NewWriter(w)
	dirs := map[string]bool{}
	all := append([]file(nil), files...)
	for i := range all {
		all[i].path = path.Join(prefix, all[i].path)
		for d := path.Dir(all[i].path); d != "." && d != "/"; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	for d := range dirs {
		all = append(all, file{path: d + "/", mode: 0o755})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].path < all[j].path })
	for _, f := range all {
		h := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.data)), ModTime: when, Format: tar.FormatUSTAR,
			Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.path, "/") {
			h.Typeflag = tar.TypeDir
		}
		must(t.WriteHeader(h))
		_, err := t.Write(f.data)
		must(err)
	}
	must(t.Close())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func tarball(name string, files, man []file, when time.Time) []byte {
	return tarGz(name, append(append([]file(nil), files...), man...), when)
}
