//go:build linux

package suite

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/runner/suite/figures"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/schema"
)

// attempt is the state of one attempt.
type attempt struct {
	Attempt
	tries      []schema.SuiteTry // those with the attempt's present identity
	oldTries   int               // how many of tries were made by an earlier process
	lastNumber int               // of the last try of any identity
	open       *try              // nil if no try is open
	verdict    *schema.SuiteTry  // the last one; nil while there is none
	next       time.Time         // when the next try may be opened
	obsolete   []schema.SuiteTry // the last decided tries with another identity, from before an edit
	earlier    *earlier          // what is to be judged again, see rejudge; nil if nothing is
}

// outdated reports whether the attempt only has verdicts from before an edit of the suite.
func (a *attempt) outdated() bool { return len(a.obsolete) > 0 && len(a.tries) == 0 }

// countedTries is how many tries count against maxTries. Tries that were interrupted or never began do not. Tries of an
// earlier process do not either, since a user who runs the suite again wants failed attempts tried again.
func (a *attempt) countedTries() int {
	tries := a.tries[a.oldTries:]
	n := 0
	for _, t := range tries {
		if t.Class != schema.SuiteInterrupted && t.Class != schema.SuiteNotBegun {
			n++
		}
	}
	return n
}

// openedTry is what the ledger says about a try that was opened.
type openedTry struct {
	of          Attempt
	number      int
	identity    string
	definitions map[string]map[string]string // those when it was opened
	decided     bool
}

// try is an open try.
type try struct {
	of        *attempt
	number    int
	token     string
	work      uint64    // its number on the carrier; 0 means that this process has not published it
	losses    int       // how often the carrier lost it
	taken     bool      // a worker took it
	began     bool      // a worker reported that it began
	lastHeard time.Time // when its last heartbeat or report came
	deciding  bool      // its end was reported, and its bundle is being examined
	host      *schema.SuiteHost
	instance  string // of the worker that began it; empty if it has not begun
}

// process identifies the process of a worker by its instance; empty for none. Only a digest is kept.
func process(instance string) string {
	if instance == "" {
		return ""
	}
	return shortDigest("process\x00"+instance, 8)
}

// history is what the ledger of a suite tells: its attempts, and their tries and verdicts.
type history struct {
	file     *File
	dir      string
	desc     *Description
	ledger   *ledger.Ledger
	now      func() time.Time
	note     notes
	id       string // of the suite; random, and fixed when its directory is created
	attempts []*attempt
	open     map[string]*try // by token
	blamed   *blame
}

// openHistory reads the ledger in the suite's directory, or begins one. It adds the machines in it to on.
func openHistory(f *File, dir string, desc *Description, now func() time.Time, note notes, on *machines,
) (*history, error) {
	l, lines, cut, err := ledger.Open(dir)
	if err != nil {
		return nil, err
	}
	h := &history{file: f, dir: dir, desc: desc, ledger: l, now: now, note: note, open: map[string]*try{},
		blamed: newBlame()}
	if cut > 0 {
		note.say("the last line of the ledger was incomplete and was cut off (%d bytes)", cut)
	}
	if err := h.load(lines, on); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return h, nil
}

// close releases the ledger. It is an error if another process changed it meanwhile.
func (h *history) close() error { return errors.Join(h.ledger.Check(), h.ledger.Close()) }

