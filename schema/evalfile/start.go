package evalfile

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// maxPrograms bounds the names of programs.
const maxPrograms = 20_000

// Start says what the globs of an evaluation file lead to now, on this host, for a run that starts in workdir, and
// which programs are in the directories of search, a PATH.
func Start(d *schema.EvaluationDefinition, workdir, search string) *schema.EvaluationStart {
	s := &schema.EvaluationStart{Links: map[string]string{}, Programs: map[string][]string{}}
	for left, dirs := maxPrograms, filepath.SplitList(search); len(dirs) > 0; dirs = dirs[1:] {
		dir := resolve(path.Clean("/" + dirs[0]))
		entries, _ := os.ReadDir(dir) // nothing is found there if it cannot be read
		if !path.IsAbs(dirs[0]) || s.Programs[dir] != nil {
			continue
		}
		for _, e := range entries[:min(len(entries), left)] {
			s.Programs[dir] = append(s.Programs[dir], e.Name())
			left--
		}
	}
	for _, of := range []struct {
		list []string
		need func(file string) string // what has to be there, so that the glob can match something
	}{
		{d.Roots(workdir), itself}, {d.Absolute(d.Hidden, workdir), itself},
		{d.Absolute(d.Protected, workdir), path.Dir}, {d.Absolute(d.Reward, workdir), path.Dir},
		{d.Absolute(d.Others, workdir), nil}, {d.Absolute(d.Deliverables, workdir), nil},
	} {
		for _, glob := range of.list {
			file, exact := schema.UnescapeGlob(glob)
			rest := ""
			if !exact { // the directories before the first wildcard
				at := strings.LastIndexByte(glob[:strings.IndexAny(glob, `*?[{`)], '/')
				file, exact = schema.UnescapeGlob(path.Clean("/" + glob[:at]))
				rest = glob[at:]
			}
			if !exact {
				continue
			}
			if real := resolve(file); real != file {
				s.Links[glob] = strings.TrimSuffix(schema.EscapeGlob(real), "/") + rest
			}
			if of.need == nil {
				continue
			}
			if _, err := filepath.EvalSymlinks(of.need(file)); errors.Is(err, fs.ErrNotExist) &&
				!slices.Contains(s.Absent, glob) {
				s.Absent = append(s.Absent, glob)
			}
		}
	}
	return s
}

func itself(file string) string { return file }

// resolve follows the symbolic links in a path, as far as it exists.
func resolve(file string) string {
	real, err := filepath.EvalSymlinks(file)
	if err == nil || file == "/" {
		return path.Clean("/" + real)
	}
	return path.Join(resolve(path.Dir(file)), path.Base(file))
}
