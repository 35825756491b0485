package helper

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Inherit tells the guard of a directory that it is to remove with all that is
// in it, should the runner vanish, and then the directory above if that is empty.
func (g *Guard) Inherit(dir string) {
	_, _ = g.Write(append(strconv.AppendQuote([]byte("d "), dir), '\n'))
}

// Then tells the guard what to become, of the own binary, once it has ended what the
// runner left. Nothing is told where the line would be too long for a pipe to take whole.
func (g *Guard) Then(argv ...string) { g.program("x", argv) }

// Last tells the guard what to run, of the own binary, when nobody of the session is
// left and before it is removed. The guard waits for it.
func (g *Guard) Last(argv ...string) { g.program("l", argv) }

func (g *Guard) program(kind string, argv []string) {
	line := []byte(kind)
	for _, arg := range argv {
		line = strconv.AppendQuote(append(line, ' '), arg)
	}
	if len(line) < 4096 {
		_, _ = g.Write(append(line, '\n'))
	}
}

// inheritance is what a runner that vanishes leaves besides processes and cgroups.
type inheritance struct {
	tty  terminal
	dirs []string
	late []string // what to run before the session is removed
	then []string // what to become in the end
}

// hear takes a line of the runner's.
func (h *inheritance) hear(line []byte) {
	h.tty.hear(line)
	if quoted, ok := bytes.CutPrefix(line, []byte("d ")); ok {
		if dir, err := strconv.Unquote(string(quoted)); err == nil && filepath.IsAbs(dir) {
			h.dirs = append(h.dirs, dir)
		}
	}
	if rest, ok := bytes.CutPrefix(line, []byte("x ")); ok {
		h.then = unquoted(rest)
	}
	if rest, ok := bytes.CutPrefix(line, []byte("l ")); ok {
		h.late = unquoted(rest)
	}
}

func unquoted(rest []byte) (argv []string) {
	for len(rest) > 0 {
		quoted, err := strconv.QuotedPrefix(string(rest))
		if err != nil {
			break
		}
		arg, _ := strconv.Unquote(quoted)
		argv = append(argv, arg)
		rest = bytes.TrimPrefix(rest[len(quoted):], []byte(" "))
	}
	return argv
}

// last runs what is to be run before the session is removed.
func (h *inheritance) last() {
	if len(h.late) > 0 {
		cmd := exec.Cmd{Path: "/proc/self/exe", Args: h.late, Dir: "/", Env: []string{"GOMAXPROCS=1"}}
		_ = cmd.Run()
	}
}

// remove removes the directories.
func (h *inheritance) remove() {
	for _, dir := range h.dirs {
		_ = os.RemoveAll(dir)
		_ = os.Remove(filepath.Dir(dir))
	}
}

// become starts what the guard was told to become, if anything.
func (h *inheritance) become() {
	if len(h.then) > 0 {
		_ = unix.Exec("/proc/self/exe", h.then, []string{"GOMAXPROCS=1"}) // what it frees, the next run frees too
	}
}
