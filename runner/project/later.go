package project

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
)

// Later returns the files and directories of this host that have, or may have, a later version of a package of dir. env
// is the environment of who would use them, and home their home directory.
func Later(dir, home string, env []string) []string {
	f := &finder{dir: dir, home: home, env: env, found: map[string]bool{}}
	for _, p := range Of(dir) {
		switch p.Manager {
		case NPM:
			f.npm(p)
		case Python:
			f.python(p)
		case Cargo:
			f.vendored(p)
		case Go:
			f.golang(p)
		}
		f.table(p)
	}
	var list []string
	for path := range f.found {
		list = append(list, path)
	}
	slices.Sort(list)
	return list
}

type finder struct {
	dir, home string
	env       []string
	found     map[string]bool
}

// at returns the directory that a variable names, or else another one: a path that is not absolute is below the home.
func (f *finder) at(variable, otherwise string) string {
	for _, kv := range slices.Backward(f.env) {
		if v, is := strings.CutPrefix(kv, variable+"="); is && filepath.IsAbs(v) {
			return v
		}
	}
	if filepath.IsAbs(otherwise) {
		return otherwise
	}
	return filepath.Join(f.home, otherwise)
}

// add adds a path that exists, unless it leads to the directory itself.
func (f *finder) add(path string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || real == f.dir || strings.HasPrefix(f.dir, real+"/") {
		return
	}
	if inside := strings.HasPrefix(real, f.dir+"/"); inside && real != path {
		return // a part of the project that is linked to where packages are
	}
	f.found[real] = true
}

// glob calls found for each path that matches one of the patterns.
func (f *finder) glob(found func(path string), patterns ...string) {
	for _, pattern := range patterns {
		list, _ := filepath.Glob(pattern)
		for _, path := range list {
			found(path)
		}
	}
}

// npm finds what npm, yarn and pnpm have installed or keep.
func (f *finder) npm(p Package) {
	installed := func(dir string) {
		var is struct {
			Version string `json:"version"`
		}
		if json.Unmarshal(read(filepath.Join(dir, "package.json")), &is) != nil || p.later(is.Version) {
			f.add(dir)
		}
	}
	base := strings.ReplaceAll(p.Name, "/", "+")
	f.glob(installed, "/usr/lib/node_modules/"+p.Name, "/usr/local/lib/node_modules/"+p.Name,
		f.at("NVM_DIR", ".nvm")+"/versions/node/*/lib/node_modules/"+p.Name,
		f.at("NPM_CONFIG_PREFIX", ".npm-global")+"/lib/node_modules/"+p.Name,
		f.dir+"/node_modules/"+p.Name, f.dir+"/node_modules/*/node_modules/"+p.Name,
		f.dir+"/node_modules/.pnpm/"+base+"@*/node_modules/"+p.Name)
	f.npmCache(f.at("npm_config_cache", ".npm")+"/_cacache", p)
}

// npmCache finds what npm has downloaded. Each line of a file of the index has the address and digest of a content.
func (f *finder) npmCache(dir string, p Package) {
	index, _ := filepath.Glob(dir + "/index-v*")
	marks := [][]byte{[]byte("/" + p.Name + "/-/"), []byte("/" + p.Name + `"`),
		[]byte("/" + strings.ReplaceAll(p.Name, "/", "%2f") + `"`)}
	for _, root := range index {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			data := read(path)
			if !slices.ContainsFunc(marks, func(m []byte) bool { return bytes.Contains(data, m) }) {
				return nil
			}
			f.add(path)
			for line := range bytes.Lines(data) {
				var entry struct {
					Integrity string `json:"integrity"`
				}
				_, text, _ := bytes.Cut(bytes.TrimSpace(line), []byte("\t"))
				if json.Unmarshal(text, &entry) != nil {
					continue
				}
				algorithm, sum, _ := strings.Cut(entry.Integrity, "-")
				raw, err := base64.StdEncoding.DecodeString(sum)
				if digest := hex.EncodeToString(raw); err == nil && len(digest) > 4 {
					f.glob(f.add, filepath.Join(dir, "content-v*", algorithm, digest[:2], digest[2:4], digest[4:]))
				}
			}
			return nil
		})
	}
}

var notInFiles = strings.NewReplacer("-", "_", ".", "_")

// pythonFile is the name of a Python package in names of files.
func pythonFile(name string) string { return strings.ToLower(notInFiles.Replace(name)) }

