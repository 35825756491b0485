package dirs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// runnerLeaf is where a runner alone in its cgroup moves itself.
const runnerLeaf = "assay-run-runner"

// source is how a cgroup2 controller can be had for a session.
type source struct {
	base   string // the parent of assay-run/
	enable bool   // base does not hand it out yet, but may
	claim  bool   // the runner has to move into a leaf of base first
}

func (s source) note() string {
	switch {
	case s.claim:
		return "for a limit, the runner moves itself into a leaf of its cgroup"
	case s.enable:
		return "for a limit, the controller is switched on in the runner's cgroup"
	}
	return ""
}

// source finds where a session that needs a controller on cgroup2 can be put.
// See the package documentation for the order and the reasons.
func (l *hierarchy) source(kind string) (source, error) {
	own := l.own
	if l.hands(own, kind) {
		return source{base: own}, nil
	}
	if isRoot(own) {
		return source{base: own, enable: true}, nil
	}
	if filepath.Base(own) == runnerLeaf && l.hands(filepath.Dir(own), kind) {
		return source{base: filepath.Dir(own)}, nil // claimed by us, or by a runner around us
	}
	if err := unix.Access(filepath.Join(own, "cgroup.subtree_control"), unix.W_OK); err == nil {
		members := words(filepath.Join(own, "cgroup.procs"))
		if len(members) == 0 || len(members) == 1 && members[0] == fmt.Sprint(os.Getpid()) {
			return source{base: own, enable: true, claim: len(members) == 1}, nil
		}
	}
	for dir := own; dir != l.mount; {
		if limited(dir) {
			return source{}, fmt.Errorf("cgroup %s has other processes in it, so it cannot hand out controllers, and sets limits of its own", dir)
		}
		dir = filepath.Dir(dir)
		if l.hands(dir, kind) && unix.Access(dir, unix.W_OK) == nil && unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) == nil {
			return source{base: dir}, nil
		}
	}
	return source{}, fmt.Errorf("cgroup %s has other processes in it, so it cannot hand out controllers, and no writable cgroup above it does", own)
}

func (l *hierarchy) hands(dir, kind string) bool {
	return slices.Contains(words(filepath.Join(dir, "cgroup.subtree_control")), kind)
}

// isRoot: only the true root, whoever looks, has no cgroup.type.
func isRoot(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.type"))
	return errors.Is(err, os.ErrNotExist)
}

// limited tells whether a cgroup sets a limit that its processes would escape
// by leaving it.
func limited(dir string) bool {
	for _, f := range []string{"memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max"} {
		if w := words(filepath.Join(dir, f)); len(w) > 0 && w[0] != "max" {
			return true
		}
	}
	return false
}

// claim makes base able to hand out controllers: it moves this process, and
// nobody else, into a leaf, and switches the controllers on. The returned undo
// is safe to call while others use base: the kernel then refuses (EBUSY), and
// things stay as they are.
func claim(base string, move bool, kinds []string) (undo func(), err error) {
	leaf := filepath.Join(base, runnerLeaf)
	var on []string
	moved := false
	undo = func() {
		for _, k := range on {
			_ = write(filepath.Join(base, "cgroup.subtree_control"), "-"+k)
		}
		if !moved {
			return
		}
		// Children that the runner started meanwhile are in the leaf as well.
		for _, pid := range words(filepath.Join(leaf, "cgroup.procs")) {
			_ = write(filepath.Join(base, "cgroup.procs"), pid)
		}
		_ = os.Remove(leaf)
	}
	defer func() {
		if err != nil {
			undo()
		}
	}()
	if move {
		if err := makeDir(leaf); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		moved = true
		if err := write(filepath.Join(leaf, "cgroup.procs"), "0"); err != nil {
			return nil, err
		}
	}
	for _, k := range kinds {
		if err := write(filepath.Join(base, "cgroup.subtree_control"), "+"+k); err != nil {
			return nil, err
		}
		on = append(on, k)
	}
	return undo, nil
}
