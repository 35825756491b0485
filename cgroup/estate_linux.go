package cgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// Inherit tells the guard of a directory that it is to remove with all that is
// in it, should the runner vanish, and then the directory above if that is
// empty. Best effort, as [Guard.TerminalChanged] is.
func (g *Guard) Inherit(dir string) {
	_, _ = g.pipe.Write(append(strconv.AppendQuote([]byte("d "), dir), '\n'))
}

// estate is what a runner that vanishes leaves, besides processes and cgroups.
type estate struct {
	tty  terminal
	dirs []string
}

// hear takes a line of the runner's.
func (e *estate) hear(line []byte) {
	e.tty.hear(line)
	if quoted, ok := bytes.CutPrefix(line, []byte("d ")); ok {
		if dir, err := strconv.Unquote(string(quoted)); err == nil && filepath.IsAbs(dir) {
			e.dirs = append(e.dirs, dir)
		}
	}
}

// remove removes the directories.
func (e *estate) remove() {
	for _, dir := range e.dirs {
		_ = os.RemoveAll(dir)
		_ = os.Remove(filepath.Dir(dir))
	}
}
