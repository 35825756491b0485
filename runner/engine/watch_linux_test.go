package engine

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestWatchEndsAtAnEnd: an engine reports a container's death a moment before it drops it from the running ones. A
// joined container is then not reported as missed, and one that was not joined is.
func TestWatchEndsAtAnEnd(t *testing.T) {
	event := func(action, id string) string {
		return fmt.Sprintf(`{"Action":%q,"Actor":{"ID":%q,"Attributes":{"name":%q}}}`+"\n", action, id, id)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	joined := make(chan string)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch at := r.URL.Path; {
		case strings.HasSuffix(at, "/info"):
			fmt.Fprint(w, `{"CgroupDriver":"cgroupfs"}`)
		case strings.HasSuffix(at, "/events"):
			flush := http.NewResponseController(w)
			fmt.Fprint(w, event("create", "first"), event("start", "first"))
			flush.Flush()
			<-joined
			fmt.Fprint(w, event("die", "first"), event("create", "second"))
			flush.Flush()
			<-r.Context().Done()
		case strings.HasSuffix(at, "/containers/json"):
			select {
			case <-joined:
				fmt.Fprint(w, `[{"Id":"first"},{"Id":"third"}]`)
			default:
				fmt.Fprint(w, `[]`)
			}
		default:
			id := filepath.Base(filepath.Dir(at))
			fmt.Fprintf(w, `{"Id":%q,"State":{"Status":"exited"}}`, id)
		}
	})}
	go s.Serve(l)
	e := New(Docker, socket)
	t.Cleanup(func() { e.Close(); s.Close() })
	ctx, stop := context.WithCancel(t.Context())
	var missed []string
	err = e.Watch(ctx, "eval", Watcher{
		Join: func(c *Container) bool {
			if c.ID == "first" {
				close(joined)
			} else {
				stop() // the death of the first has been heard of
			}
			return true
		},
		Missed:    func(c *Container) { missed = append(missed, c.ID) },
		Listening: func() {},
		Lost:      func(err error) { t.Error(err) },
	})
	if err != nil || len(missed) != 1 || missed[0] != "third" {
		t.Errorf("%v, missed %q, want third alone", err, missed)
	}
}
