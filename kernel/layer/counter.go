package layer

import (
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// counter counts events and lines.
type counter struct {
	counts schema.LayerCounts
	stats  Stats // but for what other parts count: see Builder.Stats
	kinds  [256]uint64
}

// line counts a line of ev, or beside it.
func (c *counter) line(ev *kernel.Event, e *schema.KernelEvent) {
	s, n := &c.stats, e.Times()
	c.counts.Seen += n
	s.ByClass[e.Class] += n
	c.kinds[e.Kind&255] += n
	if e.Class == schema.ClassRunner {
		s.Own.Count(ev)
	}
	const process = schema.FieldArgv | schema.FieldEnvKeys
	if e.Truncated&^process != 0 && e.Errno() != "ENAMETOOLONG" { // which did nothing
		s.Cut++
	}
	if e.Truncated&process != 0 {
		s.CutArguments++
	}
	if e.DirectoryClaimed {
		s.DirectoryClaims++
	}
	switch e.Kind {
	case schema.KindOpen:
		if e.UserMemory && e.Result >= 0 && !e.Attempted {
			s.UserPaths++
		}
	case schema.KindConnect:
		if ev.Peer.IsValid() {
			s.Connects++
		}
	case schema.KindSendto:
		if ev.Peer.IsValid() {
			s.DatagramPeers++
		}
	case schema.KindJoin:
		if e.Class == schema.ClassAgent {
			s.AgentsJoined++
		}
	}
	// What an open file is written is an event of its own, with the file.
	named := e.Kind != schema.KindOpen || e.Changes()
	if named && e.Class == schema.ClassAgent && !e.Failed() && facts.CertaintyAsRead(e).Doubtful() {
		for _, how := range e.Touches() {
			if how&schema.AccessModify != 0 {
				s.DoubtfulChanges++
				break
			}
		}
	}
}

// handedOut counts what became of a line that stands for n occurrences.
func (c *counter) handedOut(n uint64, err error) {
	if err != nil {
		c.counts.Dropped += n
		c.stats.Dropped++
		return
	}
	c.counts.Written++
	c.stats.Written++
	c.counts.Coalesced += n - 1
}

// filtered counts an event that makes no line and stands for n occurrences.
func (c *counter) filtered(n uint64) {
	c.counts.Seen += n
	c.counts.Filtered += n
	c.stats.Filtered++
}

// all returns what was counted.
func (c *counter) all() Stats {
	s := c.stats
	s.ByKind = make(map[schema.KernelKind]uint64)
	for k, n := range c.kinds {
		if n > 0 {
			s.ByKind[schema.KernelKind(k)] = n
		}
	}
	return s
}
