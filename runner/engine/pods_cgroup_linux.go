package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/tree"
)

// Tree opens the cgroup of a pod. The API server announces the pod before the kubelet makes
// the cgroup, so Tree waits for it. The error is ErrEnded if the pod ran and ended before
// Tree saw its cgroup, ErrRemoved if nothing of it is left to record, or ctx's.
func (p *Pods) Tree(ctx context.Context, c *Container) (*tree.Tree, error) {
	p.mu.Lock()
	known := p.pods[c.ID]
	again, refused := known != nil && known.joined, known == nil || known.refused
	p.mu.Unlock()
	if refused {
		return nil, fmt.Errorf("pod %s: %w", c.Name, ErrRemoved)
	}
	often := 10 * time.Millisecond
	if again {
		often = patience
	}
	for {
		// Asked before the look: what has ended by then does not come any more.
		ended, stopped := known.ended(), ctx.Err()
		t, err := p.open(c.ID)
		if err != nil {
			p.mu.Lock()
			known.refused = true
			p.mu.Unlock()
			return nil, err
		}
		if t != nil {
			// An empty cgroup is one that nothing has run in yet, or one that the kubelet
			// will remove.
			if used, _ := t.Populated(); used || !again && !ended && stopped == nil {
				p.mu.Lock()
				known.joined = true
				p.mu.Unlock()
				return t, nil
			}
			t.Close()
		}
		switch {
		case ended:
			p.mu.Lock()
			defer p.mu.Unlock()
			if known.ran && !again {
				return nil, fmt.Errorf("pod %s: %w", c.Name, ErrEnded)
			}
			return nil, fmt.Errorf("pod %s: %w", c.Name, ErrRemoved)
		case stopped != nil:
			return nil, stopped
		}
		select {
		case <-ctx.Done():
		case <-known.over:
		case <-time.After(often):
		}
	}
}

// open opens the cgroup of a pod. It returns nil if the pod has none.
func (p *Pods) open(uid string) (*tree.Tree, error) {
	dir := p.cgroups.find(uid)
	if dir == "" {
		return nil, nil
	}
	t, err := tree.Open(dir)
	if err != nil {
		if _, gone := os.Stat(dir); gone != nil {
			return nil, nil
		}
	}
	return t, err
}

// Follow waits for the end of a pod, and calls stop if no process is left in its cgroup by
// then: it may be that none ever was. What was deleted from the API can run on.
func (p *Pods) Follow(ctx context.Context, c *Container, t *tree.Tree, stop context.CancelCauseFunc) {
	p.mu.Lock()
	known := p.pods[c.ID]
	p.mu.Unlock()
	if known != nil {
		select {
		case <-ctx.Done():
			return
		case <-known.over:
		}
	}
	if used, err := t.Populated(); err == nil && !used {
		stop(stopped{errors.New("the pod ended")})
	}
}

// kubepods finds the cgroups of pods as the kubelet names them: see "Cgroups" in
// Kubernetes' pod resource management design, and cgroup_manager_linux.go.
type kubepods struct {
	mount string // of the cgroup2 hierarchy

	mu     sync.Mutex
	roots  []string  // the directories that have those of all pods
	looked time.Time // when roots was filled
}

// cgroupMount is where the cgroup2 hierarchy is: on a hybrid host, beside the others.
func cgroupMount() string {
	var fs unix.Statfs_t
	if unified := "/sys/fs/cgroup/unified"; unix.Statfs(unified, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		return unified
	}
	return "/sys/fs/cgroup"
}

// find returns a pod's directory, or an empty string if there is none.
func (k *kubepods) find(uid string) string {
	for _, root := range k.dirs() {
		for _, class := range []string{"", "burstable", "besteffort"} {
			dir := filepath.Join(root, class, "pod"+uid)
			if slice, ok := strings.CutSuffix(filepath.Base(root), ".slice"); ok { // of the systemd driver
				within := root
				if class != "" {
					slice += "-" + class
					within = filepath.Join(root, slice+".slice")
				}
				dir = filepath.Join(within, slice+"-pod"+strings.ReplaceAll(uid, "-", "_")+".slice")
			}
			if info, err := os.Lstat(dir); err == nil && info.IsDir() {
				return dir
			}
		}
	}
	return ""
}

// Bounds of the search for roots.
const (
	maxDepth = 4 // a kubelet's --cgroup-root may be below another directory
	maxDirs  = 10_000
)

// dirs returns the kubelet's directories. A kubelet makes its own when it starts, so dirs
// looks for others once a second at most.
func (k *kubepods) dirs() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.looked) < time.Second {
		return k.roots
	}
	k.roots, k.looked = nil, time.Now()
	list, seen := []string{k.mount}, 0
	for range maxDepth {
		var below []string
		for _, dir := range list {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				name := e.Name()
				if seen++; seen > maxDirs {
					return k.roots
				}
				switch {
				case !e.IsDir(), name == "user.slice", strings.HasSuffix(name, ".service"), strings.HasSuffix(name, ".scope"):
				case name == "kubepods", name == "kubepods.slice", strings.HasSuffix(name, "-kubepods.slice"):
					k.roots = append(k.roots, filepath.Join(dir, name))
				default:
					below = append(below, filepath.Join(dir, name))
				}
			}
		}
		list = below
	}
	return k.roots
}
