package evaluation

import (
	"path"
	"slices"
	"strings"
)

// managers are programs that fetch packages, by the first part of their names.
var managers = map[string]string{
	"pip": "pip", "pip3": "pip", "uv": "pip", "poetry": "pip", "pipx": "pip", "npm": "npm", "npx": "npm", "yarn": "npm",
	"pnpm":       "npm",
	"npm-cli.js": "npm", "npx-cli.js": "npm", "cargo": "cargo", "go": "go", "curl": "curl", "wget": "curl",
	"git": "git",
	"apt": "apt", "apt-get": "apt", "dpkg": "apt", "apk": "apt", "dnf": "apt", "yum": "apt",
}

// versioned is the name of a program with its version, as pip3.11.
var versioned = pattern(`^(pip|python)[0-9.]*$`)

// toolOf is the tool that a process is by its executable, or by the script that an interpreter executes,
// and whether its arguments name something of this host.
func toolOf(exe string, argv []string) (tool string, local bool) {
	name := path.Base(exe)
	rest := argv[min(len(argv), 1):]
	if strings.HasPrefix(name, "git") && strings.Contains(exe, "/git-core/") {
		return "git", false
	}
	if s := script(exe, argv); s != "" {
		name = path.Base(s)
		if i := slices.Index(rest, s); i >= 0 {
			rest = rest[i+1:]
		}
	} else if interpreter(name) && len(rest) > 1 && rest[0] == "-m" {
		name, rest = rest[1], rest[2:]
	}
	if versioned().MatchString(name) && strings.HasPrefix(name, "pip") {
		name = "pip"
	}
	tool = managers[name]
	if tool == "" || tool == "git" || tool == "curl" || tool == "go" || tool == "cargo" {
		return tool, false
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
	return tool, local
}

// elsewhere are options of managers that take a path from which nothing is installed.
var elsewhere = []string{
	"-t", "--target", "--prefix", "--root", "--cache-dir", "--python", "--log", "-r", "--requirement", "-c",
	"--constraint", "-C",
}

func interpreter(name string) bool {
	return versioned().MatchString(name) && strings.HasPrefix(name, "python") || name == "node" || name == "nodejs" ||
		name == "ruby" ||
		name == "perl"
}

// script is the file that an interpreter executes; empty if there is none.
func script(exe string, argv []string) string {
	if !interpreter(path.Base(exe)) {
		return ""
	}
	for _, arg := range argv[min(len(argv), 1):] {
		switch {
		case arg == "-m", arg == "-c", arg == "-e":
			return ""
		case !strings.HasPrefix(arg, "-"):
			return arg
		}
	}
	return ""
}
