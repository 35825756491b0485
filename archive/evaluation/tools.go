package evaluation

import (
	"path"
	"slices"
	"strings"
)

// managers maps names of programs to the tool whose rules apply.
var managers = map[string]string{
	"pip": "pip", "pip3": "pip", "uv": "pip", "poetry": "pip", "pipx": "pip", "npm": "npm", "npx": "npm", "yarn": "npm",
	"pnpm": "npm", "bun": "npm", "bunx": "npm", "pdm": "pip", "uvx": "pip", "ensurepip": "pip", "venv": "pip",
	"virtualenv": "pip", "conda": "pip",
	"mamba":      "pip",
	"npm-cli.js": "npm", "npx-cli.js": "npm", "cargo": "cargo", "go": "go", "curl": "curl", "wget": "curl",
	"git": "git",
	"apt": "apt", "apt-get": "apt", "dpkg": "apt", "apk": "apt", "dnf": "apt", "yum": "apt",
}

// versioned matches the name of a program with or without a version, as in pip3.11.
var versioned = pattern(`^(pip|python)[0-9.]*$`)

// installing are subcommands that install or change packages.
var installing = []string{
	"install", "i", "ci", "add", "sync", "update", "upgrade", "dist-upgrade", "remove", "uninstall", "rm", "download",
	"get", "mod", "rebuild", "clean-install", "--unpack", "--configure",
}

// toolOf returns the tool that a process is, by its executable or by the script that an interpreter executes.
// installs reports whether it was told to install something, and local whether its arguments name something on
// this host.
func toolOf(exe string, argv []string) (tool string, installs, local bool) {
	name := path.Base(exe)
	rest := argv[min(len(argv), 1):]
	if strings.HasPrefix(name, "git") && strings.Contains(exe, "/git-core/") {
		return "git", false, false
	}
	if s := script(exe, argv); s != "" {
		name = path.Base(s)
		if i := slices.Index(rest, s); i >= 0 {
			rest = rest[i+1:]
		}
	} else if i := module(exe, rest); i >= 0 {
		name, rest = rest[i], rest[i+1:]
	}
	if versioned().MatchString(name) && strings.HasPrefix(name, "pip") {
		name = "pip"
	}
	tool = managers[name]
	if tool == "" || tool == "git" || tool == "curl" {
		return tool, false, false
	}
	if name == "venv" || name == "virtualenv" || at(rest, 0) == "venv" { // they copy an interpreter
		return tool, true, slices.Contains(rest, "--python") || slices.Contains(rest, "-p")
	}
	installs = name == "ensurepip" || slices.ContainsFunc(rest[:min(len(rest), 4)], func(a string) bool {
		return slices.Contains(installing, a)
	})
	if tool == "go" || tool == "cargo" { // without a package's version they build the project itself
		return tool, installs, !installs || tool == "go" && !strings.Contains(strings.Join(rest, " "), "@") ||
			slices.ContainsFunc(rest, func(a string) bool { return strings.HasPrefix(a, "--path") })
	}
	for i, arg := range rest {
		if i > 0 && slices.Contains(elsewhere, rest[i-1]) {
			continue
		}
		if strings.HasPrefix(arg, ".") || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, "file:") ||
			strings.HasSuffix(arg, ".whl") ||
			strings.HasSuffix(arg, ".tgz") || strings.HasSuffix(arg, ".tar.gz") || strings.HasSuffix(arg, ".deb") ||
			arg == "-e" || arg == "link" {
			local = true
		}
	}
	return tool, installs, local
}

// elsewhere are options that take a path from which nothing is installed.
var elsewhere = []string{
	"-t", "--target", "--prefix", "--root", "--cache-dir", "--python", "--log", "-r", "--requirement", "-c",
	"--constraint", "-C",
}

// shell reports whether a program executes commands that a model may have written.
func shell(exe string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "env"}, path.Base(exe))
}

func interpreter(name string) bool {
	return versioned().MatchString(name) && strings.HasPrefix(name, "python") || name == "node" || name == "nodejs" ||
		name == "bun" ||
		name == "ruby" ||
		name == "perl"
}

// scripts returns the absolute paths of the files that an interpreter may execute. A module may be in several places.
func scripts(p *process) []string {
	if s := script(p.Exe, p.Argv); s != "" {
		if !path.IsAbs(s) {
			s = path.Join(p.Cwd, s)
		}
		return []string{s}
	}
	if i := module(p.Exe, p.Argv); i > 0 {
		name := path.Join(p.Cwd, strings.ReplaceAll(p.Argv[i], ".", "/"))
		return []string{name + ".py", name + "/__main__.py", name + "/__init__.py"}
	}
	return nil
}

// script returns the file that an interpreter executes; empty if there is none.
func script(exe string, argv []string) string {
	if !interpreter(path.Base(exe)) {
		return ""
	}
	if len(argv) == 0 || module(exe, argv) > 0 {
		return ""
	}
	for i, arg := range argv[1:] {
		switch {
		case arg == "-c", arg == "-e":
			return ""
		case !strings.HasPrefix(arg, "-") && argv[i] != "-W" && argv[i] != "-X":
			return arg
		}
	}
	return ""
}

var moduleOption = pattern(`^-[A-Za-z]*m$`)

// module returns the index of the argument that names the module that Python executes; -1 if there is none.
func module(exe string, argv []string) int {
	if name := path.Base(exe); !strings.HasPrefix(name, "python") {
		return -1
	}
	for i, arg := range argv {
		switch {
		case moduleOption().MatchString(arg) && i+1 < len(argv):
			return i + 1
		case arg == "-c", i > 0 && !strings.HasPrefix(arg, "-") && argv[i-1] != "-W" && argv[i-1] != "-X":
			return -1
		}
	}
	return -1
}
