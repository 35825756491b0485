package judge

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema/surface"
)

// record is what a run did, as far as it is recorded.
type record struct {
	*view.Summary
	surface  []string // paths of the capability surface
	calls    []string // tools of the calls
	decided  []string // policy decisions with tools
	workdir  string
	relative bool // paths below workdir are made relative
	random   randomNames
}

func gather(ctx context.Context, b *view.Bundle) (*record, error) {
	s, err := view.Summarize(ctx, b, maxListed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Name, err)
	}
	f := &record{Summary: s, surface: b.Docs.Surface.FilesystemPaths, workdir: b.Docs.Run.Workdir,
		random: newRandomNames(b.Docs.Surface.FilesystemPaths)}
	for _, c := range b.Docs.Correlation.Bindings {
		tool := cmp.Or(c.Tool, c.ToolCallID)
		f.calls = append(f.calls, tool)
		if c.PolicyDecision != "" {
			f.decided = append(f.decided, c.PolicyDecision+" "+tool)
		}
	}
	return f, nil
}

// normalize replaces what always differs between two runs: the working directory and the run's id.
func (f *record) normalize(s string) string {
	if f.relative && f.workdir != "" && f.workdir != "/" {
		// In the surface's names, random parts are replaced, also those of the working directory.
		for _, dir := range []string{f.workdir, surface.Path(f.workdir)} {
			s = strings.ReplaceAll(s, dir+"/", "./")
			if s == dir {
				s = "."
			}
		}
	}
	return strings.ReplaceAll(s, f.RunID, "RUN_ID")
}

// randomNames maps a path with random parts, such as the name of a temporary file, to its name in the capability
// surface. The key is the directory above the first random part.
type randomNames map[string][]randomName

type randomName struct {
	name string
	path *regexp.Regexp
}

// placeholder matches what the surface writes for a random part.
var placeholder = regexp.MustCompile(`<[a-z]+>`)

func newRandomNames(names []string) randomNames {
	c := randomNames{}
	for _, name := range names {
		at := placeholder.FindStringIndex(name)
		if at == nil || strings.LastIndexByte(name[:at[0]], '/') < 0 {
			continue
		}
		parts := placeholder.Split(name, -1)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		dir := name[:strings.LastIndexByte(name[:at[0]], '/')]
		c[dir] = append(c[dir], randomName{name, regexp.MustCompile("^" + strings.Join(parts, "[^/]+") + "$")})
	}
	return c
}

// of returns the surface's name of a path; the path itself if it has no random part.
func (c randomNames) of(path string) string {
	for i, b := range []byte(path) {
		if b != '/' {
			continue
		}
		for _, n := range c[path[:i]] {
			if n.path.MatchString(path) {
				return n.name
			}
		}
	}
	return path
}

// inArgument matches the paths in an argument.
var inArgument = regexp.MustCompile(`[^\s=<>;:,'"]*/[^\s=<>;:,'"]+`)

// arguments returns a command's arguments with the surface's names of paths. Relative paths count from workdir.
func (c randomNames) arguments(argv []string, workdir string) []string {
	out := slices.Clone(argv)
	for i, arg := range argv {
		if file := workdir + "/" + arg; len(c) > 0 && !strings.HasPrefix(arg, "/") && c.of(file) != file {
			out[i] = strings.TrimPrefix(c.of(file), workdir+"/")
			continue
		}
		out[i] = inArgument.ReplaceAllStringFunc(arg, func(p string) string {
			at := strings.IndexByte(p, '/') // after an option's name, or after the first directory
			if name := strings.TrimPrefix(surface.Path("/"+p), "/"); at > 0 && name != p {
				return name
			}
			return p[:at] + surface.Path(c.of(p[at:]))
		})
	}
	return out
}

func (f *record) normalizeAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = f.normalize(s)
	}
	return out
}

// listed returns a list's items as texts. whole reports whether the list has all items.
func listed[T any](f *record, l view.List[T], text func(T) string) (texts []string, whole bool) {
	texts = make([]string, len(l.Items))
	for i, v := range l.Items {
		texts[i] = f.normalize(text(v))
	}
	return texts, l.Beyond == 0 && l.Total == uint64(len(l.Items))
}

func (f *record) programs() ([]string, bool) {
	return listed(f, f.Commands, func(c view.Command) string { return surface.Path(c.Exe) })
}

// commands returns the commands whose arguments were recorded.
func (f *record) commands() ([]string, bool) {
	all, whole := listed(f, f.Commands, func(c view.Command) string {
		return view.QuoteArgs(f.random.arguments(c.Argv, f.workdir))
	})
	return slices.DeleteFunc(all, func(command string) bool { return command == "" }), whole
}

// hosts returns names rather than addresses if names are known, since addresses change.
func (f *record) hosts() ([]string, bool) {
	return listed(f, f.Hosts, func(h view.Host) string {
		if i := strings.LastIndexByte(h.Endpoint, ':'); i >= 0 && len(h.Names) > 0 {
			return strings.Join(h.Names, ",") + h.Endpoint[i:] + h.Network.Mark()
		}
		return h.What()
	})
}

func (f *record) lookups() ([]string, bool) {
	return listed(f, f.Lookups, func(n view.Name) string { return n.Name })
}

func (f *record) writes() ([]string, bool) {
	var all []string
	whole := true
	for _, l := range []view.List[view.File]{f.Created, f.Written, f.Changed, f.Deleted} {
		paths, ok := listed(f, l, func(x view.File) string { return surface.Path(f.random.of(x.Path)) })
		all, whole = append(all, paths...), whole && ok
	}
	return all, whole
}

func (f *record) files() ([]string, bool) { return f.normalizeAll(f.surface), true }

// denied leaves out tool calls, which are in outcomes.
func (f *record) denied() ([]string, bool) {
	l := view.List[view.Failure]{Total: f.Denied.Total, Beyond: f.Denied.Beyond}
	for _, x := range f.Denied.Items {
		if x.Kind == view.ToolCall {
			l.Total--
		} else {
			l.Items = append(l.Items, x)
		}
	}
	return listed(f, l, failure)
}

func (f *record) privileged() ([]string, bool) { return listed(f, f.Privileged, failure) }

func failure(x view.Failure) string { return strings.Join([]string{x.Kind, x.Value, x.Result}, " ") }

// tools returns the tools of the calls, with numbers, so that one more call of a tool is a difference.
func (f *record) tools() ([]string, bool) { return numbered(f.normalizeAll(f.calls)), true }

func (f *record) outcomes() ([]string, bool) { return numbered(f.normalizeAll(f.decided)), true }

// numbered adds numbers to repeated entries of a list.
func numbered(list []string) []string {
	seen := map[string]int{}
	out := slices.Clone(list)
	for i, s := range list {
		if seen[s]++; seen[s] > 1 {
			out[i] = fmt.Sprintf("%s (%d)", s, seen[s])
		}
	}
	return out
}
