package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

// Bounds of what the API server may answer, and of how long it may take.
const (
	maxPage     = 32 << 20 // bytes of a page of a list
	maxPages    = 100
	maxPodEvent = 4 << 20 // bytes; etcd keeps objects of 1.5 MiB
	listTime    = time.Minute
	watchTime   = 5 * time.Minute // then the server ends the watch, and Events goes on with another
	slowest     = 5 * time.Second // between two attempts
)

// errGone means that the API server no longer knows the version that a watch began at.
var errGone = errors.New("the API server no longer has that resource version")

// Events is as Engine.Events, for the pods of the node that have a label. It ignores the
// filter's name. The first call reports no event of the pods that List returns.
func (p *Pods) Events(ctx context.Context, _, label string, listening func(), fn func(Event)) error {
	client, err := p.api.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	version := ""
	for told := false; ; {
		if err := p.pause(ctx); err != nil {
			return err
		}
		if version == "" {
			if version, err = p.list(ctx, client, label, fn); err != nil {
				return err
			}
		}
		next, err := p.watch(ctx, client, label, version, func() {
			if !told {
				told = true
				listening()
			}
		}, fn)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errGone):
			next = ""
		case err != nil && (next == version || !told): // it reported nothing
			return err
		}
		version = next
	}
}

// pause waits before a request, longer after each one that reported nothing.
func (p *Pods) pause(ctx context.Context) error {
	n := p.idle
	p.idle++
	if n == 0 {
		return ctx.Err()
	}
	wait := min(patience<<min(n-1, 10), slowest)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait/2 + rand.N(wait/2)): // not all nodes at the same time
		return nil
	}
}

func (p *Pods) query(label string) url.Values {
	return url.Values{"labelSelector": {label}, "fieldSelector": {"spec.nodeName=" + p.node}}
}

func (p *Pods) path() string {
	if p.namespace == "" {
		return "/api/v1/pods"
	}
	return "/api/v1/namespaces/" + p.namespace + "/pods"
}

// list notes all pods, and returns the version from which a watch goes on.
func (p *Pods) list(ctx context.Context, client *http.Client, label string, fn func(Event)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	if !p.listed { // Watch asks List for these
		fn = func(Event) {}
	}
	query := p.query(label)
	query.Set("limit", "500")
	seen := map[string]bool{}
	for range maxPages {
		var page struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []podObject `json:"items"`
		}
		body, err := p.api.get(ctx, client, "list", p.path(), query)
		if errors.Is(err, errGone) { // the server no longer has the next page
			err = p.api.failed(err)
		}
		if err != nil {
			return "", err
		}
		err = json.NewDecoder(io.LimitReader(body, maxPage)).Decode(&page)
		body.Close()
		if err == nil && page.Metadata.ResourceVersion == "" {
			err = errors.New("it has no resourceVersion")
		}
		if err != nil {
			return "", p.api.failed(fmt.Errorf("read the list of pods: %w", err))
		}
		for i := range page.Items {
			seen[page.Items[i].Metadata.UID] = true
			if err := p.note(&page.Items[i], false, fn); err != nil {
				return "", p.api.failed(err)
			}
		}
		if page.Metadata.Continue == "" {
			p.vanished(seen, fn)
			p.listed = true
			return page.Metadata.ResourceVersion, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
	return "", p.api.failed(fmt.Errorf("the list of pods has more than %d pages", maxPages))
}

// watch notes what happens to the pods after a version. It returns the version that it came
// to, and nil if the server ended the watch as it may.
func (p *Pods) watch(ctx context.Context, client *http.Client, label, version string, listening func(), fn func(Event)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime+listTime)
	defer cancel()
	query := p.query(label)
	query.Set("watch", "1")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", version)
	query.Set("timeoutSeconds", fmt.Sprint(int(watchTime.Seconds())))
	body, err := p.api.get(ctx, client, "watch", p.path(), query)
	if err != nil {
		return version, err
	}
	defer body.Close()
	listening()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxPodEvent)
	for lines.Scan() {
		var ev struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			return version, p.api.failed(fmt.Errorf("read an event: %w", err))
		}
		if ev.Type == "ERROR" {
			return version, p.api.status(ev.Object)
		}
		var o podObject
		err := json.Unmarshal(ev.Object, &o)
		if err == nil && ev.Type != "BOOKMARK" {
			err = p.note(&o, ev.Type == "DELETED", fn)
		}
		if err == nil && o.Metadata.ResourceVersion == "" {
			err = errors.New("it has no resourceVersion")
		}
		if err != nil {
			return version, p.api.failed(fmt.Errorf("read an event of the type %q: %w", ev.Type, err))
		}
		version, p.idle = o.Metadata.ResourceVersion, 1 // bookmarks count, too
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return version, p.api.failed(fmt.Errorf("it stopped sending events: %w", err))
	}
	return version, nil
}
