// Package agents says what agent programs do by themselves, without any tool call: what they run as they
// start, where they keep their own files, and whom they talk to. It is data, in agents.json; a test with
// the real programs keeps it true.
//
// In a pattern, "*" stands for anything, "<digits>" and "<hex>" for one or more of these, "~/" at the
// beginning for a home directory, and "./" for the run's working directory. A pattern that ends in
// "/*" stands for the directory too.
package agents

import (
	"cmp"
	_ "embed"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
)

// Program is what an agent program does by itself.
type Program struct {
	// Programs are patterns of its own executable, or of the script that an interpreter executes.
	Programs []string `json:"programs"`
	// Ran are patterns of command lines, arguments joined by spaces. What such a command starts
	// belongs to it.
	Ran []string `json:"ran"`
	// Homes are the variables by which a directory below "~/" is somewhere else. One for "$TMPDIR" names
	// another directory for temporary files, beside the usual one.
	Homes map[string]string `json:"homes"`
	// Wrote are patterns of paths that it makes, changes and removes.
	Wrote []string `json:"wrote"`
	// Hosts are names of servers.
	Hosts []string `json:"hosts"`
}

//go:embed agents.json
var data []byte

var programs = sync.OnceValue(func() (all map[string]*Program) {
	if err := json.Unmarshal(data, &all, json.RejectUnknownMembers(true)); err != nil {
		panic("agents.json: " + err.Error())
	}
	return all
})

// Names lists the agents that are known.
func Names() []string { return slices.Sorted(maps.Keys(programs())) }

// Of returns what the agent of that name does. The caller must not change it.
func Of(name string) (*Program, bool) {
	p, ok := programs()[name]
	return p, ok
}

// Is reports whether a process that executes exe with these arguments is the agent program itself.
func (p *Program) Is(exe string, argv []string) bool {
	if slices.ContainsFunc(p.Programs, func(pattern string) bool { return match(pattern, exe) }) {
		return true
	}
	switch path.Base(exe) {
	case "env", "node", "bun": // env node FILE, node --option FILE
		for _, arg := range argv[min(len(argv), 1):] {
			if arg == "node" || arg == "bun" || strings.HasPrefix(arg, "-") {
				continue
			}
			return slices.ContainsFunc(p.Programs, func(pattern string) bool { return match(pattern, arg) })
		}
	}
	return false
}

// Runs reports whether the program starts such a command by itself.
func (p *Program) Runs(argv []string) bool {
	line := strings.Join(argv, " ")
	return slices.ContainsFunc(p.Ran, func(pattern string) bool { return match(pattern, line) })
}

// Variables are those that say where the agents that are known have their homes: [schema.Run] keeps their values.
func Variables() []string {
	names := map[string]bool{"HOME": true, "TMPDIR": true}
	for _, p := range programs() {
		for name := range p.Homes {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Place is where the command of a run has its directories.
type Place struct {
	Workdir string
	// Homes are the values of [Variables]. Nil is not known: then any directory may be a home.
	Homes map[string]string
}

// Writes reports whether the path is one of the program's own. What is in the run's working directory is
// the project's, unless that is the home directory itself, or a pattern begins with "./".
func (p *Program) Writes(file string, at Place) bool {
	return slices.ContainsFunc(p.Wrote, func(pattern string) bool {
		if inProject, ok := strings.CutPrefix(pattern, "./"); ok {
			return at.Workdir != "" && match(at.Workdir+"/"+inProject, file)
		}
		if name, ok := strings.CutPrefix(pattern, "$TMPDIR/"); ok {
			if match(cmp.Or(at.Homes["TMPDIR"], "/tmp")+"/"+name, file) {
				return true
			}
			for variable, usual := range p.Homes {
				if own := at.Homes[variable]; usual == "$TMPDIR" && own != "" && match(own+"/"+name, file) {
					return true
				}
			}
			return false
		}
		inHome, ok := strings.CutPrefix(pattern, "~/")
		if !ok {
			return match(pattern, file)
		}
		if at.Homes == nil {
			return match("*/"+inHome, file) && !(at.Workdir != "" && match(at.Workdir+"/"+inHome, file))
		}
		for name, usual := range p.Homes {
			rest, ok := strings.CutPrefix(pattern, usual)
			if value := at.Homes[name]; ok && value != "" && (rest == "" || rest[0] == '/') {
				return match(value+rest, file)
			}
		}
		return at.Homes["HOME"] != "" && match(at.Homes["HOME"]+"/"+inHome, file)
	})
}

// Contacts reports whether a server that has one of these names is the program's own.
func (p *Program) Contacts(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(p.Hosts, n) })
}

// match reports whether s is of the pattern.
func match(pattern, s string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/*"); ok && match(dir, s) {
		return true
	}
	for pattern != "" {
		rest, any := strings.CutPrefix(pattern, "*")
		if any {
			if rest == "" {
				return true
			}
			for i := range len(s) + 1 {
				if match(rest, s[i:]) {
					return true
				}
			}
			return false
		}
		for class, of := range map[string]string{"<digits>": "0123456789", "<hex>": "0123456789abcdef"} {
			if tail, ok := strings.CutPrefix(pattern, class); ok {
				n := len(s) - len(strings.TrimLeft(s, of))
				if n == 0 {
					return false
				}
				return match(tail, s[n:])
			}
		}
		if s == "" || s[0] != pattern[0] {
			return false
		}
		pattern, s = pattern[1:], s[1:]
	}
	return s == ""
}
