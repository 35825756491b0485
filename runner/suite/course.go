//go:build linux

package suite

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/schema"
)

const (
	// tickTime is the time between two checks of the leases.
	tickTime = 200 * time.Millisecond
	// maxTickGap is the longest time between two checks of the leases that a busy machine explains. After a longer one,
	// leases are extended by it.
	maxTickGap = time.Second
)

// course is the way of a suite from its first try to its last verdict, over one carrier. It reacts to what workers say
// and to the clock; its parts know the rest. It is not safe for concurrent use.
type course struct {
	config   *Config
	now      func() time.Time
	note     notes
	history  *history
	machines *machines
	fleet    *fleet
	schedule *schedule
	inputs   *inputs
	refusals *refusals
	offers   *offers
	supply   *supply
	examiner *examiner
	rejudger *rejudger
	lastTick time.Time // when expire last ran
	killed   bool      // the suite is interrupted
}

func newCourse(c *Coordinator, over hub) *course {
	return &course{
		config: &c.config, now: c.now, note: c.note, history: c.history, machines: c.machines, fleet: c.fleet,
		schedule: c.schedule, inputs: c.inputs, refusals: newRefusals(c.history.ledger, c.note),
		offers:   newOffers(over, c.config.File, c.sources, c.now, c.note),
		supply:   newSupply(over, c.config.File, c.sources),
		examiner: newExaminer(c.config.File, c.config.Dir, c.config.LocalDir, over, c.config.Examine),
		rejudger: newRejudger(&c.config, c.sources),
	}
}

// run opens tries and gives them to workers until all attempts have a verdict. When ctx ends it opens no more tries.
// It returns when none is open. When kill ends it decides the open tries as interrupted, and returns.
func (c *course) run(ctx, kill context.Context) error {
	tick := time.NewTicker(tickTime)
	defer tick.Stop()
	sending, unsend := context.WithCancel(kill)
	defer func() {
		c.examiner.wait()
		c.rejudger.wait()
		unsend()
		c.supply.wait()
	}()
	if err := c.closeDead(); err != nil {
		return err
	}
	c.rejudger.start(ctx, c.history.attempts)
	for _, t := range c.history.open {
		if !t.began {
			c.offers.add(t)
		}
	}
	stopped := ctx.Done()
	for {
		if ctx.Err() == nil {
			if err := c.openTries(); err != nil {
				return err
			}
			if err := c.offers.publish(kill); err != nil {
				return err
			}
		}
		if len(c.history.open) == 0 && c.examiner.running == 0 && c.rejudger.running == 0 &&
			(ctx.Err() != nil || !slices.ContainsFunc(c.history.attempts, c.schedule.pace.needsTry)) {
			return nil
		}
		var err error
		select {
		case m := <-c.config.Reports:
			err = c.handle(kill, m)
		case q := <-c.config.Questions:
			err = c.answer(sending, q)
		case s := <-c.supply.results:
			c.supply.settle(s)
		case <-c.config.WorkLost:
			c.offers.republish(c.history.open)
		case e := <-c.examiner.results:
			c.examiner.done()
			err = c.conclude(e)
		case j := <-c.rejudger.results:
			c.rejudger.done()
			err = c.concludeRejudged(ctx, j)
		case <-tick.C:
			err = c.expire(kill)
		case <-stopped:
			stopped = nil
			c.offers.recall(kill)
		case <-kill.Done():
			c.killed = true
			if len(c.history.open) == 0 && c.examiner.running == 0 {
				return context.Cause(kill)
			}
			return c.interrupt()
		}
		if err != nil {
			return err
		}
	}
}

// closeDead closes the tries that the worker LocalWorker began in an earlier process: they died with it.
func (c *course) closeDead() error {
	for _, t := range c.history.open {
		if t.host == nil || c.config.LocalWorker == "" || t.host.Worker != c.config.LocalWorker {
			continue
		}
		v := &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Verdict: schema.SuiteInfrastructure,
			Class: schema.SuiteInterrupted, Reason: "assay-suite ended before the run did"}
		if err := c.closeTry(t, v); err != nil {
			return err
		}
	}
	return nil
}

