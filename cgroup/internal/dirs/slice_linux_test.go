package dirs

import (
	"path/filepath"
	"strings"
	"testing"
)

// systemd puts "a-b.slice" below "a.slice", so a session's name may have no dash, and what
// is below the session must begin with its name.
func TestSliceNames(t *testing.T) {
	for _, id := range []string{"one", "one-run", "-", "a-b_c-D9", "-a--b-", strings.Repeat("x-", 64)} {
		name := sliceName(id)
		if strings.Contains(name, "-") || sliceRunID(name) != id {
			t.Errorf("%s: the slice %s is that of %s", id, name, sliceRunID(name))
		}
		at := containersPath(dir{path: "/top/" + name, slice: true})
		if base := filepath.Base(at); filepath.Dir(at) != "/top/"+name ||
			!strings.HasPrefix(base, strings.TrimSuffix(name, sliceSuffix)+"-") || strings.Count(base, "-") != 1 ||
			len(base) > 255 {
			t.Errorf("%s: containers in %s", id, at)
		}
	}
}

// Only what was made as a slice is one: anybody can give a directory such a name.
func TestOnlyASliceIsOne(t *testing.T) {
	path := "/top/assay-run/" + sliceName("other")
	if got, want := containersPath(dir{path: path, v2: true}), path+"/"+containersName; got != want {
		t.Errorf("containers in %s, want %s", got, want)
	}
	for _, want := range []bool{true, false} {
		s := &Session{dirs: []dir{{path: path, v2: true, slice: want}}}
		if w := NewWard(s.GuardArgs(GuardDir{})); w.dirs[0].slice != want || !w.dirs[0].v2 || w.dirs[0].path != path {
			t.Errorf("slice %v: the guard has %+v", want, w.dirs)
		}
	}
}