// load rebuilds the state of the suite from its ledger. It writes the first line of a new ledger, closes the tries that
// an edit of the suite made obsolete, and records the edit.
func (h *history) load(lines []ledger.Line, on *machines) error {
	if len(lines) == 0 {
		lines = []ledger.Line{{Kind: ledger.Created, Suite: h.file.Name, Token: newToken(),
			Definitions: h.desc.Definitions, Attempts: len(h.file.Attempted())}}
		if err := h.ledger.Append(lines...); err != nil {
			return err
		}
	} else if name := lines[0].Suite; name != h.file.Name {
		return fmt.Errorf("%w: %s is the directory of the suite %q, not of %q: choose another one", ErrDirectory, h.dir,
			name, h.file.Name)
	}
	h.id = suiteID(lines[0].Suite, cmp.Or(lines[0].Token, h.dir))
	all := map[Attempt]*attempt{}
	for _, a := range h.file.Attempted() {
		all[a] = &attempt{Attempt: a}
		h.attempts = append(h.attempts, all[a])
	}
	opened := map[string]*openedTry{}                  // by token
	obsolete := map[Attempt]string{}                   // the identities of attempt.obsolete
	definitions, total := h.desc.Definitions, len(all) // the last ones in the ledger
	for _, line := range lines {
		switch line.Kind {
		case ledger.Created, ledger.Edited:
			definitions, total = line.Definitions, line.Attempts
		case ledger.Back:
			h.blamed.lives(process(line.Instance), line.Stopped)
		case ledger.Opened:
			opened[line.Token] = &openedTry{of: line.Attempt, number: line.Try, identity: line.Identity,
				definitions: definitions}
		}
		o := opened[line.Token]
		if o == nil { // a verdict after judging again, which has the identity in its own line
			o = &openedTry{identity: line.Identity, definitions: definitions}
		}
		o.decided = o.decided || line.Kind == ledger.Verdict
		a := all[line.Attempt]
		if a == nil {
			continue // the task or the agent was removed from the suite
		}
		current := o.identity == h.desc.Identities[line.Attempt]
		switch line.Kind {
		case ledger.Opened:
			a.lastNumber = max(a.lastNumber, line.Try)
			if current {
				a.open = &try{of: a, number: line.Try, token: line.Token, lastHeard: h.now()}
			}
		case ledger.Began:
			if a.open != nil && a.open.token == line.Token {
				a.open.began, a.open.taken, a.open.host, a.open.instance = true, true, line.Host, line.Instance
			}
			if current && line.Host != nil {
				on.add(line.Agent, *line.Host)
			}
		case ledger.Verdict:
			if a.open != nil && a.open.token == line.Token {
				a.open = nil
			}
			a.lastNumber, a.earlier = max(a.lastNumber, line.Try), nil
			if current {
				h.addVerdict(a, line.Verdict)
				break
			}
			if o.identity != obsolete[line.Attempt] {
				obsolete[line.Attempt], a.obsolete = o.identity, nil
			}
			a.obsolete = append(a.obsolete, *line.Verdict)
			a.earlier = h.toRejudge(line.Attempt, a.obsolete, o.definitions)
		}
	}
	for _, a := range h.attempts {
		a.oldTries = len(a.tries)
		if a.open != nil {
			h.open[a.open.token] = a.open
		}
	}
	for token, o := range opened {
		if o.decided || h.open[token] != nil {
			continue
		}
		if err := h.abandon(token, o); err != nil {
			return err
		}
	}
	return h.recordEdit(definitions, total)
}

// abandon closes an open try that an edit of the suite made obsolete.
func (h *history) abandon(token string, o *openedTry) error {
	return h.ledger.Append(ledger.Line{Kind: ledger.Verdict, Attempt: o.of, Try: o.number, Token: token,
		Verdict: &schema.SuiteTry{Try: o.number, RunID: runID(token), Verdict: schema.SuiteInfrastructure,
			Class: schema.SuiteInterrupted, Reason: "the suite was edited"}})
}

// recordEdit compares the suite with the old definitions and number of attempts in the ledger. If it was edited, it
// tells the user what changed and which attempts that makes outdated, and adds the new definitions to the ledger.
func (h *history) recordEdit(old map[string]map[string]string, total int) error {
	judged, again, keys := h.outdated()
	if judged > 0 {
		h.note.say("the suite has changed (%s): %s will be judged again, without running an agent",
			strings.Join(keys, ", "), schema.Count(judged, "attempt", "attempts"))
	}
	if again > 0 {
		h.note.say("the suite has changed: %s will run again; the earlier bundles are kept",
			schema.Count(again, "attempt", "attempts"))
	}
	changed := false
	for _, what := range slices.Sorted(maps.Keys(h.desc.Definitions)) {
		keys := figures.ChangedKeys(old[what], h.desc.Definitions[what])
		changed = changed || len(keys) > 0
		if old[what] == nil {
			continue
		}
		var concerned []string
		for _, a := range h.attempts {
			if a.outdated() && a.earlier == nil && (what == "task "+a.Task || what == "agent "+a.Agent) {
				concerned = append(concerned, a.String())
			}
		}
		if len(keys) > 0 && len(concerned) > 0 {
			h.note.say("%s: %s changed; will run again: %s", what, strings.Join(keys, ", "), list(concerned))
		}
	}
	if !changed && len(old) == len(h.desc.Definitions) && total == len(h.attempts) {
		return nil
	}
	return h.ledger.Append(ledger.Line{Kind: ledger.Edited, Definitions: h.desc.Definitions,
		Attempts: len(h.attempts)})
}

// outdated counts the outdated attempts that will be judged again, and those that will run again. keys are the edited
// keys because of which attempts are judged again.
func (h *history) outdated() (judged, again int, keys []string) {
	edited := map[string]bool{}
	for _, a := range h.attempts {
		switch {
		case !a.outdated():
		case a.earlier == nil:
			again++
		default:
			judged++
			for _, k := range a.earlier.keys {
				edited[k] = true
			}
		}
	}
	return judged, again, slices.Sorted(maps.Keys(edited))
}

