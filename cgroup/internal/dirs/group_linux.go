package dirs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Group is the directories of one group.
type Group struct {
	session *Session
	name    string
	dirs    []dir // the primary first
	// containers has the directory of the session's containers for the agent's
	// group, which they belong to.
	containers []dir

	mu sync.Mutex
	l  *launcher // a thread of ours in the v1 hierarchies; nil when there is none
}

// Path is the group's directory on the primary hierarchy.
func (g *Group) Path() string { return g.dirs[0].path }

// ID is the inode number of the cgroup2 directory; 0 without cgroup2.
func (g *Group) ID() uint64 {
	var st unix.Stat_t
	if !g.dirs[0].v2 || unix.Stat(g.dirs[0].path, &st) != nil {
		return 0
	}
	return st.Ino
}

// List returns the pids of the live members, also of those in cgroups that
// they made themselves.
func (g *Group) List() ([]int, error) {
	if !exists(g.dirs[0].path) {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", g.dirs[0].path, os.ErrNotExist)
	}
	return g.list(), nil
}

func (g *Group) list() []int { return pids(g.all()) }

func (g *Group) all() []dir { return slices.Concat(g.dirs, g.containers) }

// Signal sends a signal to every member, also to those forked meanwhile.
func (g *Group) Signal(sig unix.Signal) error { return procs.Signal(g.list, sig) }

// Freeze stops every member where it is, or lets them go on. Without cgroup2
// and a v1 freezer, it does so by signals.
func (g *Group) Freeze(on bool) error {
	if freeze(g.all(), on) {
		return nil
	}
	if on {
		return g.Signal(unix.SIGSTOP)
	}
	return g.Signal(unix.SIGCONT)
}

// Kill ends every member. None of them can fork any more when it returns.
func (g *Group) Kill() error { return kill(g.all()) }

// Empty tells that the group has no live member.
func (g *Group) Empty() bool { return exists(g.dirs[0].path) && empty(g.all()) }

// Wait returns when the group has no live member, or with ctx's error.
func (g *Group) Wait(ctx context.Context) error { return wait(ctx, g.all()) }

func wait(ctx context.Context, dirs []dir) error {
	return procs.Wait(ctx, func() []int {
		if empty(dirs) {
			return nil
		}
		return pids(dirs)
	})
}

// joinFiles are the v1 files that a thread joins the group by.
func (g *Group) joinFiles(name string) []string {
	var files []string
	for _, d := range g.dirs {
		if !d.v2 {
			files = append(files, filepath.Join(d.path, name))
		}
	}
	return files
}
