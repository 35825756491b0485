package evaluation

import (
	"cmp"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// trial follows the sessions of a trial that was recorded from outside. What the verifier's sessions do is a check.
type trial struct {
	sessions []schema.EvaluationSession
	follow   facts.Sessions
	judged   bool // the verifier has begun
	alive    []leftover
}

// leftover is a process that was alive when the verifier began.
type leftover struct {
	pid           uint32
	program, line string
	setup         bool   // of a session of the setup
	seq           uint64 // of the verifier's first line
}

func (t *trial) phase(session int) string {
	if session < 0 || session >= len(t.sessions) {
		return ""
	}
	return t.sessions[session].Phase
}

// event takes a line, and returns it with its class in a trial.
func (t *trial) event(k *schema.KernelEvent, files *facts.Reader) *schema.KernelEvent {
	if t.phase(t.follow.Read(k)) != schema.PhaseVerifier {
		return k
	}
	if !t.judged {
		t.judged = true
		t.remain(k.Seq, files)
	}
	if k.Class == schema.ClassSetup {
		return k // the engine's runtime
	}
	check := *k
	check.Class = schema.ClassCheck
	return &check
}

// remain notes which processes are alive.
func (t *trial) remain(seq uint64, files *facts.Reader) {
	for pid, session := range t.follow.Alive() {
		phase := t.phase(session)
		if phase != schema.PhaseAgent && phase != schema.PhaseSetup {
			continue
		}
		l := leftover{pid: pid, setup: phase == schema.PhaseSetup, seq: seq, line: "a process"}
		if in := files.Last(pid); in != nil && len(in.Argv) > 0 {
			l.program, l.line = strings.Clone(in.Exe), strings.Join(in.Argv, " ")
		}
		t.alive = append(t.alive, l)
	}
	slices.SortFunc(t.alive, func(a, b leftover) int { return cmp.Compare(a.pid, b.pid) })
}

// left judges the processes that were alive when the verifier began. It only doubts those of the setup, which may be
// the harness's. If the recording missed the beginning, it doubts all of them.
func (t *trial) left(r *rule, whole bool) {
	if !t.judged {
		r.doubt(schema.Finding{
			Text:  "the verifier did not begin: it was not checked which processes outlived the agent",
			Layer: schema.KernelPath, Events: []uint64{}})
	}
	for _, l := range t.alive {
		f := schema.Finding{Layer: schema.KernelPath, Events: []uint64{l.seq}, Program: l.program,
			Text: view.Cut(l.line, maxLine) + " was alive when the verifier began"}
		if l.setup || !whole {
			r.doubt(f)
		} else {
			r.find(f)
		}
	}
}

// maxLine limits a command line in a finding, in bytes.
const maxLine = 100
