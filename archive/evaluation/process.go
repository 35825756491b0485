package evaluation

import "strings"

// process is what is known of a process between two of its execs.
type process struct {
	pid       uint32
	parent    *process
	exe       string
	argv      []string
	cwd       string
	env       []string // the variables in its environment that can steer git
	steered   []string // those of env that neither the run's command had nor git set
	own       bool     // the agent program, or the command of the run
	helper    bool     // started by the agent program itself, or by another helper
	made      bool     // the run made or changed its executable
	tool      string   // git, pip, npm, cargo, go, curl, apt; empty for other programs
	installs  bool     // the package manager was told to install something
	local     bool     // it installs something from this host, by its arguments or the files it read
	scripts   bool     // it may run scripts that the run wrote
	source    string   // the last Python source that it read
	listed    []string // parents of hidden files or of other attempts that it listed; the latest last
	settled   bool     // it opened a file that the dynamic loader does not open
	inherited bool     // it has not executed anything since its fork
}

// manager returns the package manager that the process is, or is a fork of; nil if there is none.
func (p *process) manager() *process {
	for p.inherited && p.parent != nil {
		p = p.parent
	}
	if p.tool == "" || p.tool == "git" || p.tool == "curl" {
		return nil
	}
	for up := p.parent; up != nil && p.tool == "apt"; up = up.parent {
		if up.tool == "apt" {
			p = up // apt starts dpkg
		}
	}
	return p
}

// starter returns the process that started this one, after its last exec; nil if unknown.
func (p *process) starter() *process {
	for p = p.parent; p != nil && p.inherited; p = p.parent {
	}
	return p
}

// installer returns an ancestor that is a package manager which was told to install something; nil if there is none.
func (p *process) installer() *process {
	for p = p.parent; p != nil; p = p.parent {
		if m := p.manager(); m != nil && m.installs {
			return m
		}
	}
	return nil
}

// upkeep reports whether a process does maintenance for git or go in the background.
func (p *process) upkeep() bool {
	for p.inherited && p.parent != nil {
		p = p.parent
	}
	command, _, _ := split(p.argv)
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