// openTries opens as many tries as the workers and the disk allow.
func (c *course) openTries() error {
	if !c.offers.hub.Up() {
		return nil
	}
	capacity := c.fleet.capacity(c.rejudger.running)
	// An examination occupies no worker.
	room := capacity - len(c.history.open) + min(c.examiner.running, capacity)
	chosen := c.schedule.next(c.history.attempts, c.history.open, room)
	if len(chosen) == 0 {
		return nil
	}
	if err := c.history.begin(chosen, c.inputs); err != nil {
		return err
	}
	for _, a := range chosen {
		c.offers.add(a.open)
	}
	return nil
}

// answer answers a worker's question. ctx ends the sending of workspaces.
func (c *course) answer(ctx context.Context, q Question) error {
	var h hello
	if err := json.Unmarshal(q.Data, &h); err != nil || h.Suite != "" && h.Suite != c.history.id {
		q.Answer <- nil
		return nil
	}
	w := &Welcome{Suite: c.history.id, Name: c.config.File.Name, LeaseNS: int64(c.config.lease())}
	defer func() { q.Answer <- w }()
	if h.MissingWorkspace != "" && !c.killed {
		w.SendError = c.supply.send(ctx, h.MissingWorkspace)
	}
	own := q.From == c.config.LocalWorker
	if h.Version != c.config.Version {
		w.Refused = fmt.Sprintf("its assay-suite is version %s, but the coordinator's is %s", h.Version,
			c.config.Version)
		h.Slots = 0
	}
	if !own && (h.Suite != "" || w.Refused != "") { // without Suite it only looks for one, and may join another
		c.fleet.heard(q.From, &h, w.Refused)
	}
	for _, token := range h.Running {
		t := c.history.open[token]
		if t == nil || c.killed && !own || !c.mayReport(t, q.From, h.Instance) {
			w.GiveUp = append(w.GiveUp, token)
			continue
		}
		t.lastHeard, t.taken = c.now(), true
	}
	if p := process(h.Instance); c.history.blamed.silent[p] != nil && h.MissingWorkspace == "" {
		c.history.blamed.lives(p, h.Stopped)
		return c.history.ledger.Append(ledger.Line{Kind: ledger.Back, Worker: q.From, Instance: h.Instance,
			Stopped: h.Stopped})
	}
	return nil
}

// mayReport reports whether the worker may report about the try: no other worker has begun it.
func (c *course) mayReport(t *try, worker, instance string) bool {
	return !t.began || (t.host == nil || t.host.Worker == worker) && (t.instance == "" || t.instance == instance)
}

// handle handles a worker's report.
func (c *course) handle(ctx context.Context, m carrier.Message) error {
	var r report
	if err := json.Unmarshal(m.Data, &r); err != nil {
		defer m.Done()
		return c.refusals.add(m, "", "a message cannot be read: "+err.Error())
	}
	t := c.history.open[r.Token]
	if t == nil || t.deciding {
		defer m.Done()
		if t == nil && c.config.LocalDir != "" && m.From == c.config.LocalWorker {
			discard(c.config.LocalDir, r.Token) // it is not needed any more
		}
		return c.refusals.add(m, r.Token, "no such try is open")
	}
	if !c.mayReport(t, m.From, r.Instance) {
		defer m.Done()
		return c.refusals.add(m, r.Token, "the try is another worker's")
	}
	t.lastHeard, t.taken = c.now(), true
	line := ledger.Line{Attempt: t.of.Attempt, Try: t.number, Token: t.token}
	switch {
	case r.Began != nil && !t.began:
		r.clean()
		r.Began.Worker = m.From
		t.began, t.host, t.instance = true, r.Began, r.Instance
		c.machines.add(t.of.Agent, *r.Began)
		line.Kind, line.Host, line.Worker, line.Instance = ledger.Began, r.Began, m.From, r.Instance
		if err := c.history.ledger.Append(line); err != nil {
			return err
		}
		m.Done()
		return nil
	case r.Ended != nil:
		r.clean()
		line.Kind = ledger.Ended
		if err := c.history.ledger.Append(line); err != nil {
			return err
		}
		t.deciding = true
		c.examiner.start(ctx, t, r.Ended, m)
		return nil
	}
	m.Done()
	return nil
}

