package dirs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Ward is the session as its guard knows it.
type Ward struct {
	dirs, outskirts []dir
	above           []string // see outskirts
	own             GuardDir
}

// The kinds of a guard's arguments, each before a colon and a path.
const (
	argV2       = "v2"
	argV1       = "v1"
	argFreezer  = "freezer" // v1, with the freezer
	argSlice    = "slice"   // v2, of systemd's
	argGuardDir = "guard"
	argHome     = "home"
	argOutskirt = "outskirt-" // before one of the first three
	argAbove    = "above"
)

// GuardArgs are the arguments from which NewWard makes the session's ward.
func (s *Session) GuardArgs(own GuardDir) []string {
	var args []string
	for i, d := range slices.Concat(s.dirs, s.outskirts.dirs) {
		kind := argV1
		switch {
		case d.slice:
			kind = argSlice
		case d.v2:
			kind = argV2
		case d.freezer:
			kind = argFreezer
		}
		if i >= len(s.dirs) {
			kind = argOutskirt + kind
		}
		args = append(args, kind+":"+d.path)
	}
	for _, path := range s.outskirts.above {
		args = append(args, argAbove+":"+path)
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
		case argAbove:
			w.above = append(w.above, path)
		default:
			kind, outskirt := strings.CutPrefix(kind, argOutskirt)
			d := dir{path: path, v2: kind == argV2 || kind == argSlice, slice: kind == argSlice, freezer: kind == argFreezer}
			if outskirt {
				w.outskirts = append(w.outskirts, d)
			} else {
				w.dirs = append(w.dirs, d)
			}
		}
	}
	return w
}

// KillFile opens what kills the session of a guard's arguments with one write. It is nil
// where the kernel has no such file.
func KillFile(args []string) *os.File {
	for _, d := range NewWard(args).dirs {
		if f, err := os.OpenFile(filepath.Join(d.path, "cgroup.kill"), os.O_WRONLY, 0); err == nil {
			return f
		}
	}
	return nil
}

// End kills what is in the session, waits until it is gone and removes it. Before
// that, with nobody left, it calls last.
func (w *Ward) End(last func()) error {
	(&Session{containers: dir{path: containersPath(w.dirs[0]), v2: w.dirs[0].v2}}).NoContainers()
	for {
		_ = kill(w.dirs) // if that failed, remove tries again
		ctx, cancel := context.WithTimeout(context.Background(), again)
		err := wait(ctx, w.dirs)
		cancel()
		if err == nil {
			break
		}
	}
	last()
	if err := remove(slices.Concat(w.dirs, w.outskirts)); err != nil {
		return err
	}
	removeParents(w.dirs, w.above)
	return nil
}

// again is when a guard kills again what has not ended: somebody may have frozen it.
const again = time.Second

// Leave is the last thing that the guard does.
func (w *Ward) Leave() { w.own.Leave() }
