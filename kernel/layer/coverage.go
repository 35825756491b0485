package layer

import (
	"slices"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Coverage is what a tier watches and what it cannot see, dimension by dimension.
func Coverage(tier kernel.Tier) []schema.Coverage {
	return coverage(Account{Report: &kernel.Report{Tier: tier}})
}

// exercised leaves what differs between runs: the blind spots that the run used, or may have used if that matters.
func exercised(all []schema.Coverage) []schema.Coverage {
	for i := range all {
		all[i].Observes = nil
		all[i].KnownBlindSpots = slices.DeleteFunc(all[i].KnownBlindSpots, func(s schema.BlindSpot) bool {
			if s.Exercised != nil {
				return !*s.Exercised
			}
			return !s.Matters()
		})
	}
	return all
}

// coverage says, dimension by dimension, what the observer watches and what it
// cannot see, as package kernel says it, and what was lost on the way from there
// to the layer. A dimension whose hooks are not all attached, or of which none
// is known to fire, says so in its method and observes nothing.
func coverage(a Account) []schema.Coverage {
	s := &a.Stats
	lost := map[string][]schema.BlindSpot{
		"filesystem": {
			spot("long_paths", "the rest of paths longer than 4,096 bytes or 256 components", s.Cut > 0),
			spot("doubtful_changes", "which file was changed, if the event of the change says "+
				"path_source=user_memory, arguments=claimed or directory=claimed", s.DoubtfulChanges > 0),
			spot("claimed_directories", "a directory or symbolic link on the way of a name may have led elsewhere "+
				"while the kernel used it: another task of the run may have changed it during the call, or it is on "+
				"FUSE or a network file system; such events say directory=claimed", s.DirectoryClaims > 0),
		},
		"process": {
			spot("long_arguments", "arguments beyond 128 KiB and environment names beyond 8 KiB of an execution",
				s.CutArguments > 0),
			spot("moved_tasks", "what tasks do before they are moved into the session, and after they are moved out",
				a.Report.LeftCgroup > 0 || !a.Foreign && s.AgentsJoined > 0),
			spot("kernel_helpers", "what programs do that the kernel starts itself, for a call of the run or because "+
				"the run has named them (request-key, modprobe, core_pattern, release_agent, ...); they are named",
				s.Reach.Helpers+s.Reach.StartedTimes > 0),
		},
		"network": {
			doubtful("other_sockets", "peers of sockets other than unix, inet and vsock (packet, netlink, raw), and "+
				"traffic through a tunnel; the creation of the socket is seen", s.Reach.Carriers, s.Reach.MayCarry),
			spot("handed_names", "DNS messages of sockets that were made before the run or handed to it; the "+
				"server is seen", s.Reach.ForeignDNS > 0),
		},
		"names": {
			spot("unparsed", "messages that could not be parsed", s.Unparsed > 0),
			spot("forgotten_names", "names beyond the number remembered", s.ForgottenNames > 0),
		},
	}
	var out []schema.Coverage
	dimensions := kernel.Coverage()
	if a.Report.Tier == kernel.TierNotify {
		dimensions = kernel.CoverageNotify()
	}
	run := *a.Report // what assay-run's helpers do is not the run's
	run.Tally = run.Tally.Without(&s.Own)
	for _, d := range dimensions {
		c := schema.Coverage{Dimension: d.Name, Method: d.Method, Observes: d.Observes,
			KnownBlindSpots: []schema.BlindSpot{}}
		if !watched(a.Report, d.Hooks) {
			c.Method, c.Observes = "none", []string{}
		}
		for _, b := range d.BlindSpots {
			c.KnownBlindSpots = append(c.KnownBlindSpots,
				schema.NewBlindSpot(b.ID, b.Text, b.Exercised(&run)))
		}
		c.KnownBlindSpots = append(c.KnownBlindSpots, lost[d.Name]...)
		out = append(out, c)
	}
	return out
}

func spot(id, name string, exercised bool) schema.BlindSpot {
	return schema.NewBlindSpot(id, name, &exercised)
}

// doubtful is a blind spot that the run used as often as certain says, and perhaps more often.
func doubtful(id, name string, certain, perhaps uint64) schema.BlindSpot {
	if certain == 0 && perhaps > 0 {
		return schema.NewBlindSpot(id, name, nil)
	}
	return spot(id, name, certain > 0)
}

func watched(r *kernel.Report, hooks []kernel.HookID) bool {
	fires := false
	for _, id := range hooks {
		fires = fires || live(r, id)
		for _, k := range r.Hooks {
			if k.Hook == id && !k.Attached {
				return false
			}
		}
	}
	return fires
}
