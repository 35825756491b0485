package harbor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/evalfile"
	"github.com/assay-run/assay-run/schema/facts"
)

// Container answers questions about the container of a trial. It is safe for concurrent use.
type Container interface {
	// Workdir waits for the container's start, and returns where commands start in it.
	Workdir(context.Context) (string, error)
	// File resolves the symbolic links in the name of a file, and reports whether it exists.
	File(ctx context.Context, file string) (real string, exists bool, err error)
	// Programs has the names in each directory of the container's PATH.
	Programs(context.Context) (map[string][]string, error)
}

// Recording follows a trial while it is recorded. It is a Trial for [runner.Attach], and for [archive.Recover] if the
// recorder was killed.
type Recording struct {
	trial    *Trial
	in       Container       // nil in archive.Recover
	over     <-chan struct{} // nothing writes a result any more
	follow   facts.Sessions
	sessions []schema.EvaluationSession
	looked   chan *schema.Evaluation // gets what the agent was not to do
	stop     context.CancelFunc
}

// Record returns what records a trial. When over is closed, Harbor has ended.
func Record(trial *Trial, in Container, over <-chan struct{}) *Recording {
	return &Recording{trial: trial, in: in, over: over, looked: make(chan *schema.Evaluation, 1), stop: func() {}}
}

// Begin begins to look for what the agent must not do. keep gets that without the sessions, before Ended returns.
func (r *Recording) Begin(keep func(*schema.Evaluation)) {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		e := look(ctx, r.trial, r.in)
		keep(e)
		r.looked <- e
	}()
}

// Recovered completes what the recorder knew before it was killed, if it knew anything: the sessions, and the labels.
func (r *Recording) Recovered(e *schema.Evaluation) (labels map[string]string) {
	if e != nil {
		r.finish(e)
	}
	labels, _ = r.trial.Labels()
	return labels
}

// finish adds the sessions, and their phases.
func (r *Recording) finish(e *schema.Evaluation) {
	e.Sessions = slices.Clone(r.sessions)
	Phases(e.Sessions)
}

// lookTime limits the search for files in a container.
const lookTime = 20 * time.Second

// look says what the agent must not do, and which of the files in question exist when the container has just started.
// If the engine does not answer, that is not known, and the rules say so.
func look(ctx context.Context, t *Trial, in Container) *schema.Evaluation {
	workdir, _ := in.Workdir(ctx)
	e := &schema.Evaluation{Schema: schema.EvaluationV0, Evaluation: t.Evaluation(workdir)}
	text, err := json.Marshal(e.Evaluation, json.Deterministic(true))
	if err != nil {
		panic("encode: " + err.Error()) // plain data always encodes
	}
	sum := sha256.Sum256(text)
	e.Digest = "sha256:" + hex.EncodeToString(sum[:])
	e.Start = evalfile.Start(&e.Evaluation, "", "", nil)
	ctx, stop := context.WithTimeout(ctx, lookTime)
	defer stop()
	found, err := evalfile.InContainer(&e.Evaluation, "", func(file string) (string, bool, error) {
		return in.File(ctx, file)
	})
	if err == nil {
		found.Programs, _ = in.Programs(ctx)
		e.Start.Container = found
	}
	return e
}

// maxSessions limits the sessions of a trial, and maxWords the bytes of one's arguments.
const (
	maxSessions = 10_000
	maxWords    = 1000
)

// See takes the next line of the kernel layer.
func (r *Recording) See(e *schema.KernelEvent) {
	at := r.follow.Read(e)
	if e.Kind == schema.KindJoin && at < maxSessions {
		s := schema.EvaluationSession{Seq: e.Seq, TNS: e.TNS}
		if at == 0 || e.Class != schema.ClassSetup { // the others were there when the recording began
			s.Phase = schema.PhaseEnvironment
		}
		r.sessions = append(r.sessions, s)
	}
	begins := e.Kind == schema.KindExec || e.Kind == schema.KindJoin
	if !begins || at < 0 || at >= len(r.sessions) || e.Class == schema.ClassSetup || e.Failed() {
		return
	}
	s, left := &r.sessions[at], maxWords
	if s.Program != "" {
		return
	}
	if s.Program = strings.Clone(e.Value); e.Kind == schema.KindJoin {
		s.Program = strings.Clone(e.Exe)
	}
	for _, arg := range e.Argv {
		if left -= len(arg); left < 0 {
			break
		}
		s.Argv = append(s.Argv, strings.Clone(arg))
	}
}

// Ended waits for Harbor's result.
func (r *Recording) Ended() (labels map[string]string, e *schema.Evaluation) {
	for {
		over := false
		select {
		case <-r.over:
			over = true
		case <-time.After(resultPause):
		}
		var done bool
		if labels, done = r.trial.Labels(); done || over {
			break
		}
	}
	r.stop()
	e = <-r.looked
	r.finish(e)
	return labels, e
}

// resultPause is the time between two looks for a result.
const resultPause = 100 * time.Millisecond