// toRejudge returns the last of an attempt's tries if it can be judged again after an edit, otherwise nil. all are the
// tries before the edit, and then the definitions at the last one.
func (h *history) toRejudge(a Attempt, all []schema.SuiteTry, then map[string]map[string]string) *earlier {
	last := all[len(all)-1]
	keys := figures.ChangedKeys(then["task "+a.Task], h.desc.Definitions["task "+a.Task])
	agent := figures.ChangedKeys(then["agent "+a.Agent], h.desc.Definitions["agent "+a.Agent])
	if last.Verdict == schema.SuiteInfrastructure || last.Bundle == "" || len(agent) > 0 || len(keys) == 0 ||
		slices.ContainsFunc(keys, func(k string) bool { return !slices.Contains(judgingKeys, k) }) {
		return nil
	}
	e := &earlier{try: last, keys: keys}
	for _, t := range all[:len(all)-1] {
		for _, f := range t.Suspicions {
			if f.Rule == RuleRecorderKilled {
				e.suspicions = append(e.suspicions, f)
			}
		}
	}
	return e
}

// addVerdict adds a try's verdict to the state.
func (h *history) addVerdict(a *attempt, v *schema.SuiteTry) {
	a.tries = append(a.tries, *v)
	h.blamed.add(a.Attempt, v)
	a.verdict = v
}

// begin opens a try of each attempt.
func (h *history) begin(chosen []*attempt, in *inputs) error {
	lines := make([]ledger.Line, len(chosen))
	for i, a := range chosen {
		a.lastNumber++
		t := &try{of: a, number: a.lastNumber, token: newToken(), lastHeard: h.now()}
		a.open, h.open[t.token] = t, t
		kept, err := in.keep(a.Attempt)
		if err != nil {
			return err
		}
		lines[i] = ledger.Line{Kind: ledger.Opened, Attempt: a.Attempt, Try: t.number, Token: t.token,
			Identity: h.desc.Identities[a.Attempt], Inputs: kept}
	}
	return h.ledger.Append(lines...)
}

// decide writes the verdict in a line about an attempt, whose try is then closed. It returns the verdict that the
// ledger has.
func (h *history) decide(a *attempt, line ledger.Line) (*schema.SuiteTry, error) {
	err := h.ledger.Append(line)
	if errors.Is(err, ledger.ErrUnwritable) {
		line.Verdict = unwritable(line.Verdict, err)
		err = h.ledger.Append(line)
	}
	if err != nil {
		return nil, err
	}
	if t := a.open; t != nil && t.token == line.Token {
		delete(h.open, t.token)
		a.open = nil
	}
	h.addVerdict(a, line.Verdict)
	return line.Verdict, nil
}

// unwritable is the verdict in the place of one that cannot be written to the ledger.
func unwritable(v *schema.SuiteTry, why error) *schema.SuiteTry {
	return &schema.SuiteTry{Try: v.Try, RunID: v.RunID, Bundle: v.Bundle, ExitCode: v.ExitCode, Host: v.Host,
		Judged: v.Judged, Verdict: schema.SuiteInfrastructure, Class: schema.SuiteAssayRun,
		Reason: "its verdict cannot be kept: " + why.Error()}
}

// list joins the first ten names.
func list(names []string) string {
	const maxNames = 10
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

// runID is the id of the run for the try with the given token. Agents know the id. It is a digest, so that they cannot
// learn the token, with which they could report a result.
func runID(token string) string { return "try_" + shortDigest("run\x00"+token, 16) }

// suiteID is the id of a suite in NATS: its name, and a digest that tells it from others of that name.
func suiteID(name, token string) string {
	return carrier.Name(name[:min(len(name), 40)]) + "-" + shortDigest("suite\x00"+token, 6)
}

func shortDigest(s string, bytes int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:bytes])
}

func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never returns an error
	return hex.EncodeToString(b[:])
}

// maxRefused is how many refused messages one process records.
const maxRefused = 1000

// refusals records in the ledger which messages were refused.
type refusals struct {
	ledger *ledger.Ledger
	note   notes
	n      int
}

func newRefusals(l *ledger.Ledger, note notes) *refusals { return &refusals{ledger: l, note: note} }

// add records that a message was refused.
func (r *refusals) add(m carrier.Message, token, why string) error {
	if r.n++; r.n > maxRefused {
		if r.n == maxRefused+1 {
			r.note.say("%d messages of workers were refused, the last one from %s; no more of them are recorded",
				maxRefused, m.From)
		}
		return nil
	}
	return r.ledger.Append(ledger.Line{Kind: ledger.Refused, Token: token[:min(len(token), 64)], Worker: m.From,
		Why: why})
}