// conclude decides a try after its bundle was examined.
func (c *course) conclude(e examination) error {
	t := e.try
	v := &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Bundle: e.bundle, ExitCode: e.end.ExitCode}
	switch {
	case e.found != nil:
		e.found.judge(v)
	case e.end.Class != "":
		v.Verdict, v.Class, v.Reason = schema.SuiteInfrastructure, e.end.Class, e.end.Reason
		v.CausedBy = schema.CausedByHost // the agent had not begun
	default:
		v.Verdict, v.Class = schema.SuiteInfrastructure, schema.SuiteAssayRun
		v.Reason = cmp.Or(e.problem, "assay-run left no bundle: "+e.end.Stderr)
		v.Class = faultClass(v.Reason, v.Class)
	}
	switch {
	case e.lost:
		v.Class, v.CausedBy = schema.SuiteWorkerLost, schema.CausedByHost
	case c.killed && (v.Class == schema.SuiteWorkerLost || e.problem != ""):
		v.Class, v.Reason = schema.SuiteInterrupted, "the suite was interrupted"
	case e.end.Signal != "":
		blameAgent(v, schema.SuiteAssayRun, RuleRecorderKilled, "assay-run was killed by a signal ("+e.end.Signal+
			") that the worker did not send")
	case e.end.Disk != "":
		blameAgent(v, schema.SuiteDiskFull, RuleFillsDisk, e.end.Disk)
	case e.end.DiskHidden:
		v.Unknown = append(v.Unknown, RuleFillsDisk)
	}
	if err := c.closeTry(t, v); err != nil {
		return err
	}
	e.message.Done()
	if e.end.Stored && !e.lost { // only after the verdict: a coordinator after a crash needs the bundle again
		c.examiner.forget(&e)
	}
	return nil
}

// blameAgent makes the verdict failed, with a suspicion: the agent caused the failure, or may have.
func blameAgent(v *schema.SuiteTry, class, rule, why string) {
	v.Verdict, v.Class, v.CausedBy, v.Reason = schema.SuiteFailed, class, schema.CausedByAgent, why
	v.Suspicions = append(v.Suspicions, schema.Finding{Rule: rule, Text: schema.OneLine(why), Events: []uint64{}})
}

// closeTry writes the verdict of an open try to the ledger, and closes the try.
func (c *course) closeTry(t *try, v *schema.SuiteTry) error {
	v.Host, v.WorkerProcess = t.host, process(t.instance)
	v, err := c.history.decide(t.of, ledger.Line{Kind: ledger.Verdict, Attempt: t.of.Attempt, Try: t.number,
		Token: t.token, Verdict: v})
	if err != nil {
		return err
	}
	c.schedule.turns.took(t.of.Attempt, v)
	c.schedule.pace.tried(t.of, v, t.instance)
	c.told(t.of, v)
	return nil
}

func (c *course) told(a *attempt, v *schema.SuiteTry) {
	if c.config.OnVerdict != nil {
		c.config.OnVerdict(a.Attempt, v)
	}
}

