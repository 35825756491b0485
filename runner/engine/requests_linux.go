package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"time"
)

// maxRequest bounds the description of a container to create, in bytes.
const maxRequest = 16 << 20

// lookTime bounds how long the relay asks the daemon about a container before its start.
const lookTime = 10 * time.Second

var (
	creates = regexp.MustCompile(`^(/v[0-9.]+)?/containers/create$`)
	starts  = regexp.MustCompile(`^(/v[0-9.]+)?/containers/([^/]+)/(start|restart)$`)
)

// look adds the cgroup parent to a request that creates a container, and reports a request
// that starts one.
func (r *Relay) look(req *http.Request, pid uint32) error {
	if req.Method != http.MethodPost {
		return nil
	}
	if creates.MatchString(req.URL.Path) {
		body, err := io.ReadAll(io.LimitReader(req.Body, maxRequest+1))
		if err != nil {
			return err
		}
		if len(body) > maxRequest {
			return errors.New("the request is too long")
		}
		body = withCgroupParent(body, r.parent)
		req.Body, req.ContentLength, req.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		return nil
	}
	if m := starts.FindStringSubmatch(req.URL.Path); m != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookTime)
		defer cancel()
		if c, err := r.daemon.Container(ctx, m[2]); err == nil && c.parent == r.parent {
			r.asked(pid, c)
		}
	}
	return nil
}

// withCgroupParent adds a cgroup parent to the description of a container that has none. It
// leaves anything else as it is: the daemon then reports the error.
func withCgroupParent(body []byte, parent string) []byte {
	var all, host map[string]json.RawMessage
	if json.Unmarshal(body, &all) != nil || all == nil {
		return body
	}
	own := ""
	if h, ok := all["HostConfig"]; ok && json.Unmarshal(h, &host) != nil {
		return body
	}
	if json.Unmarshal(host["CgroupParent"], &own); own != "" {
		return body
	}
	if host == nil {
		host = map[string]json.RawMessage{}
	}
	var err error
	if host["CgroupParent"], err = json.Marshal(parent); err != nil {
		return body
	}
	if all["HostConfig"], err = json.Marshal(host); err != nil {
		return body
	}
	edited, err := json.Marshal(all)
	if err != nil {
		return body
	}
	return edited
}
