package runner

import (
	"cmp"
	"path/filepath"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// programs follows, in the kernel layer, which program wrote or removed each path last. The observation's goroutine
// feeds it; it is read once that has ended.
type programs struct {
	exe   map[uint64]string // of each process instance
	by    map[string]string // paths
	moved map[string]string // where what is at a path now was before
}

// maxPrograms bounds what is kept, of each kind. Of what is beyond, no program is known.
const maxPrograms = 200_000

func newPrograms() *programs {
	return &programs{exe: map[uint64]string{}, by: map[string]string{}, moved: map[string]string{}}
}

// event takes a line of the kernel layer.
func (p *programs) event(e *schema.KernelEvent) {
	switch {
	case e.Kind == schema.KindFork:
		put(p.exe, e.ExecID, p.exe[e.ParentExecID])
		return
	case e.Kind == schema.KindExec, e.Kind == schema.KindJoin:
		put(p.exe, e.ExecID, cmp.Or(e.Exe, e.Value))
		return
	case e.Failed(), e.Class == schema.ClassCheck, e.Marks&schema.MarkMountNamespace != 0:
		return
	}
	exe := p.exe[e.ExecID]
	if e.Kind == schema.KindRename {
		if was, known := p.by[e.Value]; known {
			exe = was // it wrote what has another name now
		}
		delete(p.by, e.Value)
		if len(p.moved) < maxPrograms {
			p.moved[e.Target] = e.Value
		}
		put(p.by, e.Target, exe)
		return
	}
	for path, access := range e.Touches() {
		_, known := p.by[path]
		const writes = schema.AccessWrite | schema.AccessCreate | schema.AccessRemove
		if strings.HasPrefix(path, "/") && (access&writes != 0 || access&schema.AccessChange != 0 && !known) {
			put(p.by, path, exe)
		}
	}
}

func put[K comparable](m map[K]string, key K, exe string) {
	if _, known := m[key]; known || len(m) < maxPrograms {
		m[key] = exe
	}
}

// longestProgram is the longest path of a program that is told.
const longestProgram = 512

// of is the program that wrote a path last; empty if that is not known. A file in a directory that was renamed has
// the program that wrote it where it was.
func (p *programs) of(path string) string {
	for range 8 { // renames
		if exe, known := p.by[path]; known {
			if len(exe) > longestProgram {
				return ""
			}
			return strings.ToValidUTF8(exe, "\uFFFD")
		}
		dir, was := filepath.Dir(path), ""
		for was = p.moved[dir]; was == "" && dir != "/" && dir != "."; was = p.moved[dir] {
			dir = filepath.Dir(dir)
		}
		if was == "" {
			return ""
		}
		path = was + strings.TrimPrefix(path, dir)
	}
	return ""
}
