package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"
)

// maxRequest bounds the description of a container to create, in bytes.
const maxRequest = 1 << 20

// lookTime bounds how long the relay asks the daemon about a container before its start.
const lookTime = 10 * time.Second

var (
	creates = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(/v[0-9.]+)?/containers/create$`) })
	starts  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(/v[0-9.]+)?/containers/([^/]+)/(start|restart)$`) })
)

// errAmbiguous: the daemon may understand a description otherwise than we do.
var errAmbiguous = errors.New("the key appears twice")

// look sees what a request asks for, and gives a container that is to be made its
// cgroup parent. The error says why the request cannot be passed on.
func (r *Relay) look(req *http.Request, pid uint32) error {
	if req.Method != http.MethodPost {
		return nil
	}
	if creates().MatchString(req.URL.Path) {
		body, err := io.ReadAll(io.LimitReader(req.Body, maxRequest+1))
		if err != nil {
			return err
		}
		if len(body) > maxRequest {
			return fmt.Errorf("the description of the container is longer than %d bytes", maxRequest)
		}
		if body, err = withCgroupParent(body, r.parent); err != nil {
			return fmt.Errorf("the description of the container is ambiguous: %w", err)
		}
		req.Body, req.ContentLength, req.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		return nil
	}
	if m := starts().FindStringSubmatch(req.URL.Path); m != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookTime)
		defer cancel()
		if c, err := r.daemon.Container(ctx, m[2]); err == nil && c.parent == r.parent {
			r.asked(pid, c)
		}
	}
	return nil
}

// refuse answers a request that is not passed on, as the daemon does.
func refuse(client io.Writer, why error) {
	body, err := json.Marshal(map[string]string{"message": "assay-run: " + why.Error()})
	if err == nil {
		_, _ = fmt.Fprintf(client, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	}
}

// withCgroupParent is the description of a container with a cgroup parent, if it has
// none. What is no such description stays as it is: the daemon says so. The daemon reads
// keys in upper and lower case, and only the first value.
func withCgroupParent(body []byte, parent string) ([]byte, error) {
	all, err := object(body, "HostConfig")
	if err != nil {
		return nil, err
	}
	if all == nil {
		return body, nil
	}
	host := map[string]json.RawMessage{}
	if h := all["HostConfig"]; h != nil && string(h) != "null" {
		if host, err = object(h, "CgroupParent"); err != nil {
			return nil, err
		}
		if host == nil {
			return body, nil
		}
	}
	own := ""
	if json.Unmarshal(host["CgroupParent"], &own); own != "" {
		return body, nil
	}
	if host["CgroupParent"], err = json.Marshal(parent); err != nil {
		return nil, err
	}
	if all["HostConfig"], err = json.Marshal(host); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// object is the first value of a text, with one key spelled as it is here; nil if it is
// not an object. The error is errAmbiguous.
func object(text []byte, key string) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil
	}
	o := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil {
			return nil, nil
		}
		if strings.EqualFold(name, key) {
			name = key
		}
		if _, twice := o[name]; twice {
			return nil, fmt.Errorf("%q: %w", name, errAmbiguous)
		}
		o[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, nil
	}
	return o, nil
}
