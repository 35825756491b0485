package judge

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema/surface"
)

// facts is what a run did, as far as it is recorded.
type facts struct {
	*view.Summary
	surface  []string
	calls    []string
	decided  []string
	workdir  string
	relative bool
	chance   chanceNames
}

func gather(ctx context.Context, b *view.Bundle) (*facts, error) {
	s, err := view.Summarize(ctx, b, maxListed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Name, err)
	}
	f := &facts{Summary: s, surface: b.Docs.Surface.FilesystemPaths, workdir: b.Docs.Run.Workdir,
		chance: newChanceNames(b.Docs.Surface.FilesystemPaths)}
	for _, c := range b.Docs.Correlation.Bindings {
		tool := c.Tool
		if tool == "" {
			tool = c.ToolCallID
		}
		f.calls = append(f.calls, tool)
		if c.PolicyDecision != "" {
			f.decided = append(f.decided, c.PolicyDecision+" "+tool)
		}
	}
	return f, nil
}

// same writes what differs between two runs of one command by their nature alike.
func (f *facts) same(s string) string {
	if f.relative && f.workdir != "" && f.workdir != "/" {
		// The surface's names have lost their random parts, and so has its workdir.
		for _, dir := range []string{f.workdir, surface.Path(f.workdir)} {
			s = strings.ReplaceAll(s, dir+"/", "./")
			if s == dir {
				s = "."
			}
		}
	}
	return strings.ReplaceAll(s, f.RunID, "RUN_ID")
}

// chanceNames finds the name that the capability surface has for a path, if a part of it
// differs between two runs of the same work, such as the name of a temporary file.
type chanceNames map[string][]chanceName // by the directory above the first such part

type chanceName struct {
	name string
	path *regexp.Regexp
}

// placeholder is what the surface writes for a part that differs by chance.
var placeholder = regexp.MustCompile(`<[a-z]+>`)

func newChanceNames(names []string) chanceNames {
	c := chanceNames{}
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
		c[dir] = append(c[dir], chanceName{name, regexp.MustCompile("^" + strings.Join(parts, "[^/]+") + "$")})
	}
	return c
}

// of is the surface's name of a path, and the path itself where that is its name.
func (c chanceNames) of(path string) string {
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

// inArgument finds the paths in an argument.
var inArgument = regexp.MustCompile(`[^\s=<>;:,'"]*/[^\s=<>;:,'"]+`)

// arguments are those of a command, with the surface's names of the paths in them; relative ones are taken to be
// below workdir.
func (c chanceNames) arguments(argv []string, workdir string) []string {
	out := slices.Clone(argv)
	for i, arg := range argv {
		if file := workdir + "/" + arg; len(c) > 0 && !strings.HasPrefix(arg, "/") && c.of(file) != file {
			out[i] = strings.TrimPrefix(c.of(file), workdir+"/")
			continue
		}
		out[i] = inArgument.ReplaceAllStringFunc(arg, func(p string) string {
			at := strings.IndexByte(p, '/') // what is before it may be an option, or a directory
			if name := strings.TrimPrefix(surface.Path("/"+p), "/"); at > 0 && name != p {
				return name
			}
			return p[:at] + surface.Path(c.of(p[at:]))
		})
	}
	return out
}

func (f *facts) alike(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = f.same(s)
	}
	return out
}

func listed[T any](f *facts, l view.List[T], text func(T) string) ([]string, bool) {
	out := make([]string, len(l.Items))
	for i, v := range l.Items {
		out[i] = f.same(text(v))
	}
	return out, l.Beyond == 0 && l.Total == uint64(len(l.Items))
}

func (f *facts) programs() ([]string, bool) {
	return listed(f, f.Commands, func(c view.Command) string { return surface.Path(c.Exe) })
}

// commands are those whose arguments were recorded.
func (f *facts) commands() ([]string, bool) {
	all, whole := listed(f, f.Commands, func(c view.Command) string {
		return view.QuoteArgs(f.chance.arguments(c.Argv, f.workdir))
	})
	return slices.DeleteFunc(all, func(command string) bool { return command == "" }), whole
}

// hosts are by name where a name is known, since addresses change.
func (f *facts) hosts() ([]string, bool) {
	return listed(f, f.Hosts, func(h view.Host) string {
		if i := strings.LastIndexByte(h.Endpoint, ':'); i >= 0 && len(h.Names) > 0 {
			return strings.Join(h.Names, ",") + h.Endpoint[i:] + h.Network.Mark()
		}
		return h.What()
	})
}

func (f *facts) lookups() ([]string, bool) {
	return listed(f, f.Lookups, func(n view.Name) string { return n.Name })
}

func (f *facts) writes() ([]string, bool) {
	var all []string
	whole := true
	for _, l := range []view.List[view.File]{f.Created, f.Written, f.Changed, f.Deleted} {
		paths, ok := listed(f, l, func(x view.File) string { return surface.Path(f.chance.of(x.Path)) })
		all, whole = append(all, paths...), whole && ok
	}
	return all, whole
}

func (f *facts) files() ([]string, bool) { return f.alike(f.surface), true }

// denied leaves out tool calls, which outcomes lists.
func (f *facts) denied() ([]string, bool) {
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

func (f *facts) privileged() ([]string, bool) { return listed(f, f.Privileged, failure) }

func failure(x view.Failure) string { return strings.Join([]string{x.Kind, x.Value, x.Result}, " ") }

// tools are the calls by tool, numbered, so that one more call of a tool is a
// difference.
func (f *facts) tools() ([]string, bool) { return numbered(f.alike(f.calls)), true }

func (f *facts) outcomes() ([]string, bool) { return numbered(f.alike(f.decided)), true }

// numbered makes repeats of a list distinct.
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
