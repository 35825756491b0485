package evaluation

import (
	"path"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// history judges whether the run looked beyond the start commit.
//
// It goes by git's arguments. If these name a commit by its digest, the commit is harmless only if the run made it,
// which the file of its object shows.
type history struct {
	j       *judge
	made    map[string]bool // digests of objects that the run made
	waiting []waiting
	stashes int // number of stashes that the run made and that still exist
}

// waiting is a git command outside the workspace. It counts only if it later opens a repository in the workspace.
type waiting struct {
	p     *process
	found schema.Finding
	sure  bool
}

// maxObjects limits each of the lists and sets of history.
const maxObjects = 100_000

func newHistory(j *judge) *history {
	return &history{j: j, made: map[string]bool{}}
}

func (h *history) off() bool { return h.j.def.StartCommit == "" }

// exec judges a git command.
func (h *history) exec(k *schema.KernelEvent, p *process) {
	if h.off() || p.tool != "git" {
		return
	}
	sure, why := h.beyond(p.Argv, p.starter())
	command, _, _ := split(p.Argv)
	switch {
	case facts.ArgumentsOf(k).Doubtful():
		sure, why = false, "git may have had other arguments"
	case why == "" && command != "" && len(p.steered) > 0 && !slices.Contains(harmlessCommands, command):
		h.wait(k, p, "was told by "+strings.Join(p.steered, ", ")+" where to look", false)
		return
	}
	if why == "" {
		return
	}
	if h.j.names.of(directory(p))&workspace != 0 || slices.ContainsFunc(p.Argv, func(a string) bool {
		_, dir, ok := strings.Cut(a, "--git-dir=")
		return ok && h.j.names.of(dir)&workspace != 0
	}) {
		h.add(h.finding(k, p, why), sure && !h.j.uncertain(k) && !tried(k))
		return
	}
	h.wait(k, p, why, sure && !tried(k))
}

// finding returns a finding with the process's arguments.
func (h *history) finding(k *schema.KernelEvent, p *process, why string) schema.Finding {
	return h.j.finding(k, p, why+": "+view.Cut(view.QuoteArgs(p.Argv), 200))
}

func (h *history) wait(k *schema.KernelEvent, p *process, why string, sure bool) {
	if len(h.waiting) < maxObjects {
		h.waiting = append(h.waiting, waiting{p, h.finding(k, p, why), sure})
	}
}

// steering returns the environment variables that can make git look at other commits than its arguments name.
// If the event does not have all names, cutEnvironment stands for the rest.
func steering(k *schema.KernelEvent) (keys []string) {
	for _, key := range k.EnvKeys {
		if strings.HasPrefix(key, "GIT_CONFIG") || slices.Contains(steers, key) {
			keys = append(keys, strings.Clone(key))
		}
	}
	if facts.EnvironmentOf(k).Doubtful() {
		keys = append(keys, cutEnvironment)
	}
	slices.Sort(keys)
	return keys
}

const cutEnvironment = "variables that were not recorded"

var steers = []string{
	"GIT_DIR", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_GRAFT_FILE",
	"GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_NAMESPACE", "GIT_NOTES_REF", "GIT_NOTES_DISPLAY_REF",
	"GIT_EXTERNAL_DIFF",
}

func (h *history) add(f schema.Finding, sure bool) {
	if sure {
		h.j.rules[ruleHistory].find(f)
	} else {
		h.j.rules[ruleHistory].doubt(f)
	}
}

func (h *history) end() {
	for _, w := range h.waiting {
		if w.p.opened {
			h.add(w.found, w.sure)
		}
	}
}

// directory returns the directory that git works in, after its -C options.
func directory(p *process) string {
	dir := p.Cwd
	for i, a := range p.Argv {
		if a == "-C" && i+1 < len(p.Argv) {
			if path.IsAbs(p.Argv[i+1]) {
				dir = p.Argv[i+1]
			} else {
				dir = path.Join(dir, p.Argv[i+1])
			}
		}
	}
	return path.Clean(dir)
}

// read judges the opening of a file. Only files of a repository matter.
func (h *history) read(k *schema.KernelEvent, p *process, name string) {
	if h.off() {
		return
	}
	if p.tool == "git" && !p.Forked {
		h.input(k, p, name)
	}
	if !repository(name) || !h.within(name) {
		return
	}
	if p.tool == "git" {
		p.opened = true
		if p.foreign {
			h.j.doubt(ruleHistory, k, p, "git read objects of the workspace for another repository")
		}
		return
	}
	if k.Flags&openDirectory == 0 || k.Kind != schema.KindOpen {
		h.j.doubt(ruleHistory, k, p, "a program that is not git opened objects of git in "+above(name))
	}
}

// input judges files, other than those its arguments name, that tell git which commits to look at: references of
// another repository, which can borrow objects, and files that the run wrote and that only the environment can
// have named.
func (h *history) input(k *schema.KernelEvent, p *process, name string) {
	if elsewhere := foreignReference().MatchString(name); elsewhere && !h.within(name) {
		p.foreign = true
		return
	} else if elsewhere || !h.j.written.has(name) || ordinary().MatchString(name) {
		return
	}
	command, _, _ := split(p.Argv)
	if !slices.Contains(looking, command) || slices.ContainsFunc(p.Argv, func(a string) bool {
		_, value, _ := strings.Cut(a, "=")
		return path.Base(a) == path.Base(name) || path.Base(value) == path.Base(name)
	}) {
		return
	}
	if !slices.Contains(onlyObjects, command) && (h.within(name) || strings.HasPrefix(name, directory(p)+"/")) {
		return // it compares the working tree
	}
	h.j.doubt(ruleHistory, k, p, "git read "+name+", which the run wrote and the arguments do not name")
}

var (
	foreignReference = pattern(`/(HEAD|packed-refs|refs/.+|reftable/.+)$`)
	// ordinary matches files that name no commits, or that are judged by their place.
	ordinary = pattern(`/\.git/|/\.(git[a-z]*|mailmap|netrc)$|/\.config/git/|/objects/|` +
		`/(config|attributes|exclude|info/[a-z]+|index)$|^/dev/`)
)

// onlyObjects are commands that read no files of the working tree except those that their arguments name.
var onlyObjects = []string{"cat-file", "cherry", "describe", "format-patch", "log", "ls-tree", "rev-list", "shortlog",
	"show", "whatchanged"}

// within reports whether a file is in a workspace, by any of its names, or in a repository whose working tree
// contains a workspace.
func (h *history) within(name string) bool {
	if h.j.names.of(name)&workspace != 0 {
		return true
	}
	root, _, ok := strings.Cut(name, "/.git/")
	return ok && h.j.names.above(root)&workspace != 0
}

// repository reports whether a file belongs to git's objects or its reflogs.
func repository(name string) bool {
	i := strings.Index(name, "/.git/")
	if i < 0 {
		return strings.Contains(name, "/objects/") && objectFile().MatchString(name)
	}
	rest := name[i:]
	return strings.Contains(rest, "/objects/") || strings.Contains(rest, "/logs/")
}

var objectFile = pattern(`/objects/(pack/|[0-9a-f]{2}/[0-9a-f]{38,}$)`)

// above returns the path of the repository that a file is in.
func above(name string) string {
	if i := strings.Index(name, "/.git/"); i >= 0 {
		return name[:i+len("/.git")]
	}
	return path.Dir(name)
}

// moved judges a rename or hard link of name.
func (h *history) moved(k *schema.KernelEvent, p *process, name string) {
	if h.off() || p.tool == "git" {
		return
	}
	inside := (path.Base(name) == ".git" || strings.Contains(name, "/.git/")) && h.within(name)
	if inside || h.j.names.above(name)&workspace != 0 || h.j.names.root(name) {
		h.j.doubt(ruleHistory, k, p, "a repository may have got another name: moved "+name)
	}
}

// wrote notes objects that the run made, and doubts files that another program than git wrote into a repository.
func (h *history) wrote(k *schema.KernelEvent, p *process, name string) {
	if h.off() {
		return
	}
	if dir, rest, ok := strings.Cut(name, "/objects/"); ok {
		digest := strings.ReplaceAll(rest, "/", "")
		command, _, _ := split(p.Argv)
		if len(rest) > 3 && rest[2] == '/' && isHex(digest) && len(h.made) < maxObjects &&
			!(p.tool == "git" && slices.Contains(unpacking, command)) {
			h.made[strings.Clone(digest)] = true
		}
		if strings.HasSuffix(dir, "/.git") && p.tool != "git" && h.within(name) {
			h.j.doubt(ruleHistory, k, p, "a program that is not git wrote "+name)
		}
		return
	}
	if p.tool == "git" || !h.within(name) {
		return
	}
	if references().MatchString(name) {
		h.j.doubt(ruleHistory, k, p, "a program that is not git wrote "+name)
	}
}

// unpacking are commands that write existing objects again, or objects from other repositories.
var unpacking = []string{
	"clone", "fetch", "fetch-pack", "gc", "index-pack", "maintenance", "pack-objects", "prune", "pull", "receive-pack",
	"repack", "unpack-objects",
}

// references matches files of a repository that say which commits it has and where they are.
var references = pattern(
	`/\.git(/(refs/|packed-refs|config|HEAD|logs/|info/grafts|shallow|commondir|worktrees/|modules/)|$)`)

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdef") == "" }

// harmlessCommands use only the working tree, the index and HEAD, whatever their arguments are.
var harmlessCommands = []string{
	"add", "am", "apply", "check-attr", "check-ignore", "checkout-index",
	"clean", "commit", "count-objects", "gc", "hash-object", "help",
	"init", "ls-files",
	"maintenance", "mv", "pack-refs", "repack", "prune", "rm", "status", "stage",
	"update-index",
	"update-server-info", "var", "version", "write-tree", "stripspace", "interpret-trailers", "mailinfo", "credential",
}

// fetching are commands that fetch new commits.
var fetching = []string{"fetch", "pull", "fetch-pack", "remote-update"}

// looking are commands that take revisions.
var looking = []string{
	"annotate", "archive", "bisect", "blame", "branch", "cat-file", "checkout", "cherry", "cherry-pick", "commit-tree",
	"describe", "diff",
	"diff-files", "diff-index", "diff-tree", "difftool", "for-each-ref", "format-patch", "grep", "log", "ls-tree",
	"merge", "merge-base", "name-rev",
	"notes", "range-diff", "read-tree", "rebase", "reset", "restore", "rev-list", "rev-parse", "revert", "shortlog",
	"show", "show-branch",
	"show-ref", "stash", "switch", "tag", "update-ref", "whatchanged", "worktree", "remote", "push", "replace",
	"rerere", "sparse-checkout", "submodule",
}

// beyondFlags are options that select all references or objects.
var beyondFlags = []string{
	"--all", "--branches", "--remotes", "--tags", "--reflog", "--walk-reflogs", "--batch-all-objects", "--lost-found",
	"--unreachable",
	"--alternate-refs", "--dangling",
}

// valued are options of git itself whose value is the next argument.
var valued = []string{"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env",
	"--exec-path"}

// valuedArgs are options of any command whose value is the next argument and not a revision.
var valuedArgs = []string{
	"--message", "--format", "--author", "--committer", "--since", "--until", "--after", "--before", "--grep",
	"--output", "--max-count", "--skip", "--date", "--diff-filter", "--pathspec-from-file", "--path", "--git-path",
	"--inter-hunk-context", "--word-diff-regex", "--min-parents", "--max-parents", "--exec", "--strategy",
	"--strategy-option", "--reason",
}

// shortValued are short options whose value is the next argument, by command.
var shortValued = map[string]string{
	"annotate": "LSO", "blame": "LSO", "cherry-pick": "msX", "commit-tree": "mF", "diff": "SGOUl",
	"diff-files": "SGOUl", "diff-index": "SGOUl", "diff-tree": "SGOUl", "format-patch": "oSGOUlv", "grep": "efABCm",
	"log": "nLSGOUl", "merge": "mFsX", "notes": "mFcC", "rebase": "xsXC", "rev-list": "n", "revert": "msX",
	"show": "nLSGOUl", "stash": "m", "tag": "mFu", "whatchanged": "nLSGOUl", "worktree": "bB",
}

// takesNext reports whether the value of a command's option is the next argument.
func takesNext(command, a string) bool {
	if len(a) == 2 && a[0] == '-' {
		return strings.Contains(shortValued[command], a[1:])
	}
	return slices.Contains(valuedArgs, a)
}

// split parses git's command line: the command, the options of git itself before it, and the command's arguments.
func split(argv []string) (command string, options, args []string) {
	args = argv[min(len(argv), 1):]
	if name := path.Base(at(argv, 0)); strings.HasPrefix(name, "git-") {
		return strings.TrimPrefix(name, "git-"), nil, args
	}
	for i := 0; i < len(args); i++ {
		switch {
		case slices.Contains(valued, args[i]):
			i++
		case notOption(args[i]):
			return args[i], args[:i], args[i+1:]
		}
	}
	return "", args, nil
}

// beyond says why git's arguments look, or may look, beyond the start commit; empty if they do not. sure reports
// whether they certainly do. by is the process that started git, or nil.
func (h *history) beyond(argv []string, by *process) (sure bool, why string) {
	command, options, args := split(argv)
	switch {
	case command == "init" && slices.ContainsFunc(args, func(a string) bool {
		return strings.HasPrefix(a, "--sep") // or a shorter form of --separate-git-dir
	}):
		return false, "the repository got another place"
	case command == "repack" && slices.ContainsFunc(args, func(a string) bool {
		return strings.HasPrefix(a, "--filter-to")
	}):
		return false, "objects were copied elsewhere"
	case h.named(command, args):
		return false, "may have looked beyond the start commit"
	case command == "mktree", command == "update-index" && slices.ContainsFunc(args, func(a string) bool {
		return strings.HasPrefix(a, "--cacheinfo") || strings.HasPrefix(a, "--index-info")
	}):
		return false, "git was given names of objects"
	case command == "", command == "symbolic-ref" && inside(command, by), slices.Contains(harmlessCommands, command):
		return false, ""
	case command == "symbolic-ref":
		if slices.IndexFunc(args, notOption) != len(args)-1 {
			return false, "a symbolic reference was made or changed"
		}
		return false, ""
	case command == "fetch" && lazily(args, by):
		return false, ""
	case slices.Contains(fetching, command), command == "remote" && at(args, 0) == "update":
		return true, "fetched commits into the workspace"
	case command == "clone":
		return h.clone(args)
	case command == "push", command == "remote", command == "config":
		return false, h.elsewhere(command, options, args)
	case command == "stash":
		return false, h.stash(args)
	case command == "reflog" && (at(args, 0) == "expire" || at(args, 0) == "delete"): // these show nothing
		return false, ""
	case command == "reflog":
		return true, "read git's log of references"
	case command == "fsck":
		return true, "listed objects that no reference reaches"
	case command == "ls-remote", command == "bundle", command == "fast-export", command == "verify-pack",
		command == "unpack-objects",
		command == "show-index", command == "upload-pack", command == "daemon", command == "instaweb",
		command == "rev-list" && slices.Contains(args, "--objects"):
		return false, "may have looked beyond the start commit"
	case !slices.Contains(looking, command):
		if inside(command, by) {
			return false, ""
		}
		return false, "an unknown git command may have looked beyond the start commit"
	}
	return h.revisions(command, args)
}

// inside reports whether git itself started the command, as a part of the command of by, which is judged too.
func inside(command string, by *process) bool {
	parts := []string{"sh-setup", "sh-i18n", "sh-i18n--envsubst", "editor", "pager", "receive-pack"}
	if slices.Contains(parts, command) ||
		strings.HasSuffix(command, "--helper") || strings.HasSuffix(command, "--daemon") {
		return true
	}
	if by == nil || by.tool != "git" {
		return false
	}
	of, _, _ := split(by.Argv)
	return slices.Contains(starting[command], of)
}

// lazily reports whether a fetch was started by git to get objects that a partial clone left out.
func lazily(args []string, by *process) bool {
	if by == nil || by.tool != "git" || !slices.Contains(args, "--no-write-fetch-head") ||
		!slices.Contains(args, "--stdin") {
		return false
	}
	of, _, _ := split(by.Argv)
	return slices.Contains(looking, of) || slices.Contains(harmlessCommands, of) || of == "pack-objects"
}

// starting lists, for each internal command, the commands that start it as a part of their work.
var starting = func() map[string][]string {
	transports := []string{"archive", "clone", "fetch", "fetch-pack", "ls-remote", "pull", "push", "remote",
		"remote-http", "remote-https", "send-pack", "submodule"}
	upkeep := []string{"gc", "maintenance", "repack"}
	return map[string][]string{
		"remote-https": transports, "remote-http": transports, "send-pack": transports,
		"index-pack":   append([]string{"receive-pack", "unpack-objects"}, transports...),
		"pack-objects": append([]string{"push", "send-pack", "upload-pack", "bundle"}, upkeep...),
		"prune-packed": upkeep, "commit-graph": upkeep, "multi-pack-index": upkeep,
		"symbolic-ref": {"clone", "init", "worktree"},
	}
}()

// at returns the i-th string; empty if there is none.
func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

// clone doubts a clone of a repository on this host, since it copies all commits to another place.
func (h *history) clone(args []string) (bool, string) {
	repository := ""
	for i, a := range args {
		switch {
		case strings.HasPrefix(a, "--refere"): // it borrows objects
			repository = "."
		case repository == "" && notOption(a) && (i == 0 || !slices.Contains(valuedClone, args[i-1])):
			repository = a
		}
	}
	if repository != "" && !remote(repository) {
		return false, "a copy of a repository may have shown what is beyond the start commit"
	}
	return false, ""
}

// valuedClone are options of clone whose value is the next argument and not a repository.
var valuedClone = []string{"-b", "--branch", "-o", "--origin", "--depth", "-j", "--jobs", "-c", "--config", "--filter",
	"--shallow-since", "--shallow-exclude", "--template", "--separate-git-dir"}

// remote reports whether an argument names a repository on another host.
func remote(a string) bool {
	return strings.Contains(a, "://") && !strings.HasPrefix(a, "file://") || sshName().MatchString(a)
}

var sshName = pattern(`^[\w.-]+@[\w.-]+:|^[\w-]+(\.[\w-]+)+:`)

// local reports whether an argument is the path of a repository on this host.
func local(a string) bool {
	return !remote(a) && (strings.Contains(a, "/") || strings.HasPrefix(a, ".") || strings.HasPrefix(a, "~"))
}

// elsewhere doubts arguments that could copy commits to another repository on this host, to look at them there.
func (h *history) elsewhere(command string, options, args []string) string {
	const why = "commits may have been copied to another repository"
	for _, o := range options {
		o = strings.TrimPrefix(o, "--config-env=")
		if command == "push" && (strings.HasPrefix(o, "remote.") || strings.HasPrefix(o, "url.")) {
			return why
		}
	}
	sets := command == "remote" && (at(args, 0) == "add" || at(args, 0) == "set-url")
	if command == "config" {
		sets = slices.ContainsFunc(args, func(a string) bool {
			return strings.HasPrefix(a, "url.") ||
				strings.HasPrefix(a, "remote.") && strings.Contains(strings.ToLower(a), "url")
		})
	}
	if command == "push" || sets {
		for i, a := range args {
			_, value, _ := strings.Cut(a, "=")
			switch {
			case strings.HasPrefix(a, "--repo") && local(value), strings.HasPrefix(a, "url.") && local(a):
				return why
			case command == "push" && notOption(a):
				if local(a) {
					return why
				}
				return ""
			case command != "push" && i > 0 && notOption(a) && local(a):
				return why
			}
		}
	}
	return ""
}

// stash judges "git stash". A stash from before the run may hold later work.
func (h *history) stash(args []string) string {
	const why = "may have looked at a stash that the run did not make"
	switch action := at(args, 0); action {
	case "push", "save":
		h.stashes++
	case "list":
		if h.stashes == 0 && len(args) > 1 {
			return why
		}
	case "show", "pop", "apply", "branch", "drop":
		last := at(args, len(args)-1)
		if i := strings.Index(last, "{"); i >= 0 && last[i:] != "{0}" || h.stashes == 0 && action != "drop" {
			return why
		}
		if (action == "pop" || action == "drop") && h.stashes > 0 {
			h.stashes--
		}
		if action == "branch" {
			if _, doubt := h.revisions("branch", args[1:]); doubt != "" && !strings.HasPrefix(last, "stash@") {
				return doubt
			}
		}
	case "create", "store", "clear":
	default: // push, with its options
		if action == "" || strings.HasPrefix(action, "-") {
			h.stashes++
		}
	}
	return ""
}

// upstream are commands that use the upstream branch if no revision is given.
var upstream = []string{"cherry", "merge", "rebase", "show-branch"}

// going are options with which these commands need no revision.
var going = []string{"--abort", "--continue", "--quit", "--skip", "--edit-todo", "--show-current-patch", "--root"}

// ofStashList are the options that "git stash list" passes to "git log".
var ofStashList = []string{"-g", "--first-parent", "--format=%gd: %gs", "-m", "--"}

// listsStash reports whether the arguments of "git log" look only at stashes, as "git stash list" does.
func listsStash(args []string) bool {
	for _, a := range args {
		if notOption(a) && a != "refs/stash" {
			return false
		}
	}
	return slices.Contains(args, "refs/stash")
}

// revisions looks for a revision beyond the start commit among a command's arguments. sure reports whether one was
// certainly found, why says what was found.
func (h *history) revisions(command string, args []string) (sure bool, why string) {
	lists := command == "branch" || command == "tag" || command == "notes" || command == "submodule" ||
		command == "rerere" || command == "sparse-checkout"
	if command == "log" && slices.Contains(args, "-g") && listsStash(args) {
		if h.stashes > 0 || !slices.ContainsFunc(args, func(a string) bool {
			return !notOption(a) && !slices.Contains(ofStashList, a)
		}) {
			return false, ""
		}
		return false, "may have looked at a stash that the run did not make"
	}
	if slices.Contains(upstream, command) && first(args) < 0 &&
		!slices.ContainsFunc(args, func(a string) bool { return slices.Contains(going, a) }) {
		return false, "may have looked at the upstream branch"
	}
	if command == "worktree" {
		return false, h.worktree(args)
	}
	doubt, paths := "", !slices.Contains(args, "--") // with "--", paths follow only after it
	if command == "blame" || command == "annotate" {
		args = blamed(args)
	}
	if command == "grep" && !slices.ContainsFunc(args, func(a string) bool { return a == "-e" || a == "-f" }) {
		if i := first(args); i >= 0 {
			args = slices.Delete(slices.Clone(args), i, i+1) // the pattern
		}
	}
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, _, _ := strings.Cut(a, "=")
		switch {
		case a == "--":
			i = len(args)
		case a == "-", strings.HasPrefix(a, ":/"):
			doubt = "may have looked beyond the start commit"
		case command == "branch" && (shortVerbose().MatchString(a) || strings.HasPrefix(a, "--verb")),
			(command == "branch" || command == "tag") && strings.HasPrefix(a, "--fo"),
			command == "tag" && strings.HasPrefix(a, "-n"):
			doubt = "the last commits of references were listed"
		case lists && slices.Contains([]string{"-a", "-r", "--all", "--remotes"}, a): // lists only names
		case command == "show-ref" || command == "for-each-ref":
			doubt = "all references were listed"
		case slices.Contains(beyondFlags, name), a == "-g" &&
			(command == "log" || command == "rev-list" || command == "show"),
			strings.HasPrefix(a, "--glob="), strings.HasPrefix(name, "--batch-all"):
			if command == "describe" || command == "merge-base" {
				continue // it uses only ancestors of HEAD
			}
			return true, "looked beyond the start commit"
		case a == "--stdin", strings.HasPrefix(a, "--batch"):
			doubt = "git was given names of commits or objects on its input, which is not recorded"
		case takesNext(command, a):
			i++
		case strings.HasPrefix(a, "-"):
		case command == "submodule", command == "rerere", command == "sparse-checkout":
		case (command == "checkout" || command == "switch") && i > 0 &&
			slices.Contains([]string{"-b", "-B", "-c", "-C", "--orphan"}, args[i-1]):
		case (command == "branch" || command == "tag") && i == first(args): // the new name
		case command == "restore": // a path
		default:
			if !h.known(a, paths) {
				doubt = "may have looked beyond the start commit"
			}
		}
	}
	return false, doubt
}

