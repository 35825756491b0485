// Package agents knows agent programs: how each is set up in a run (its recipe), and what it does by itself, without
// any tool call: what it runs as it starts, where it keeps its own files, and whom it talks to. It is data, one file an
// agent; tests with the real programs keep it true.
//
// In a pattern, "*" stands for anything, "<digits>" and "<hex>" for one or more of these, "~/" at the
// beginning for a home directory, and "./" for the run's working directory. A pattern that ends in
// "/*" stands for the directory too.
package agents

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema/config"
)

// Recipe is how an agent is set up in a run.
type Recipe struct {
	// Name is the file's name without its extension. Text is the file.
	Name string `json:"-"`
	Text []byte `json:"-"`

	About string `json:"about"`
	// Command is the command line that starts the agent if the user gives none. The arguments of a part follow the
	// word of the user's command line that is this program.
	Command []string `json:"command"`
	// Task is the shell command with which the agent attempts a task of a suite, whose text is in ASSAY_TASK_PROMPT.
	Task string `json:"task"`
	// Package is where the program comes from, and the version that the recipe was tested with.
	Package Package `json:"package"`
	// Image are commands that put the program into a container image without a network.
	Image []string `json:"image"`
	// Reports is the agent shim: the name under which the agent reports its tool calls.
	Reports string `json:"reports"`
	// Reader starts the agent below "assay-run hook NAME", which reads the agent's own log.
	Reader bool `json:"reader"`
	// Part applies in each run, and that of a route if requests to that provider go through the model gateway.
	Part
	Routes map[string]Part `json:"routes"`
	// Login is the file below "~/" in which the agent keeps its login, and renews it.
	Login string `json:"login"`
	// Domains are the hosts that the agent needs with a login of its own.
	Domains []string `json:"domains"`
	// Itself is what the program does by itself.
	Itself Program `json:"itself"`
}

// Package is a package of npm.
type Package struct {
	NPM    string `json:"npm"`
	Tested string `json:"tested"`
}

// Part is what a recipe sets. ${NAME} in a value of Env, an argument or a string of a JSON file is the value of the
// command's variable NAME.
type Part struct {
	Env       map[string]string `json:"env"`
	Arguments []string          `json:"arguments"`
	// Files are what is written below the private home before the agent starts, by path. A part with files does not
	// apply if the home is real.
	Files map[string]File `json:"files"`
}

// File is a file in a private home. Either JSON, which is merged into the file that is there, or Text, which replaces
// it.
type File struct {
	JSON       jsontext.Value `json:"json,omitzero"`
	Text       string         `json:"text,omitzero"`
	Executable bool           `json:"executable,omitzero"`
}

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

//go:embed *.yaml
var files embed.FS

// builtin is a recipe that is part of the program.
type builtin struct {
	text []byte
	// parsed parses the recipe once.
	parsed func() *Recipe
}

var recipes = sync.OnceValue(func() map[string]builtin {
	all := map[string]builtin{}
	for _, name := range Names() {
		text, _ := files.ReadFile(name + ".yaml") // embedded files can always be read
		all[name] = builtin{text, sync.OnceValue(func() *Recipe {
			r, err := parse(name+".yaml", text)
			if err != nil {
				panic(err)
			}
			return r
		})}
	}
	return all
})

// Names lists the agents that are known. It reads no recipe.
func Names() (names []string) {
	entries, _ := files.ReadDir(".") // in order
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// ByName returns the recipe of an agent. The caller must not change it.
func ByName(name string) (*Recipe, error) {
	if b, ok := recipes()[name]; ok {
		return b.parsed(), nil
	}
	return nil, fmt.Errorf("there is no recipe for %.80q; the agents are %s", name, strings.Join(Names(), ", "))
}

// maxFile limits a recipe, in bytes.
const maxFile = 1 << 20

// Load reads a recipe from a file.
func Load(name string) (*Recipe, error) {
	data, err := config.ReadFile(name, maxFile)
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	return parse(name, data)
}

func parse(name string, data []byte) (*Recipe, error) {
	r := &Recipe{Name: strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)), Text: data}
	if err := config.Decode(data, config.YAML, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// Program returns the index of the word of a command line that is the agent's program: its name, a path of it, or its
// package of npm, as npx takes it. It is -1 if there is none.
func (r *Recipe) Program(argv []string) int {
	return slices.IndexFunc(argv, func(word string) bool {
		if path.Base(word) == path.Base(r.Command[0]) {
			return true
		}
		version, ok := strings.CutPrefix(word, r.Package.NPM)
		return ok && r.Package.NPM != "" && (version == "" || version[0] == '@')
	})
}

// check returns what is wrong with the recipe, or nil.
func (r *Recipe) check() error {
	if len(r.Command) == 0 || r.Command[0] == "" {
		return errors.New("command: it is empty; name the agent's program")
	}
	for _, p := range append(slices.Collect(maps.Values(r.Routes)), r.Part) {
		for at, f := range p.Files {
			if !belowHome(at) {
				return fmt.Errorf("files: %q is not a path below ~/", at)
			}
			if (f.JSON == nil) == (f.Text == "") {
				return fmt.Errorf("files: %q needs either json or text", at)
			}
		}
		for name := range p.Env {
			if name == "" || strings.ContainsAny(name, "=\x00") {
				return fmt.Errorf("env: %q is not the name of a variable", name)
			}
		}
	}
	if r.Login != "" && !belowHome(r.Login) {
		return fmt.Errorf("login: %q is not a path below ~/", r.Login)
	}
	return nil
}

func belowHome(name string) bool {
	inside, ok := strings.CutPrefix(name, "~/")
	return ok && filepath.IsLocal(inside)
}

// variable is a reference in a recipe.
var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`) })

// Expand replaces the references to variables in text. The error names one that is not set.
func Expand(text string, value func(name string) (string, bool)) (string, error) {
	var missing error
	text = variable().ReplaceAllStringFunc(text, func(ref string) string {
		name := ref[2 : len(ref)-1]
		v, ok := value(name)
		if !ok {
			missing = fmt.Errorf("the recipe refers to the variable %s, which is not set", name)
		}
		return v
	})
	return text, missing
}

// Of returns what the agent of that name does by itself. The caller must not change it.
func Of(name string) (*Program, bool) {
	b, ok := recipes()[name]
	if !ok {
		return nil, false
	}
	return &b.parsed().Itself, true
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

// LocatesHome reports whether a variable says where the command, or an agent that is known, has its home or its
// temporary files: [schema.Run] keeps its value. A recipe without such a key is not parsed.
func LocatesHome(variable string) bool {
	if variable == "HOME" || variable == "TMPDIR" {
		return true
	}
	for _, b := range recipes() {
		if bytes.Contains(b.text, []byte(variable+":")) {
			if _, ok := b.parsed().Itself.Homes[variable]; ok {
				return true
			}
		}
	}
	return false
}

// Place is where the command of a run has its directories.
type Place struct {
	Workdir string
	// Homes are the values of the variables that [LocatesHome] reports. Nil is not known: then any directory may be a
	// home.
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
