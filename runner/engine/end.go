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

// The name and first argument of what the own binary is started for.
const (
	roleName = "assay-run"
	roleArg  = "__containers"
)

// endTime bounds how long an engine is waited for.
const endTime = 20 * time.Second

var entered bool

// Enter ends the containers that this process was started to end, and exits, or
// becomes the client that StandIn made it stand in for. It returns where this process
// was started for something else.
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

// Afterwards is the command line, for /proc/self/exe, that does what End does for a
// runner that was killed; nil where Enter was not called.
func Afterwards(socket, parent string) []string {
	if !entered {
		return nil
	}
	return []string{roleName, roleArg, socket, parent}
}

// End stops the container, by its own signal to stop and by SIGKILL so many seconds
// after that, and makes the engine start it never again by itself. It returns when
// the container has ended. One that does not run, or has gone, is no error.
func (e *Engine) End(ctx context.Context, id string, seconds int) error {
	body, err := e.do(ctx, http.MethodPost, "/containers/"+id+"/stop", url.Values{"t": {strconv.Itoa(seconds)}}, nil)
	if err == nil { // only now: Docker updates no container that is about to start
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

// Below are the containers that were started with this cgroup parent and that run,
// or that the engine may start again. A container that goes meanwhile is left out.
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

// End ends all containers that were started with this cgroup parent and makes the
// Docker daemon at the socket start none of them again. It returns those that it ended.
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
