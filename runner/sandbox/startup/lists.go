package startup

import (
	"slices"
	"strings"
)

// What programs obey when they start. To allow one of these paths, a policy names it in filesystem.allowWrite.

// workspaceFiles are in the working directory, at the root of each repository in it, and, if they are there, in every
// other directory of the workspace, which somebody may open or enter: see anywhere.
var workspaceFiles = []string{
	".vscode", // VS Code: tasks, settings, launch
	".idea",   // JetBrains
	".run",
	".zed",
	".fleet",
	".devcontainer", // containers for development
	".devcontainer.json",
	".mcp.json",             // servers that agents start
	".claude/settings.json", // Claude Code
	".claude/settings.local.json",
	".claude/agents",
	".claude/commands",
	".claude/hooks",
	".claude/skills",
	".codex", // Codex
	".agents",
	".gemini/settings.json", // Gemini CLI
	".gemini/commands",
	".gemini/extensions",
	".cursor/mcp.json", // Cursor
	".cursor/hooks.json",
	".cursor/hooks",
	".opencode/agent", // opencode
	".opencode/command",
	".opencode/plugin",
	"opencode.json",
	".aider.conf.yml",
	".continue",
	".envrc",     // direnv
	".mise.toml", // mise
	"mise.toml",
	".gitmodules", // git
	".ripgreprc",
	".exrc", // vi, Vim, Neovim
	".vimrc",
	".nvimrc",
	".nvim.lua",
	".lvimrc",
	".dir-locals.el", // Emacs
	".gdbinit",       // debuggers
	".lldbinit",
	".bashrc", // shells, if this is a home directory
	".bash_profile",
	".profile",
	".zshrc",
	".zshenv",
	".zprofile",
	".gitconfig",
}

// anywhere are the first parts of workspaceFiles that a program obeys in any directory in which it starts. Git reads
// .gitmodules at the root alone, and shells read their files in a home.
var anywhere = func() map[string]bool {
	names := map[string]bool{}
	for _, name := range workspaceFiles[:slices.Index(workspaceFiles, ".bashrc")] {
		first, _, _ := strings.Cut(name, "/")
		names[first] = name != ".gitmodules"
	}
	return names
}()

// packageDirs have other people's packages in them, which nobody opens or enters to work there, and which a package
// manager replaces.
var packageDirs = []string{"node_modules", "site-packages", "dist-packages", "vendor", "bower_components"}

// ofPackages reports whether dir is in a directory of packages.
func ofPackages(dir string) bool {
	return slices.ContainsFunc(packageDirs, func(name string) bool { return strings.Contains(dir+"/", "/"+name+"/") })
}

// homeFiles are in the home directory.
var homeFiles = []string{
	".bashrc",
	".bash_profile",
	".bash_login",
	".bash_logout",
	".profile",
	".zshrc",
	".zshenv",
	".zprofile",
	".zlogin",
	".zlogout",
	".kshrc",
	".cshrc",
	".tcshrc",
	".login",
	".config/fish/config.fish",
	".ssh/authorized_keys",
	".ssh/config",
	".gitconfig",
	".config/git/config",
}

// Keys of git's configuration, as git prints them, with * for any part. All other keys may start a program, or let
// git read more files that do.

// carriedKeys are what git itself writes in ordinary work. A sandbox lets the command write these, and brings them back
// after the run.
var carriedKeys = []string{
	"branch.*.description",
	"branch.*.merge",
	"branch.*.pushremote",
	"branch.*.rebase",
	"branch.*.remote",
	"branch.*.vscode-merge-base",
	"remote.*.fetch",
	"remote.*.gh-resolved",
	"remote.*.mirror",
	"remote.*.prune",
	"remote.*.push",
	"remote.*.pushurl",
	"remote.*.tagopt",
	"remote.*.url",
	"submodule.*.active",
	"submodule.*.branch",
	"submodule.*.url",
	"submodule.active",
}

// harmlessKeys start nothing.
var harmlessKeys = []string{
	"advice.*",
	"branch.autosetupmerge",
	"branch.autosetuprebase",
	"branch.sort",
	"clone.*",
	"color.*",
	"color.*.*",
	"column.*",
	"commit.*",
	"core.abbrev",
	"core.autocrlf",
	"core.bare",
	"core.compression",
	"core.eol",
	"core.filemode",
	"core.ignorecase",
	"core.logallrefupdates",
	"core.longpaths",
	"core.precomposeunicode",
	"core.quotepath",
	"core.repositoryformatversion",
	"core.safecrlf",
	"core.sharedrepository",
	"core.sparsecheckout",
	"core.sparsecheckoutcone",
	"core.splitindex",
	"core.symlinks",
	"core.untrackedcache",
	"core.whitespace",
	"core.worktree",
	"extensions.*",
	"feature.*",
	"fetch.*",
	"gc.auto",
	"gc.autodetach",
	"gc.autopacklimit",
	"gc.pruneexpire",
	"gc.reflogexpire",
	"gc.reflogexpireunreachable",
	"gc.writecommitgraph",
	"http.postbuffer",
	"i18n.*",
	"index.*",
	"init.defaultbranch",
	"lfs.repositoryformatversion",
	"log.*",
	"maintenance.*",
	"merge.conflictstyle",
	"merge.ff",
	"pack.*",
	"pull.*",
	"push.*",
	"rebase.*",
	"receive.denycurrentbranch",
	"receive.denynonfastforwards",
	"rerere.*",
	"status.*",
	"tag.*",
	"transfer.*",
	"user.email",
	"user.name",
	"user.signingkey",
	"user.useconfigonly",
	"versionsort.*",
}
