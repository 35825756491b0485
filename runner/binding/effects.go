package binding

import (
	"maps"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Limits of the lists of one call, and of the bytes in the lists of all calls.
const (
	maxFiles    = 64
	maxWritten  = 64
	maxHosts    = 32
	maxCommands = 32
	maxCommand  = 256
	maxEffects  = 8 << 20
)

// budget is how many bytes the lists of all calls may still take.
type budget struct{ left int }

// effects are what a call touched, or what was touched without a call.
type effects struct {
	files, written, hosts, commands map[string]struct{}
	beyond                          uint64
}

// add adds an event of class agent that succeeded, or tried to connect. Reads only count if reads is set.
func (f *effects) add(e *schema.KernelEvent, b *budget, reads bool) {
	if e.Class != schema.ClassAgent || e.Failed() && e.Kind != schema.KindConnect {
		return
	}
	for name, how := range e.Touches() {
		switch {
		case how == schema.AccessConnect:
			f.put(&f.hosts, maxHosts, e.Name(name), e, b)
		case how == schema.AccessRun:
			cmd := strings.Join(e.Argv, " ")
			if len(cmd) > maxCommand {
				cmd = strings.ToValidUTF8(cmd[:maxCommand], "") + "…"
			}
			f.put(&f.commands, maxCommands, cmd, e, b)
		case how&schema.AccessModify != 0:
			f.write(e.Name(name), e, b)
		case how == schema.AccessRead && reads:
			f.put(&f.files, maxFiles, e.Name(name), e, b)
		}
	}
}

func (f *effects) write(path string, e *schema.KernelEvent, b *budget) {
	if path != "/dev/null" && path != "/dev/tty" {
		f.put(&f.written, maxWritten, path, e, b)
	}
}

func (f *effects) put(set *map[string]struct{}, limit int, v string, e *schema.KernelEvent, b *budget) {
	if v == "" {
		return
	}
	if _, there := (*set)[v]; there {
		return
	}
	if len(*set) >= limit || b.left < len(v) {
		f.beyond += e.Times()
		return
	}
	if *set == nil {
		*set = make(map[string]struct{})
	}
	b.left -= len(v)
	(*set)[strings.Clone(v)] = struct{}{}
}

// some reports whether there is anything but reading.
func (f *effects) some() bool {
	return len(f.written)+len(f.hosts)+len(f.commands) > 0 || f.beyond > 0
}

func (f *effects) list() schema.Effects {
	e := schema.Effects{
		Files: sorted(f.files), Written: sorted(f.written), Hosts: sorted(f.hosts), Commands: sorted(f.commands),
		Beyond: f.beyond,
	}
	if len(f.files) > 0 || len(f.written) > 0 {
		e.Files = slices.Concat(e.Files, e.Written)
		slices.Sort(e.Files)
		e.Files = slices.Compact(e.Files)
	}
	return e
}

func sorted(m map[string]struct{}) []string { return slices.Sorted(maps.Keys(m)) }
