package surface

import (
	"path"
	"strings"
)

// tree is what an interpreter or toolchain brings along, wherever it was
// installed: by pyenv, nvm or rustup, as GOROOT or a JDK. Somebody who puts a program of such a name in another place
// can hide only its reads below its own directory, in the places that the row names.
type tree struct {
	exe string // base name of the executable, perhaps with a version after it
	// above is what stands between the root of the tree and the executable.
	above string
	// root: one of these is in the path of the root, so that ~/bin/java does not
	// make a tree of somebody's home; empty where in says enough.
	root []string
	// in are beginnings of paths below the root. Libraries in lib are in every tree.
	in []string
}

var (
	javaRoots = []string{"/jdk", "/jre", "/jvm/", "/java", "-jdk-", "-jre-"}
	goRoots   = []string{"/go/", "/go1.", "/go-1.", "/toolchain@"}
)

var trees = [...]tree{
	{exe: "python", above: "/bin/", in: []string{"lib/python3"}},
	{exe: "node", above: "/bin/", in: []string{"lib/node_modules/npm/", "lib/node_modules/corepack/"}},
	{exe: "ruby", above: "/bin/", in: []string{"lib/ruby/"}},
	{exe: "perl", above: "/bin/", in: []string{"lib/perl5/"}},
	{exe: "rustc", above: "/bin/", in: []string{"lib/rustlib/"}},
	{exe: "java", above: "/bin/", root: javaRoots, in: []string{"lib/", "conf/", "release"}},
	{exe: "javac", above: "/bin/", root: javaRoots, in: []string{"lib/", "conf/", "release"}},
	{exe: "go", above: "/bin/", root: goRoots, in: []string{"src/", "pkg/", "go.env", "VERSION"}},
	{exe: "compile", above: "/pkg/tool/", root: goRoots, in: []string{"src/", "pkg/"}},
	{exe: "asm", above: "/pkg/tool/", root: goRoots, in: []string{"src/", "pkg/"}},
}

// inOwnTree reports whether file came with the program exe, which opens it.
func inOwnTree(exe, file string) bool {
	name := exe[strings.LastIndexByte(exe, '/')+1:]
	for i := range trees {
		t := &trees[i]
		if rest, ok := strings.CutPrefix(name, t.exe); !ok || strings.Trim(rest, "0123456789.") != "" {
			continue
		}
		if t.exe == "python" && findsItself(file) {
			return true
		}
		at := strings.LastIndex(exe, t.above)
		if at < 0 || !strings.HasPrefix(file, exe[:at+1]) {
			return false
		}
		in := file[at+1:]
		return (t.root == nil || holds(exe[:at+1], t.root)) &&
			(below(t.in, in) || strings.HasPrefix(in, "lib/") && isLibrary(in))
	}
	return false
}

// findsItself reports whether python reads file to find out where it is: beside
// itself, or in a virtual environment, whose packages are the project's.
func findsItself(file string) bool {
	dir, base := path.Split(file)
	switch {
	case base == "pyvenv.cfg", base == "pybuilddir.txt", strings.HasPrefix(base, "python") &&
		strings.HasSuffix(base, "._pth"):
		return true
	case strings.HasSuffix(base, ".pth"):
		dir, base = path.Split(path.Clean(dir))
	default: // what the .pth file of setuptools imports
		if at := strings.LastIndex(dir, "/site-packages/_distutils_hack/"); at >= 0 {
			dir, base = dir[:at+1], "site-packages"
		}
	}
	version, ok := strings.CutPrefix(path.Base(dir), "python3.")
	return base == "site-packages" && ok && isDigits(version) && strings.HasSuffix(path.Dir(path.Clean(dir)), "/lib")
}

func holds(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}
