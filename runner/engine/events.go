package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// Event is something that happened to a container.
type Event struct {
	// Action is the engine's word for it: create, start, die, destroy and others. Podman's
	// words for the last two are died and remove.
	Action string
	ID     string
	Name   string
	Image  string
}

// Events calls fn for every event of the containers that a filter selects, such as label
// KEY=VALUE or container ID. It calls listening once the engine will report everything that
// happens from then on. It returns ctx's error, or ErrUnreachable when the engine ends the
// answer.
func (e *Engine) Events(ctx context.Context, filter, value string, listening func(), fn func(Event)) error {
	filters := map[string][]string{"type": {"container"}}
	// To Podman, a label without a value in a filter of events is one whose value is empty.
	keyOnly := e.Name == Podman && filter == "label" && !strings.Contains(value, "=")
	if !keyOnly {
		filters[filter] = []string{value}
	}
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
		if _, has := ev.Actor.Attributes[value]; keyOnly && !has {
			continue
		}
		fn(Event{Action: ev.Action, ID: ev.Actor.ID, Name: ev.Actor.Attributes["name"], Image: ev.Actor.Attributes["image"]})
	}
	err = lines.Err()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, errors.Is(err, io.ErrUnexpectedEOF): // the second if the engine was killed
		err = errors.New("it stopped sending events")
	}
	return fmt.Errorf("%s: %w: %w", e.Name, ErrUnreachable, err)
}

// maxEvent bounds an event, in bytes. An event contains the container's labels.
const maxEvent = 1 << 20

// List returns the ids of the containers with the label that run, or that were created and
// never started.
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
