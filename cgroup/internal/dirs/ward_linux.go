package dirs

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Ward is the session as its guard knows it.
type Ward struct {
	dirs []dir
	own  GuardDir
}

// The kinds of a guard's arguments, each before a colon and a path.
const (
	argV2       = "v2"
	argV1       = "v1"
	argFreezer  = "freezer" // v1, with the freezer
	argGuardDir = "guard"
	argHome     = "home"
)

// GuardArgs are the arguments from which NewWard makes the session's ward.
func (s *Session) GuardArgs(own GuardDir) []string {
	var args []string
	for _, d := range s.dirs {
		kind := argV1
		switch {
		case d.v2:
			kind = argV2
		case d.freezer:
			kind = argFreezer
		}
		args = append(args, kind+":"+d.path)
	}
	if own.Path != "" {
		args = append(args, argGuardDir+":"+own.Path)
	}
	for _, home := range own.Homes {
		args = append(args, argHome+":"+home)
	}
	return args
}

// NewWard takes a guard's arguments.
func NewWard(args []string) *Ward {
	w := &Ward{}
	for _, a := range args {
		switch kind, path, _ := strings.Cut(a, ":"); kind {
		case argGuardDir:
			w.own.Path = path
		case argHome:
			w.own.Homes = append(w.own.Homes, path)
		default:
			w.dirs = append(w.dirs, dir{path: path, v2: kind == argV2, freezer: kind == argFreezer})
		}
	}
	return w
}

// End kills what is in the session, waits until it is gone and removes it.
func (w *Ward) End() error {
	for {
		_ = kill(w.dirs) // if that failed, remove tries again
		ctx, cancel := context.WithTimeout(context.Background(), again)
		err := wait(ctx, w.dirs)
		cancel()
		if err == nil {
			break
		}
	}
	if err := remove(w.dirs); err != nil {
		return err
	}
	for _, d := range w.dirs {
		_ = unix.Rmdir(filepath.Dir(d.path))
	}
	return nil
}

// again is when a guard kills again what has not ended: somebody may have frozen it.
const again = time.Second

// Leave is the last thing that the guard does.
func (w *Ward) Leave() { w.own.Leave() }
