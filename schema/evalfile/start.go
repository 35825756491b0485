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
// which programs are in the directories of search, a PATH. On the host, a glob for a container can match nothing.
// protected are the globs of the run's contract, absolute.
func Start(d *schema.EvaluationDefinition, workdir, search string, protected []string) *schema.EvaluationStart {
	s := &schema.EvaluationStart{Programs: map[string][]string{}, Protected: protected}
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
	look(s, d, workdir, func(file string, inside bool) (string, bool) {
		if inside {
			return file, false
		}
		_, err := filepath.EvalSymlinks(file)
		return resolve(file), !errors.Is(err, fs.ErrNotExist)
	})
	return s
}

// InContainer says what the globs lead to in a container. at resolves the symbolic links in a path of the container,
// and reports whether the file exists. If at fails for a path, so does InContainer.
func InContainer(d *schema.EvaluationDefinition, workdir string,
	at func(file string) (real string, exists bool, err error)) (*schema.EvaluationStart, error) {
	s := &schema.EvaluationStart{}
	var failed error
	look(s, d, workdir, func(file string, _ bool) (string, bool) {
		real, exists, err := at(file)
		if err != nil {
			failed = err
			return file, false
		}
		return real, exists
	})
	return s, failed
}

// look adds to s what the globs lead to. at returns a path, in a container if inside is true, without symbolic links,
// and whether there is such a file.
func look(s *schema.EvaluationStart, d *schema.EvaluationDefinition, workdir string,
	at func(file string, inside bool) (real string, exists bool)) {
	s.Links = map[string]string{}
	for _, of := range []struct {
		list []string
		need func(file string) string // what has to be there, so that the glob can match something
	}{
		{d.Roots(workdir), itself}, {d.Absolute(d.Hidden, workdir), itself},
		{d.Absolute(d.Protected, workdir), path.Dir}, {s.Protected, path.Dir}, {d.Absolute(d.Watched, workdir), nil},
		{d.Absolute(d.Reward, workdir), path.Dir},
		{d.Absolute(d.Others, workdir), nil}, {d.Absolute(d.Deliverables, workdir), nil},
	} {
		for _, whole := range of.list {
			glob, inside := strings.CutPrefix(whole, schema.InContainer)
			file, exact := schema.UnescapeGlob(glob)
			rest := ""
			if !exact { // the directories before the first wildcard
				slash := strings.LastIndexByte(glob[:strings.IndexAny(glob, `*?[{`)], '/')
				file, exact = schema.UnescapeGlob(path.Clean("/" + glob[:slash]))
				rest = glob[slash:]
			}
			if !exact {
				continue
			}
			if real, _ := at(file, inside); real != file {
				s.Links[whole] = strings.TrimSuffix(schema.EscapeGlob(real), "/") + rest
			}
			if of.need == nil {
				continue
			}
			if _, exists := at(of.need(file), inside); !exists && !slices.Contains(s.Absent, whole) {
				s.Absent = append(s.Absent, whole)
			}
		}
	}
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
