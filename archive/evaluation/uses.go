package evaluation

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// uses is what checks read, executed and searched for: before the agent (the baseline) and after it; and what the run
// itself used.
type uses struct {
	before, after map[string]use
	used          map[string]bool     // programs and modules that the run used or removed before it wrote them
	bases         map[string]int      // number of those by last name; nil until needed
	alike         map[string][]string // names that were used before, by what a program asks for; see wanted
	writers       map[string][]string // programs of the baseline's checks that changed a file, by its name
	image         map[string][]string // programs that were in PATH when the run started, by their last name
	search        map[string]bool     // the directories of PATH then
	overflow      bool                // a limit was reached
}

// use is what was done under a name.
type use uint8

const (
	searched use = 1 << iota // and not found
	opened
	executed
	renewed // a reward: written or removed
)

func newUses(start *schema.EvaluationStart) uses {
	u := uses{before: map[string]use{}, after: map[string]use{}, used: map[string]bool{}, alike: map[string][]string{},
		writers: map[string][]string{}, image: map[string][]string{}, search: map[string]bool{}}
	if start == nil {
		return u
	}
	if start.Container != nil { // the other programs are those of the host
		start = start.Container
	}
	for _, dir := range slices.Sorted(maps.Keys(start.Programs)) {
		u.search[dir] = true
		for _, name := range start.Programs[dir] {
			u.image[name] = append(u.image[name], path.Join(dir, name))
		}
	}
	return u
}

// baseline reports whether checks ran before the agent.
func (u *uses) baseline() bool { return len(u.before) > 0 }

// note notes a line of a check.
func (u *uses) note(k *schema.KernelEvent, p *process) {
	if k.Kind == schema.KindExecFailed || k.Failed() {
		if e := k.Errno(); (k.Kind == schema.KindExecFailed || k.Kind == schema.KindOpen) && e == "ENOENT" {
			u.add(p, k.Value, searched)
		}
		return
	}
	for name, how := range k.Touches() {
		if how&schema.AccessModify != 0 && p.baseline && len(u.writers) < maxUsed {
			name = strings.Clone(name)
			if who := p.executed().program(); !slices.Contains(u.writers[name], who) {
				u.writers[name] = append(u.writers[name], who)
			}
		}
		done := opened
		switch {
		case how&schema.AccessRun != 0:
			done = executed
		case how&schema.AccessRead == 0:
			continue
		}
		u.add(p, name, done)
		if link := linkTo(k, name); link != "" {
			u.add(p, link, done)
		}
	}
}

func (u *uses) add(p *process, name string, how use) {
	at := u.after
	if p.baseline {
		at = u.before
	}
	old, known := at[name]
	if !path.IsAbs(name) || old&how != 0 {
		return
	}
	if !known && len(at) == maxUsed {
		u.overflow = true
		return
	}
	name = strings.Clone(name)
	at[name] = old | how
	if p.baseline && how != searched && old&(opened|executed) == 0 {
		w := wanted(name)
		u.alike[w] = append(u.alike[w], name)
	}
}

// use notes that the run used a program or module that it had not written.
func (u *uses) use(name string) {
	if len(u.used) < maxUsed && !u.used[name] {
		u.used[strings.Clone(name)] = true
	}
}

// usedByRun reports whether the run used it so.
func (u *uses) usedByRun(name string) bool { return u.used[name] }

// of returns what checks did with a name, before the agent and after it.
func (u *uses) of(name string) (before, after use) { return u.before[name], u.after[name] }

// changed reports whether the baseline's checks changed a file.
func (u *uses) changed(name string) bool { return len(u.writers[name]) > 0 }

// hides reports whether the run used another program of that name, elsewhere.
func (u *uses) hides(name string) bool {
	if u.bases == nil {
		u.bases = map[string]int{}
		for used := range u.used {
			u.bases[path.Base(used)]++
		}
	}
	others := u.bases[path.Base(name)]
	if u.used[name] {
		others--
	}
	return others > 0
}

// wanted returns what a program asks for when it finds a file: the name of a command, of a module, or of a
// configuration.
func wanted(name string) string {
	base := path.Base(name)
	if !codeFile().MatchString(base) || !strings.Contains(name, ".py") && !strings.HasSuffix(name, ".so") {
		return base
	}
	if path.Base(path.Dir(name)) == "__pycache__" {
		name = path.Join(path.Dir(path.Dir(name)), base)
	}
	return moduleOf(name) + ".py"
}

// instead returns what the baseline's checks used and a file stands for now: its own name if they used it, or the name
// of another file, before which it is found. It is empty if there is none. Programs that were in PATH when the
// run started stand for those that the baseline did not execute.
func (u *uses) instead(name string) string {
	if u.before[name]&(opened|executed) != 0 {
		return name
	}
	runs := u.after[name]&executed != 0
	for _, other := range u.alike[wanted(name)] {
		before := u.before[other] & executed
		if before != 0 && runs || u.after[other] == 0 && (before != 0) == runs {
			return other
		}
	}
	if there := u.image[path.Base(name)]; runs && u.search[path.Dir(name)] && len(there) > 0 {
		if slices.Contains(there, name) {
			return name
		}
		return there[0]
	}
	return ""
}

// stranger reports whether a check changes a file that the baseline's checks changed, too, but not by this program.
func (u *uses) stranger(name string, p *process) bool {
	return u.changed(name) && !slices.Contains(u.writers[name], p.executed().program())
}
