package startup

import (
	"slices"
	"strings"
)

// Merge returns git's configuration now with what after changed of before in keys that are carried. dropped are the
// keys of other changes. Nothing of after is copied as it is: values are written as git writes them.
func Merge(before, now, after string) (merged string, dropped []string) {
	old, changed := valuesOf(before), valuesOf(after)
	var keys []string
	for _, e := range append(parseConfig(before), parseConfig(after)...) {
		if !slices.Equal(old[e.key], changed[e.key]) && !slices.Contains(keys, e.key) {
			keys = append(keys, e.key)
		}
	}
	gone := map[string]bool{}
	var added strings.Builder
	for _, key := range keys {
		values := changed[key]
		if slices.ContainsFunc(slices.Concat(old[key], values), func(v string) bool { return !carried(key, v) }) {
			dropped = append(dropped, key)
			continue
		}
		gone[key] = true
		for _, v := range values {
			added.WriteString(format(key, v))
		}
	}
	var b strings.Builder
	from := 0
	for _, e := range parseConfig(now) {
		if gone[e.key] {
			b.WriteString(now[from:e.from])
			from = e.to
		}
	}
	b.WriteString(now[from:])
	if added.Len() > 0 && b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	return b.String() + added.String(), dropped
}

// Harmless is what of git's configuration starts no program, makes git read no other configuration, names no repository
// and no working tree, and describes no other branch than the given one, such as main.
func Harmless(config, branch string) string {
	var b strings.Builder
	for _, e := range parseConfig(config) {
		described, is := strings.CutPrefix(strings.TrimSuffix(e.key, ".description"), "branch.")
		other := is && strings.HasSuffix(e.key, ".description") && described != branch
		if e.key != "core.worktree" && e.key != "core.bare" && !other &&
			(matches(harmlessKeys, e.key) || matches(ownKeys, e.key)) {
			b.WriteString(format(e.key, e.value))
		}
	}
	return b.String()
}

// ownKeys are those of a repository that Harmless keeps although git reads what they name: other configuration says
// which programs that can start.
var ownKeys = []string{"branch.*.description", "core.attributesfile", "core.excludesfile", "submodule.*.active",
	"submodule.active"}

func valuesOf(text string) map[string][]string {
	values := map[string][]string{}
	for _, e := range parseConfig(text) {
		values[e.key] = append(values[e.key], e.value)
	}
	return values
}

// format is an entry with its own section.
func format(key, value string) string {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	section := key[:first]
	if last > first {
		section += ` "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key[first+1:last]) + `"`
	}
	value = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(value)
	return "[" + section + "]\n\t" + key[last+1:] + ` = "` + value + "\"\n"
}