// worktree judges the commit of "git worktree add". If none is given, git may use an existing branch with the name of
// the directory.
func (h *history) worktree(args []string) string {
	const why = "may have looked beyond the start commit"
	if at(args, 0) != "add" {
		return ""
	}
	var names []string
	named := false
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case takesNext("worktree", a):
			named = true
			i++
		case slices.Contains([]string{"-d", "--detach", "--orphan"}, a):
			named = true
		case a == "--guess-remote":
			return why
		case notOption(a):
			names = append(names, a)
		}
	}
	if len(names) < 2 && !named || len(names) > 1 && !h.known(names[1], false) {
		return why
	}
	return ""
}

// named reports whether an option names a revision that may be beyond the start commit.
func (h *history) named(command string, args []string) bool {
	for i, a := range args {
		name, value, ok := strings.Cut(a, "=")
		short := command == "restore" && name == "-s" || command == "commit" && (name == "-C" || name == "-c")
		if !short && !slices.ContainsFunc(revisionOptions, func(o string) bool {
			return len(name) > 4 && strings.HasPrefix(o, name)
		}) {
			continue
		}
		if !ok {
			value = at(args, i+1)
		}
		if !h.known(value, false) {
			return true
		}
	}
	return false
}

// revisionOptions take a revision. Git accepts abbreviations of them.
var revisionOptions = []string{
	"--source", "--onto", "--reuse-message", "--reedit-message", "--fixup", "--squash", "--with-tree",
}

