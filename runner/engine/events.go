package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
)

// Event says that something happened to a container.
type Event struct {
	// Action is what the engine calls it: create, start, die, destroy and others.
	// Podman says died and remove for the last two.
	Action string
	ID     string
	Name   string
	Image  string
}

// Events calls fn for every event of containers that a filter lets through, such as
// label KEY=VALUE, or container ID. It returns when the engine ends the answer, which is
// ErrUnreachable, or with ctx's error. Listening is called once the engine will tell of
// whatever happens from now on.
func (e *Engine) Events(ctx context.Context, filter, value string, listening func(), fn func(Event)) error {
	filters := map[string][]string{"type": {"container"}, filter: {value}}
	text, _ := json.Marshal(filters)
	body, err := e.open(ctx, "/events", url.Values{"filters": {string(text)}})
	if err != nil {
		return err
	}
	defer body.Close()
	listening()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		var ev struct {
			Action string
			Actor  struct {
				ID         string
				Attributes map[string]string
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			return fmt.Errorf("%s: %w: read an event: %w", e.Name, ErrUnreachable, err)
		}
		fn(Event{Action: ev.Action, ID: ev.Actor.ID, Name: ev.Actor.Attributes["name"], Image: ev.Actor.Attributes["image"]})
	}
	err = lines.Err()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, errors.Is(err, io.ErrUnexpectedEOF): // and the second if it died
		err = errors.New("it stopped sending events")
	}
	return fmt.Errorf("%s: %w: %w", e.Name, ErrUnreachable, err)
}

// maxEvent bounds an event, in bytes: it has the container's labels.
const maxEvent = 1 << 20

// List are the ids of the containers with the label that run, or that were created and
// not started.
func (e *Engine) List(ctx context.Context, label string) (ids []string, err error) {
	text, _ := json.Marshal(map[string][]string{"label": {label}, "status": {"created", "running", "paused"}})
	var list []struct {
		ID string `json:"Id"`
	}
	if err := e.get(ctx, "/containers/json", url.Values{"all": {"true"}, "filters": {string(text)}}, &list); err != nil {
		return nil, err
	}
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	return ids, nil
}