// concludeRejudged writes the verdict of an attempt that was judged again. If that failed, the attempt runs again.
func (c *course) concludeRejudged(ctx context.Context, j judged) error {
	a, v := j.of, j.verdict
	switch {
	case ctx.Err() != nil:
		return nil // the next run of the suite judges it
	case j.err != nil:
		c.note.say("%s cannot be judged again, and will run again: %v", a, j.err)
		a.earlier = nil
		return nil
	}
	kept, err := c.inputs.keep(a.Attempt)
	if err != nil {
		return err
	}
	v, err = c.history.decide(a, ledger.Line{Kind: ledger.Verdict, Attempt: a.Attempt, Try: v.Try, Token: newToken(),
		Identity: c.history.desc.Identities[a.Attempt], Inputs: kept, Verdict: v})
	if err != nil {
		return err
	}
	a.lastNumber, a.earlier = v.Try, nil
	a.oldTries = len(a.tries)
	c.schedule.turns.took(a.Attempt, v)
	c.told(a, v)
	return nil
}

// expire closes tries without a heartbeat for a lease, and removes such workers.
func (c *course) expire(ctx context.Context) error {
	lease, now := c.config.lease(), c.now()
	up := c.offers.hub.Up()
	if gap := now.Sub(c.lastTick); !c.lastTick.IsZero() && gap > maxTickGap {
		c.fleet.extend(gap) // this process was stopped or waited for the carrier, and could not hear them
		for _, t := range c.history.open {
			t.lastHeard = t.lastHeard.Add(gap)
		}
	}
	c.lastTick = now
	c.fleet.expire(up)
	for _, t := range c.history.open {
		if !up && !t.deciding {
			t.lastHeard = now // no heartbeat can arrive
		}
		if c.offers.lapsed(t) {
			if err := c.closeTry(t, interrupted(t)); err != nil {
				return err
			}
			continue
		}
		if t.deciding || now.Sub(t.lastHeard) < lease {
			continue
		}
		if !t.taken && t.work == 0 {
			continue // it is not published yet
		}
		if !t.taken {
			taken, err := c.offers.hub.Taken(ctx, t.work)
			switch {
			case err != nil:
				return nil // the carrier does not answer
			case !taken:
				t.lastHeard = now // it waits for a worker
			default:
				t.taken, t.lastHeard = true, now
			}
			continue
		}
		v := &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Verdict: schema.SuiteInfrastructure,
			Class: schema.SuiteWorkerLost, Reason: "its worker was silent for " + lease.String()}
		if !t.began {
			v.Class, v.Reason = schema.SuiteNotBegun, "a worker took it but did not begin"
		}
		if err := c.closeTry(t, v); err != nil {
			return err
		}
	}
	return nil
}

func interrupted(t *try) *schema.SuiteTry {
	return &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Verdict: schema.SuiteInfrastructure,
		Class: schema.SuiteInterrupted, Reason: "the suite was interrupted"}
}

// interrupt decides all open tries after the suite was interrupted. It waits for the reports of its own worker. Other
// workers are told to give their tries up when they next ask.
func (c *course) interrupt() error {
	timeout := time.After(c.config.lease())
	c.offers.recall(context.Background())
	for _, t := range c.history.open {
		if !t.began && !t.deciding {
			if err := c.closeTry(t, interrupted(t)); err != nil {
				return err
			}
		}
	}
	for len(c.history.open) > 0 || c.examiner.running > 0 {
		var err error
		select {
		case m := <-c.config.Reports:
			err = c.handle(context.Background(), m)
		case e := <-c.examiner.results:
			c.examiner.done()
			err = c.conclude(e)
		case q := <-c.config.Questions:
			var h hello
			_ = json.Unmarshal(q.Data, &h)
			err = c.answer(context.Background(), q)
			for _, token := range h.Running {
				if t := c.history.open[token]; t != nil && !t.deciding && q.From != c.config.LocalWorker && err == nil {
					err = c.closeTry(t, interrupted(t))
				}
			}
		case <-timeout:
			for _, t := range c.history.open {
				if !t.deciding && err == nil {
					err = c.closeTry(t, interrupted(t))
				}
			}
			timeout = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
