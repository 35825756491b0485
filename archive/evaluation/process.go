package evaluation

import (
	"path"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema/facts"
)

// process is what only this package knows of a process between two of its execs. It is the note of the instance.
type process struct {
	*facts.Instance
	env      []string // the variables in its environment that can steer git
	steered  []string // those of env that neither the run's command had nor git set
	own      bool     // the agent program, or the command of the run
	helper   bool     // started by the agent program itself, or by another helper
	made     bool     // the run made or changed its executable, or its script, or a library that it loads
	tool     string   // git, pip, npm, cargo, go, curl, apt; empty for other programs
	installs bool     // the package manager was told to install something
	local    bool     // it installs something from this host, by its arguments or the files it read
	hooked   bool     // it is apt or dpkg, and the run gave it commands to run
	scripts  bool     // it may run scripts that the run wrote
	source   string   // the last Python source that it read
	listed   []string // parents of hidden files or of other attempts that it listed; the latest last
	settled  bool     // it opened a file that the dynamic loader does not open
	opened   bool     // it is git and opened a repository of the workspace
	agents   *process // in a check: the program of the agent's that the check executed, this one or above; else nil
	loads    string   // in a check: a file with code that it read and that the run wrote
	entered  bool     // it executes a program of the run's container, not one of its engine
	baseline bool     // of a check that ran before the agent
	foreign  bool     // it is git and opened references of another repository
}

// nobody is a process of which only the id is known.
type nobody struct {
	process
	instance facts.Instance
}

// as makes n the process with the id. Nothing keeps the result longer than its line.
func (n *nobody) as(pid uint32) *process {
	*n = nobody{instance: facts.Instance{PID: pid}}
	n.Instance = &n.instance
	return &n.process
}

// noted returns what is known of an instance; nil if there is none.
func noted(in *facts.Instance) *process {
	if in == nil {
		return nil
	}
	p, _ := in.Note.(*process)
	return p
}

// parent returns the process that forked this one, or that this one replaced by an exec; nil if unknown.
func (p *process) parent() *process { return noted(p.Parent) }

// executed returns the process as it was when it last executed something.
func (p *process) executed() *process {
	for up := p; up != nil; up = up.parent() {
		if p = up; !p.Forked {
			break
		}
	}
	return p
}

// manager returns the package manager that the process is, or is a fork of; nil if there is none.
func (p *process) manager() *process {
	p = p.executed()
	if p.tool == "" || p.tool == "git" || p.tool == "curl" {
		return nil
	}
	for up := p.parent(); up != nil && p.tool == "apt"; up = up.parent() {
		if up.tool == "apt" {
			p = up // apt starts dpkg
		}
	}
	return p
}

// program names what the process executes: its executable, and the script or module of an interpreter.
func (p *process) program() string {
	if i := module(p.Exe, p.Argv); i > 0 {
		return p.Exe + " -m " + p.Argv[i]
	}
	return strings.TrimSuffix(p.Exe+" "+script(p.Exe, p.Argv), " ")
}

// starter returns the process that started this one, after its last exec; nil if unknown.
func (p *process) starter() *process { return noted(p.Starter()) }

// installer returns an ancestor that is a package manager which was told to install something; nil if there is none.
func (p *process) installer() *process {
	for p = p.parent(); p != nil; p = p.parent() {
		m := p.manager()
		if m != nil && m.hooked {
			return nil // it may be the run's command, which is no part of a package
		}
		if m != nil && m.installs {
			return m
		}
	}
	return nil
}

// hook matches options of apt and dpkg that name commands to run.
var hook = pattern(`(?i)(post|pre)-invoke|pre-install-pkgs|^--(config-file|admindir)|^-c`)

// configures reports whether a file configures apt or dpkg.
func configures(name string) bool {
	return strings.HasPrefix(name, "/etc/apt/apt.conf") || strings.HasPrefix(name, "/etc/dpkg/dpkg.cfg") ||
		strings.HasPrefix(path.Base(name), "apt.conf") || path.Base(name) == ".dpkg.cfg"
}

// upkeep reports whether a process does maintenance for git or go in the background.
func (p *process) upkeep() bool {
	p = p.executed()
	command, _, _ := split(p.Argv)
	by := p.starter()
	return p.tool == "git" && (command == "gc" || command == "maintenance") ||
		p.tool == "go" && by != nil && by.tool == "go"
}

// list notes that the process listed a directory.
func (p *process) list(name string) {
	if len(p.listed) == 1000 {
		p.listed = p.listed[1:]
	}
	p.listed = append(p.listed, strings.Clone(name))
}

// fetched reports whether a file is where go or cargo keeps what it fetched.
func (p *process) fetched(name string) bool {
	return p.tool == "go" && strings.Contains(name, "/pkg/mod/") || p.tool == "cargo" &&
		strings.Contains(name, "/.cargo/")
}

// asked reports whether an argument of the program names the file, or a directory above it.
func (p *process) asked(name string) bool {
	return slices.ContainsFunc(p.Argv, func(arg string) bool {
		if _, value, ok := strings.Cut(arg, "="); ok {
			arg = value
		}
		if path.Base(arg) == path.Base(name) {
			return true
		}
		if !path.IsAbs(arg) {
			arg = path.Join(p.Cwd, arg)
		}
		return arg != "/" && strings.HasPrefix(name, path.Clean(arg)+"/")
	})
}
