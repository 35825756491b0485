package archive

import (
	"maps"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// OnCheckpoint has f called about once a second while the run writes anything, from
// a goroutine of the spool's, with what has grown since the last time. What it is
// told of is on disk. f may append to layers, but must not end the spool. There is
// no call after Seal or Close has begun to return. Nil ends it.
func (s *Spool) OnCheckpoint(f func(schema.Checkpoint)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkpoint = f
}

// makeCheckpoint tells of what has grown since last, which it brings up to date. The
// lifecycle, where checkpoints are written, is told of beside the others alone.
func (s *Spool) makeCheckpoint(last map[string]uint64) {
	s.mu.Lock()
	f, members := s.checkpoint, maps.Clone(s.members)
	s.mu.Unlock()
	if f == nil {
		return
	}
	c := schema.Checkpoint{Layers: map[string]schema.LayerTree{}}
	for _, p := range schema.Layers[1:] {
		if t := s.layers[p].state(); t.Lines > last[p] {
			c.Layers[schema.LayerName(p)], last[p] = t, t.Lines
		}
	}
	for _, p := range slices.Sorted(maps.Keys(members)) {
		if m := members[p].state(); isStream(p) && uint64(m.Bytes) > last[p] {
			if c.Members == nil {
				c.Members = map[string]schema.MemberBytes{}
			}
			c.Members[p], last[p] = m, uint64(m.Bytes)
		}
	}
	t := s.layers[schema.EventsPath].state()
	if len(c.Layers)+len(c.Members) == 0 && t.Lines <= last[schema.EventsPath] {
		return
	}
	c.Layers[schema.LayerName(schema.EventsPath)] = t
	last[schema.EventsPath] = t.Lines + 1 // the checkpoint's own line
	f(c)
}
