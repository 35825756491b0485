package project

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/sandbox/startup"
	"github.com/assay-run/assay-run/schema/config"
)

// Managers of packages.
const (
	NPM    = "npm"
	Python = "python"
	Cargo  = "cargo"
	Go     = "go"
	Maven  = "maven" // names are GROUP:ARTIFACT
	Gem    = "gem"
	PHP    = "composer"
)

// Package is a package that a directory is the source of.
type Package struct {
	Manager string
	Name    string
	Version string // empty if it is not known; Go's never is
}

// read reads a small regular file; nil for what cannot be read.
func read(path string) []byte {
	data, err := startup.ReadFile(path)
	if err != nil {
		return nil
	}
	return data
}

// Of returns the packages of a directory. A file that cannot be read names none.
func Of(dir string) (all []Package) {
	add := func(manager, name, version string) {
		if name = strings.TrimSpace(name); name != "" && !strings.ContainsAny(name, "*?[]\\\x00") &&
			!strings.Contains("/"+name+"/", "/../") {
			all = append(all, Package{manager, name, strings.TrimSpace(version)})
		}
	}
	var npm struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	if json.Unmarshal(read(filepath.Join(dir, "package.json")), &npm) == nil {
		add(NPM, npm.Name, npm.Version)
	}
	type named struct {
		Name    string
		Version any // Cargo's may be that of a workspace
	}
	var pyproject struct {
		Project named
		Tool    struct{ Poetry named }
	}
	text := func(version any) string {
		s, _ := version.(string)
		return s
	}
	if _, err := config.TOML(read(filepath.Join(dir, "pyproject.toml")), &pyproject); err == nil {
		p := pyproject.Project
		if p.Name == "" {
			p = pyproject.Tool.Poetry
		}
		add(Python, p.Name, text(p.Version))
	}
	for _, file := range []string{"setup.cfg", "setup.py"} {
		data := read(filepath.Join(dir, file))
		add(Python, first(pythonName(), data), first(pythonVersion(), data))
	}
	var cargo struct{ Package named }
	if _, err := config.TOML(read(filepath.Join(dir, "Cargo.toml")), &cargo); err == nil {
		add(Cargo, cargo.Package.Name, text(cargo.Package.Version))
	}
	var pom struct {
		GroupID    string `xml:"groupId"`
		ArtifactID string `xml:"artifactId"`
		Version    string `xml:"version"`
		Parent     struct {
			GroupID string `xml:"groupId"`
			Version string `xml:"version"`
		} `xml:"parent"`
	}
	if xml.Unmarshal(read(filepath.Join(dir, "pom.xml")), &pom) == nil && pom.ArtifactID != "" {
		version := cmp.Or(pom.Version, pom.Parent.Version)
		if strings.Contains(version, "$") {
			version = "" // a property's
		}
		add(Maven, cmp.Or(pom.GroupID, pom.Parent.GroupID)+":"+pom.ArtifactID, version)
	}
	specs, _ := fs.Glob(os.DirFS(dir), "*.gemspec")
	for _, spec := range specs {
		data := read(filepath.Join(dir, spec))
		add(Gem, first(gemName(), data), first(gemVersion(), data))
	}
	var composer struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	if json.Unmarshal(read(filepath.Join(dir, "composer.json")), &composer) == nil {
		add(PHP, composer.Name, composer.Version)
	}
	for line := range bytes.Lines(read(filepath.Join(dir, "go.mod"))) {
		if f := strings.Fields(string(line)); len(f) > 1 && f[0] == "module" {
			add(Go, strings.Trim(f[1], `"`), "")
		}
	}
	return all
}

// In setup.cfg, setup.py and gemspecs. A name or version that the script computes is not known.
var (
	pythonName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^\s*name\s*=\s*["']?([A-Za-z0-9][A-Za-z0-9._-]*)["']?\s*,?\s*$`)
	})
	pythonVersion = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^\s*version\s*=\s*["']?([0-9][A-Za-z0-9._+!-]*)["']?\s*,?\s*$`)
	})
	gemName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)\.name\s*=\s*["']([A-Za-z0-9][A-Za-z0-9._-]*)["']`)
	})
	gemVersion = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)\.version\s*=\s*["']([0-9][A-Za-z0-9.-]*)["']`)
	})
)

func first(of *regexp.Regexp, data []byte) string {
	if m := of.FindSubmatch(data); m != nil {
		return string(m[1])
	}
	return ""
}

// later reports whether a version that was found is later than the package's own, or may be.
func (p Package) later(version string) bool {
	return p.Version == "" || version == "" || compare(version, p.Version) > 0
}

var numbers = regexp.MustCompile(`[0-9]+|[A-Za-z]+`)

// compare compares versions by their numbers and words. A word, as in 2.0rc1, comes before what has none.
func compare(a, b string) int {
	x, y := numbers.FindAllString(cut(a), -1), numbers.FindAllString(cut(b), -1)
	for i := range max(len(x), len(y)) {
		if c := cmp.Compare(weight(x, i), weight(y, i)); c != 0 {
			return c
		}
	}
	return 0
}

// cut takes off what is about the build alone.
func cut(version string) string {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "+")
	return version
}

func weight(parts []string, i int) int {
	if i >= len(parts) {
		return 0
	}
	n, err := strconv.Atoi(parts[i])
	if err == nil {
		return n
	}
	if strings.HasPrefix(strings.ToLower(parts[i]), "post") {
		return 0
	}
	return -1
}