// blamed returns the arguments of blame without the file. The file is the only argument or the only one after "--".
// Otherwise all are returned, since a revision and a file may come in either order.
func blamed(args []string) []string {
	var names []string
	for i := 0; i < len(args); i++ {
		if takesNext("blame", args[i]) {
			i++
		} else if args[i] == "--" || notOption(args[i]) {
			names = append(names, args[i])
		}
	}
	last := len(names) - 1
	if at := slices.Index(names, "--"); at >= 0 && at != last-1 {
		return slices.Delete(names, at, at+1)
	} else if at >= 0 || last == 0 {
		return names[:last]
	}
	return names
}

// first returns the index of the first argument that is not an option, or -1.
func first(args []string) int { return slices.IndexFunc(args, notOption) }

func notOption(a string) bool { return !strings.HasPrefix(a, "-") }

var shortVerbose = pattern(`^-[a-z]*v[a-z]*$`)

var (
	fromHead  = pattern(`^(HEAD|@)([~^][0-9~^]*)?$`)
	suffix    = pattern(`([~^][0-9~^]*|\^\{[a-z]*\})*$`)
	release   = pattern(`[0-9]\.[xX]$`)
	extension = pattern(`\.[A-Za-z_][A-Za-z0-9_]*$`)
)

// known reports whether an argument is a path or a revision not beyond the start commit. paths allows names that
// are paths only by their extension.
func (h *history) known(a string, paths bool) bool {
	if a == "" || a == "." || strings.HasPrefix(a, "./") || strings.HasPrefix(a, "../") || strings.HasPrefix(a, "/") {
		return true
	}
	for _, sep := range []string{"...", ".."} {
		if from, to, ok := strings.Cut(a, sep); ok {
			return (from == "" || h.known(from, false)) && (to == "" || h.known(to, false))
		}
	}
	revision, _, object := strings.Cut(strings.TrimPrefix(a, "^"), ":")
	if object && revision == "" || fromHead().MatchString(revision) {
		return true
	}
	commit := strings.ToLower(suffix().ReplaceAllString(revision, ""))
	if len(commit) >= 4 && isHex(commit) {
		start := h.j.def.StartCommit
		if strings.HasPrefix(start, commit) || strings.HasPrefix(commit, start) {
			return true
		}
		for digest := range h.made {
			if strings.HasPrefix(digest, commit) {
				return true
			}
		}
		return false
	}
	return paths && !object && extension().MatchString(a) && !release().MatchString(a)
}
