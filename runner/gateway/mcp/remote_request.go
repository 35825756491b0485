package mcp

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// Headers of MCP's Streamable HTTP transport.
const (
	headerSession  = "Mcp-Session-Id"
	headerVersion  = "Mcp-Protocol-Version"
	headerMethod   = "Mcp-Method"
	headerName     = "Mcp-Name"
	headerLastSeen = "Last-Event-Id"
)

func (c *remote) newRequest(ctx context.Context, method string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL, body)
	if err != nil {
		return nil, err
	}
	headers := []http.Header{c.Header}
	if c.Forward != nil {
		headers = append(headers, c.Forward())
	}
	for _, h := range headers {
		for name, values := range h {
			req.Header[name] = values
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != "" {
		req.Header.Set(headerSession, c.session)
	}
	if c.version != "" {
		req.Header.Set(headerVersion, c.version)
	}
	return req, nil
}

func (c *remote) post(ctx context.Context, body []byte, m *jsonrpc.Message) (*http.Response, error) {
	if m.Method == "initialize" {
		c.mu.Lock()
		c.session, c.version = "", ""
		c.mu.Unlock()
	}
	req, err := c.newRequest(ctx, http.MethodPost, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	var p struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	if m.Method != "" {
		req.Header.Set(headerMethod, m.Method)
		if m.Params.Kind() == '{' && json.Unmarshal(m.Params, &p) == nil {
			if name := p.Name + p.URI; name != "" && headerText(name) {
				req.Header.Set(headerName, name)
			}
			if p.Meta.Version != "" && headerText(p.Meta.Version) {
				req.Header.Set(headerVersion, p.Meta.Version)
			}
		}
	}
	return c.client.Do(req)
}

// headerText reports whether a header may contain a text unencoded.
func headerText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
