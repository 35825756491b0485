package surface

import "github.com/assay-run/assay-run/schema"

// made is a file that mkstemp or its like made, and that is still there.
type made struct {
	name string // what the surface has in place of its path
	// maker is the process instance that made it, where the path may as well be
	// one that somebody chose; 0 where it is not. Python tries a temporary
	// directory with such a file: makes it, writes to it and removes it. One that
	// its maker alone opened, wrote and removed left nothing that a name could
	// lead to, and is name; any other keeps its path.
	maker uint64
}

// maxMade bounds how many files of mkstemp are remembered at a time.
const maxMade = 8192

// remember takes note of a file that mkstemp made.
func (b *Builder) remember(e *schema.KernelEvent) {
	if len(b.temp) >= maxMade || e.Result < 0 {
		return
	}
	n := normalizePath(e.Value, e.PID)
	switch name, sure := madeByMkstemp(n, e.Flags, e.Mode); {
	case sure:
		b.temp[n] = made{name: name}
	case name != "" && e.ExecID != 0:
		b.temp[n] = made{name: name, maker: e.ExecID}
	}
}

// removed forgets a file that is no longer there.
func (b *Builder) removed(path string) error {
	m, ok := b.temp[path]
	delete(b.temp, path)
	if !ok || m.maker == 0 {
		return nil
	}
	return b.paths.add(b.clean(m.name))
}

// decide adds the paths that are still undecided: nothing removed those files.
func (b *Builder) decide() error {
	for path, m := range b.temp {
		if m.maker == 0 {
			continue
		}
		if err := b.paths.add(b.clean(path)); err != nil {
			return err
		}
		delete(b.temp, path)
	}
	return nil
}