// python finds what pip and its like have installed or keep.
func (f *finder) python(p Package) {
	name := pythonFile(p.Name)
	// version is that of an entry for the package; false for another's.
	version := func(entry, end string) (string, bool) {
		stem, is := strings.CutSuffix(entry, end)
		of, rest, _ := strings.Cut(stem, "-")
		v, _, _ := strings.Cut(rest, "-")
		return v, is && pythonFile(of) == name
	}
	site := func(root string) {
		entries, _ := os.ReadDir(root)
		for _, e := range entries {
			for _, end := range []string{".dist-info", ".egg-info", ".egg"} {
				if v, is := version(e.Name(), end); is && p.later(v) {
					f.add(filepath.Join(root, e.Name()))
					f.parts(root, filepath.Join(root, e.Name()))
				}
			}
		}
	}
	lib := "/lib/python3*/site-packages"
	f.glob(site, "/usr/lib/python3*/*-packages", "/usr/local/lib/python3*/*-packages", f.home+"/.local"+lib,
		f.at("PYENV_ROOT", ".pyenv")+"/versions/*"+lib, f.at("VIRTUAL_ENV", ".virtualenvs/*")+lib,
		f.at("CONDA_PREFIX", "miniconda3")+lib, "/opt/conda"+lib, f.dir+"/*"+lib, f.dir+"/.*"+lib,
		f.dir+"/.[tn]ox/*"+lib)
	cache := f.at("XDG_CACHE_HOME", ".cache")
	uv := f.at("UV_CACHE_DIR", cache+"/uv")
	f.glob(func(path string) {
		if v, is := version(filepath.Base(path), ".whl"); is && p.later(v) {
			f.add(path)
		}
	}, cache+"/pip/wheels/*/*/*/*/*.whl", f.dir+"/*.whl", f.dir+"/*/*.whl")
	f.glob(func(path string) {
		if v, is := version(filepath.Base(path), ".dist-info"); is && p.later(v) {
			f.add(filepath.Dir(path))
		}
	}, uv+"/archive-v*/*/*.dist-info")
	f.glob(func(path string) {
		if _, is := version(filepath.Base(path), ""); is {
			f.add(path)
		}
	}, uv+"/*/pypi/*", uv+"/*/index/*/*")
	// What pip has downloaded has digests for names. Without a network, pip does not read it.
	f.glob(f.add, f.at("PIP_CACHE_DIR", ".cache/pip")+"/http*")
}

// parts adds the modules of a package that is installed in root.
func (f *finder) parts(root, info string) {
	for _, list := range []string{"RECORD", "installed-files.txt", "top_level.txt"} {
		for line := range bytes.Lines(read(filepath.Join(info, list))) {
			name, _, _ := strings.Cut(strings.TrimSpace(string(line)), ",")
			name = strings.TrimPrefix(name, "../") // of installed-files.txt
			top, _, below := strings.Cut(name, "/")
			if below || list == "top_level.txt" || strings.HasSuffix(top, ".py") {
				if top == "" || top == ".." || top == "." || top == "__pycache__" {
					continue
				}
				f.add(filepath.Join(root, top))
				f.glob(f.add, filepath.Join(root, top)+".py")
			}
		}
	}
}

// places is a table of where managers keep each version of a package: the manager and a glob. D is the directory, H
// the home, [NAME=DIR] what a variable names, or else DIR below the home. N is the name, n and + the same with - or +
// for a slash, G and A are the parts of a name of Maven, P is G as a path, and V the version, in the last name of the
// glob: without it, all versions are there.
//
//go:embed places.txt
var places string

var variable = regexp.MustCompile(`\[(\w+)=([^]]+)\]`)

// table finds what is at the places of the table.
func (f *finder) table(p Package) {
	group, artifact, _ := strings.Cut(p.Name, ":")
	names := strings.NewReplacer("{N}", p.Name, "{n}", strings.ReplaceAll(p.Name, "/", "-"),
		"{+}", strings.ReplaceAll(p.Name, "/", "+"), "{G}", group, "{A}", artifact,
		"{P}", strings.ReplaceAll(group, ".", "/"), "{D}", f.dir, "{H}", f.home)
	for line := range strings.Lines(places) {
		manager, glob, _ := strings.Cut(strings.TrimSpace(line), " ")
		if manager != p.Manager {
			continue
		}
		glob = variable.ReplaceAllStringFunc(names.Replace(glob), func(v string) string {
			m := variable.FindStringSubmatch(v)
			return f.at(m[1], m[2])
		})
		before, after, versions := strings.Cut(filepath.Base(glob), "{V}")
		before = before[strings.LastIndexByte(before, '*')+1:]
		f.glob(func(path string) {
			v := strings.TrimSuffix(filepath.Base(path), after)
			if before != "" {
				v = v[strings.LastIndex(v, before)+len(before):]
			}
			if !versions || v != "" && unicode.IsDigit(rune(v[0])) && p.later(v) {
				f.add(path)
			}
		}, strings.Replace(glob, "{V}", "*", 1))
	}
}

// vendored finds a crate in the directory's vendor.
func (f *finder) vendored(p Package) {
	f.glob(func(path string) {
		for _, is := range Of(path) {
			if is.Manager == Cargo && p.later(is.Version) {
				f.add(path)
			}
		}
	}, f.dir+"/vendor/"+p.Name)
}

// golang finds the module, in all versions, in Go's module cache and in the directory's vendor.
func (f *finder) golang(p Package) {
	var escaped strings.Builder // see the documentation of the module cache
	for _, r := range p.Name {
		if unicode.IsUpper(r) {
			escaped.WriteByte('!')
		}
		escaped.WriteRune(unicode.ToLower(r))
	}
	gopath, _, _ := strings.Cut(f.at("GOPATH", "go"), ":")
	root := f.at("GOMODCACHE", gopath+"/pkg/mod")
	module := escaped.String()
	if base := filepath.Base(module); len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		module = filepath.Dir(module) // of a later major version
	}
	f.glob(f.add, root+"/"+module+"@*", root+"/"+module+"/v[0-9]*@*", root+"/cache/download/"+module+"/@v",
		root+"/cache/download/"+module+"/v[0-9]*/@v", f.dir+"/vendor/"+p.Name, gopath+"/src/"+p.Name)
}
