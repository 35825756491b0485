package evaluation

import "strings"

// process is a process instance.
type process struct {
	pid       uint32
	parent    *process
	exe       string
	argv      []string
	cwd       string
	env       []string // the names in its environment that say where git looks
	told      []string // those of env that neither assay-run's command was given nor git gives to what it starts
	own       bool     // the agent program, or the command of the run
	helper    bool     // the agent program started it by itself, or such a process did
	made      bool     // the run made or changed its executable
	tool      string   // git, pip, npm, cargo, go, curl or another manager of packages
	installs  bool     // the manager was told to install something
	local     bool     // it installs something of this host, as far as its arguments or what it read tell
	scripts   bool     // it may run scripts that the run wrote
	source    string   // the last source of Python's that it read
	listed    []string // directories of interest that it listed
	settled   bool     // it opened a file that the loader does not
	inherited bool     // it did not execute anything itself yet
}

// manager is the process itself if it manages packages, or the one that it is a fork of.
func (p *process) manager() *process {
	for p.inherited && p.parent != nil {
		p = p.parent
	}
	if p.tool == "" || p.tool == "git" || p.tool == "curl" {
		return nil
	}
	for up := p.parent; up != nil && p.tool == "apt"; up = up.parent {
		if up.tool == "apt" {
			p = up // dpkg, with what apt gave it
		}
	}
	return p
}

// starter is the process that started this one.
func (p *process) starter() *process {
	for p = p.parent; p != nil && p.inherited; p = p.parent {
	}
	return p
}

// installer is a manager of packages that was told to install something and, for that, started the process.
func (p *process) installer() *process {
	for p = p.parent; p != nil; p = p.parent {
		if m := p.manager(); m != nil && m.installs {
			return m
		}
	}
	return nil
}

// upkeep reports whether a process is one of git's or go's that such a process started.
func (p *process) upkeep() bool {
	for p.inherited && p.parent != nil {
		p = p.parent
	}
	command, _, _ := split(p.argv)
	by := p.starter()
	return p.tool == "git" && (command == "gc" || command == "maintenance") ||
		p.tool == "go" && by != nil && by.tool == "go"
}

// list keeps that the process listed a directory.
func (p *process) list(name string) {
	if len(p.listed) == 1000 {
		p.listed = p.listed[1:]
	}
	p.listed = append(p.listed, strings.Clone(name))
}

// fetched reports whether a file is where a manager of packages that builds them keeps what it fetched.
func (p *process) fetched(name string) bool {
	return p.tool == "go" && strings.Contains(name, "/pkg/mod/") || p.tool == "cargo" &&
		strings.Contains(name, "/.cargo/")
}
