//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// manifest says what a pinned set is made of: ids, which the kernel does not use
// again while it runs, so that the same id is the same object. It is pinned beside
// the set, as the value of a map that nobody can write to.
type manifest struct {
	Build              string // of the program that pinned it, as in its directory's name
	Progs, Maps, Links map[string]uint32
	Tags               map[string]string
	Failed             map[string]string // programs that this kernel refused
}

// manifestSize bounds it, in bytes of JSON.
const manifestSize = 16 << 10

// pinName is the name of an object's pin. bpffs takes no dots.
func pinName(kind, name string) string { return kind + "_" + strings.ReplaceAll(name, ".", "_") }

// ids lists what the set is made of.
func (s *set) ids() (*manifest, error) {
	m := &manifest{Progs: map[string]uint32{}, Maps: map[string]uint32{}, Links: map[string]uint32{}, Tags: map[string]string{}, Failed: map[string]string{}}
	for name, p := range s.progs {
		i, err := identify(p.FD())
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
		m.Progs[name], m.Tags[name] = i.ID, i.tag()
	}
	for name, x := range s.maps {
		i, err := identify(x.FD())
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		m.Maps[name] = i.ID
	}
	for name, ln := range s.links {
		i, err := identifyLink(ln)
		if err != nil {
			return nil, fmt.Errorf("link of program %s: %w", name, err)
		}
		if i.program() != m.Progs[name] {
			return nil, fmt.Errorf("the link of %s runs another program", name)
		}
		m.Links[name] = i.ID
	}
	for name, err := range s.failed {
		m.Failed[name] = firstLine(err.Error())
	}
	return m, nil
}

// differs names the first thing that is not the same in two sets, or "".
func (m *manifest) differs(o *manifest) string {
	for _, c := range []struct {
		kind string
		a, b map[string]uint32
	}{{"program", m.Progs, o.Progs}, {"map", m.Maps, o.Maps}, {"link of program", m.Links, o.Links}} {
		for name, id := range c.a {
			if c.b[name] != id {
				return c.kind + " " + name
			}
		}
		for name := range c.b {
			if c.a[name] == 0 {
				return c.kind + " " + name
			}
		}
	}
	for name, tag := range m.Tags {
		if o.Tags[name] != tag {
			return "program " + name
		}
	}
	return ""
}

// pin pins the set in a directory that does not exist yet.
func (s *set) pin(dir string) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if s.made, err = s.ids(); err != nil {
		return err
	}
	if s.made.Build, err = buildName(); err != nil {
		return err
	}
	about, err := writeManifest(s.made)
	if err != nil {
		return err
	}
	defer about.Close()
	if err := about.Pin(filepath.Join(dir, "manifest")); err != nil {
		return err
	}
	i, err := identify(about.FD())
	if err != nil {
		return err
	}
	s.said = i.ID
	for name, p := range s.progs {
		if err := p.Pin(filepath.Join(dir, pinName("prog", name))); err != nil {
			return err
		}
	}
	for name, x := range s.maps {
		if err := x.Pin(filepath.Join(dir, pinName("map", name))); err != nil {
			return err
		}
	}
	for name, ln := range s.links {
		if err := ln.Pin(filepath.Join(dir, pinName("link", name))); err != nil {
			return err
		}
	}
	return nil
}

// writeManifest makes a map that says it, for good.
func writeManifest(m *manifest) (_ *ebpf.Map, err error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(b) > manifestSize {
		return nil, fmt.Errorf("a manifest of %d bytes", len(b))
	}
	about, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "manifest", Type: ebpf.Array, KeySize: 4, ValueSize: manifestSize, MaxEntries: 1, Flags: unix.BPF_F_RDONLY_PROG,
	})
	if err != nil {
		return nil, fmt.Errorf("make the manifest: %w", err)
	}
	if err := errors.Join(about.Put(uint32(0), append(b, make([]byte, manifestSize-len(b))...)), about.Freeze()); err != nil {
		about.Close()
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	return about, nil
}

// openSet opens this build's pinned set and makes sure that it is whole: only root can
// have pinned it, its manifest names this build, every object is there and the one that
// was pinned, and every link is alive. Whether the programs are this build's is not
// compared: who could pin others as root could as well replace this program. See genuine.
func openSet(dir string) (_ *set, err error) {
	if err := ownedByRoot(dir); err != nil {
		return nil, err
	}
	s, err := newSet(maxSlots)
	if err != nil {
		return nil, err
	}
	s.shared, s.foundPinned = true, true
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.pins, err = pinsIn(dir); err != nil {
		return nil, err
	}
	said, id, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	s.said = id
	if build, err := buildName(); err != nil || said.Build != build {
		return nil, errors.Join(errors.New("its manifest is another build's"), err)
	}
	for name := range said.Maps {
		if s.maps[name], err = ebpf.LoadPinnedMap(filepath.Join(dir, pinName("map", name)), nil); err != nil {
			delete(s.maps, name)
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
	}
	for name := range said.Progs {
		if s.progs[name], err = ebpf.LoadPinnedProgram(filepath.Join(dir, pinName("prog", name)), nil); err != nil {
			delete(s.progs, name)
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
	}
	for name := range said.Links {
		if s.links[name], err = link.LoadPinnedLink(filepath.Join(dir, pinName("link", name)), nil); err != nil {
			delete(s.links, name)
			return nil, fmt.Errorf("link of program %s: %w", name, err)
		}
	}
	for name, why := range said.Failed {
		s.failed[name] = errors.New(why)
	}
	if s.made, err = s.ids(); err != nil {
		return nil, err
	}
	if what := said.differs(s.made); what != "" {
		return nil, fmt.Errorf("%s is not the one that was pinned", what)
	}
	return s, s.remember()
}

// readManifest reads the manifest of what is pinned there. id is that of its map.
func readManifest(dir string) (m *manifest, id uint32, err error) {
	about, err := ebpf.LoadPinnedMap(filepath.Join(dir, "manifest"), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, fmt.Errorf("manifest: %w", err)
	}
	defer about.Close()
	info, err := about.Info()
	if err != nil || !info.Frozen() || about.ValueSize() != manifestSize {
		return nil, 0, errors.Join(errors.New("manifest: it was changed"), err)
	}
	number, _ := info.ID()
	b := make([]byte, manifestSize)
	if err := about.Lookup(uint32(0), &b); err != nil {
		return nil, 0, fmt.Errorf("manifest: %w", err)
	}
	m = &manifest{}
	if err := json.Unmarshal(bytes.TrimRight(b, "\x00"), m); err != nil {
		return nil, 0, fmt.Errorf("manifest: %w", err)
	}
	return m, uint32(number), nil
}
