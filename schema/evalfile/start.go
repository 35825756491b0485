package evalfile

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Start says what the globs of an evaluation file lead to now, on this host, for a run that starts in workdir.
func Start(d *schema.EvaluationDefinition, workdir string) *schema.EvaluationStart {
	s := &schema.EvaluationStart{Links: map[string]string{}}
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
