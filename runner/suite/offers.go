//go:build linux

package suite

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// hub is the coordinator's end of a carrier; see [carrier.Hub].
type hub interface {
	Publish(ctx context.Context, key string, work any) (uint64, error)
	Recall(ctx context.Context) error
	Taken(ctx context.Context, number uint64) (bool, error)
	Fetch(ctx context.Context, name string, size int64, w io.Writer) error
	Forget(ctx context.Context, name string, size int64) error
	SendWorkspace(ctx context.Context, name string, r io.Reader) error
	Up() bool
}

// offers are the open tries that workers can take.
type offers struct {
	hub      hub
	file     *File
	sources  map[string]source
	instance string // of this process; random
	now      func() time.Time
	note     notes
	waiting  []*try    // tries that are not published yet
	recalled time.Time // when recall last ran; zero means never
}

func newOffers(h hub, f *File, sources map[string]source, now func() time.Time, note notes) *offers {
	return &offers{hub: h, file: f, sources: sources, instance: newToken(), now: now, note: note}
}

// add offers a try with the next publish.
func (o *offers) add(t *try) { o.waiting = append(o.waiting, t) }

// publish publishes the tries that wait for it. If the carrier does not answer, the rest waits for the next call.
func (o *offers) publish(ctx context.Context) error {
	for len(o.waiting) > 0 && o.hub.Up() {
		t := o.waiting[0]
		if t.of.open != t || t.began || t.deciding {
			o.waiting = o.waiting[1:]
			continue
		}
		work, err := o.file.work(t.of.Attempt, t.number, t.token, o.sources[t.of.Task])
		if err != nil {
			return err
		}
		number, err := o.hub.Publish(ctx, fmt.Sprintf("%s.%s.%d", t.token, o.instance, t.losses), work)
		if err != nil {
			return nil
		}
		t.work, t.lastHeard = number, o.now()
		o.waiting = o.waiting[1:]
	}
	return nil
}

// republish publishes all open tries again that no worker is known to have taken, because the carrier lost them.
func (o *offers) republish(open map[string]*try) {
	o.note.say("NATS lost its data: attempts that no worker has taken are published again")
	o.waiting = nil
	for _, t := range open {
		if !t.taken && !t.began {
			t.work, t.losses = 0, t.losses+1
			o.waiting = append(o.waiting, t)
		}
	}
}

// recall takes back the work that no worker has taken.
func (o *offers) recall(ctx context.Context) {
	o.waiting = nil
	_ = o.hub.Recall(ctx) // if it fails, a worker that takes such a try is told to give it up
	o.recalled = o.now()
}

// lapsed reports whether nobody can begin a try any more, as its work was taken back.
func (o *offers) lapsed(t *try) bool {
	return !o.recalled.IsZero() && !t.began && !t.deciding && o.now().Sub(o.recalled) >= beginTime
}

// beginTime is how long a worker may take, after a recall, to report that it began a try that it took before.
const beginTime = 2 * time.Second

// sent is the result of sending a workspace.
type sent struct {
	digest string
	err    error
}

// supply sends workspaces to workers that lack them.
type supply struct {
	hub     hub
	file    *File
	sources map[string]source
	results chan sent
	sending map[string]bool  // workspaces that are being sent, by digest
	unsent  map[string]error // why workspaces could not be sent, by digest
}

func newSupply(h hub, f *File, sources map[string]source) *supply {
	return &supply{hub: h, file: f, sources: sources, results: make(chan sent), sending: map[string]bool{},
		unsent: map[string]error{}}
}

// send starts sending the workspace with the given digest in the background, unless it is being sent already. Workers
// ask again until they have it. If sending failed since the last question, it returns why; otherwise it returns "".
func (s *supply) send(ctx context.Context, digest string) string {
	if err := s.unsent[digest]; err != nil {
		delete(s.unsent, digest)
		return err.Error()
	}
	at := slices.IndexFunc(s.file.Tasks, func(t Task) bool { return s.sources[t.Name].digest == digest })
	if at < 0 {
		return "no task of the suite has a workspace with this digest"
	}
	if !s.sending[digest] {
		s.sending[digest] = true
		go func() {
			r, w := io.Pipe()
			go func() { w.CloseWithError(pack(w, s.sources[s.file.Tasks[at].Name].path, digest)) }()
			err := s.hub.SendWorkspace(ctx, sentName(digest), r)
			r.CloseWithError(err)
			s.results <- sent{digest, err}
		}()
	}
	return ""
}

// settle notes a result.
func (s *supply) settle(r sent) {
	delete(s.sending, r.digest)
	if r.err != nil {
		s.unsent[r.digest] = r.err
	}
}

// wait returns when nothing is being sent.
func (s *supply) wait() {
	for len(s.sending) > 0 {
		delete(s.sending, (<-s.results).digest)
	}
}
