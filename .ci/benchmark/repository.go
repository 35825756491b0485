package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
)

// The repository that is cloned: about the size of a project of some years.
const (
	repoFiles   = 5000
	repoCommits = 1500
	repoTouched = 12 // files in each commit
)

// repository makes a packed repository once and keeps it in the user's cache. It is always
// the same repository.
func repository() string {
	cache, err := os.UserCacheDir()
	check(err)
	dir := filepath.Join(cache, "assay-run-bench",
		fmt.Sprintf("repository-%d-%d-%d.git", repoFiles, repoCommits, repoTouched))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	check(os.MkdirAll(filepath.Dir(dir), 0o755))
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "new-*")
	check(err)
	defer os.RemoveAll(tmp)
	git := func(args ...string) *exec.Cmd { return exec.Command("git", append([]string{"-C", tmp}, args...)...) }
	check(git("init", "-q", "--bare", "-b", "main").Run())
	load := git("fast-import", "--quiet")
	in, err := load.StdinPipe()
	check(err)
	check(load.Start())
	w := bufio.NewWriter(in)
	writeHistory(w)
	check(w.Flush())
	check(in.Close())
	check(load.Wait())
	check(git("repack", "-q", "-a", "-d").Run())
	check(os.Rename(tmp, dir))
	return dir
}

// writeHistory writes git's fast-import stream.
func writeHistory(w io.Writer) {
	r := rand.New(rand.NewPCG(1, 2))
	commit := func(n int, files func(yield func(int) bool)) {
		fmt.Fprintf(w, "commit refs/heads/main\ncommitter A <a@example.com> %d +0000\ndata 6\nchange\n",
			1600000000+n*3600)
		for i := range files {
			text := source(r, i)
			fmt.Fprintf(w, "M 100644 inline src/part-%02d/unit-%02d/file-%04d.go\ndata %d\n%s\n", i%40, i%17, i,
				len(text), text)
		}
	}
	commit(0, func(yield func(int) bool) {
		for i := range repoFiles {
			yield(i)
		}
	})
	for n := range repoCommits {
		commit(n+1, func(yield func(int) bool) {
			for range repoTouched {
				yield(r.IntN(repoFiles))
			}
		})
	}
}

// source is text of one to nine kilobytes that compresses as code does.
func source(r *rand.Rand, i int) []byte {
	words := []string{"func", "return", "value", "index", "range", "error", "string", "buffer", "if", "for", "nil",
		"len"}
	b := fmt.Appendf(nil, "package unit%02d\n\n", i%17)
	for n := 1000 + r.IntN(8000); len(b) < n; {
		b = fmt.Appendf(b, "\t%s %s%d = %s(%d)\n", words[r.IntN(len(words))], words[r.IntN(len(words))], r.IntN(100),
			words[r.IntN(len(words))], r.IntN(1000))
	}
	return b
}
