package helper

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// Inherit tells the guard of a directory that it is to remove with all that is
// in it, should the runner vanish, and then the directory above if that is empty.
func (g *Guard) Inherit(dir string) {
	_, _ = g.pipe.Write(append(strconv.AppendQuote([]byte("d "), dir), '\n'))
}

// inheritance is what a runner that vanishes leaves besides processes and cgroups.
type inheritance struct {
	tty  terminal
	dirs []string
}

// hear takes a line of the runner's.
func (h *inheritance) hear(line []byte) {
	h.tty.hear(line)
	if quoted, ok := bytes.CutPrefix(line, []byte("d ")); ok {
		if dir, err := strconv.Unquote(string(quoted)); err == nil && filepath.IsAbs(dir) {
			h.dirs = append(h.dirs, dir)
		}
	}
}

// remove removes the directories.
func (h *inheritance) remove() {
	for _, dir := range h.dirs {
		_ = os.RemoveAll(dir)
		_ = os.Remove(filepath.Dir(dir))
	}
}
