package engine

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// The name and first argument under which this program is started to end containers.
const (
	roleName = "assay-run"
	roleArg  = "__containers"
)

// endTime bounds how long End waits for an engine.
const endTime = 20 * time.Second

var entered bool

// Enter does what this process was started for. If that is to end containers, it ends them
// and exits. If the process was started through a link of StandIn, it becomes the client.
// Otherwise it returns.
func Enter() {
	entered = true
	beClient()
	if len(os.Args) != 4 || os.Args[0] != roleName || os.Args[1] != roleArg {
		return
	}
	if _, err := End(context.Background(), os.Args[2], os.Args[3]); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Afterwards is the command line, for /proc/self/exe, that does the work of End after the
// runner was killed. It is nil if Enter was not called.
func Afterwards(socket, parent string) []string {
	if !entered {
		return nil
	}
	return []string{roleName, roleArg, socket, parent}
}

// End stops the container with its stop signal, and with SIGKILL after that many seconds. It
// also keeps the engine from starting the container again by itself. End returns when the
// container has ended. A container that does not run, or was removed, is no error.
func (e *Engine) End(ctx context.Context, id string, seconds int) error {
	body, err := e.do(ctx, http.MethodPost, "/containers/"+id+"/stop", url.Values{"t": {strconv.Itoa(seconds)}}, nil)
	if err == nil { // only now: Docker refuses to update a container that it is about to start
		body.Close()
		no := map[string]any{"RestartPolicy": map[string]string{"Name": "no"}}
		if body, err = e.do(ctx, http.MethodPost, "/containers/"+id+"/update", nil, no); err == nil {
			body.Close()
		}
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Below returns the containers that were started with this cgroup parent and that run, or
// that the engine may start again. It leaves out a container that is removed meanwhile.
func (e *Engine) Below(ctx context.Context, parent string) (found []Container, err error) {
	var all []struct{ ID string }
	if err := e.get(ctx, "/containers/json", url.Values{"all": {"1"}}, &all); err != nil {
		return nil, err
	}
	for _, one := range all {
		c, err := e.Container(ctx, one.ID)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return found, err
		case c.parent == parent && c.active:
			found = append(found, *c)
		}
	}
	return found, nil
}

// End ends all containers that were started with this cgroup parent, and keeps the Docker
// daemon at the socket from starting them again. It returns the containers that it ended.
func End(ctx context.Context, socket, parent string) (ended []Container, err error) {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	c := New(Docker, socket)
	defer c.Close()
	found, err := c.Below(ctx, parent)
	for _, one := range found {
		if e := c.End(ctx, one.ID, 0); e != nil {
			err = errors.Join(err, e)
			continue
		}
		ended = append(ended, one)
	}
	return ended, err
}
