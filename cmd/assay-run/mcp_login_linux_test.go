package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// authorized is an MCP server that asks for a login (RFC 9728), and its authorization
// server, which issues a token for the server's own URL only (RFC 8707).
type authorized struct {
	base string

	mu        sync.Mutex
	resources []string // for which a token was asked
}

const issuedToken = "k7-issued-token-q93vx"

func startAuthorized(t *testing.T) *authorized {
	a := &authorized{}
	tools := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "echo"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "echo"}}}, nil, nil
		})
	serve := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+issuedToken {
			w.Header().Set("WWW-Authenticate",
				`Bearer resource_metadata="`+a.base+`/.well-known/oauth-protected-resource/mcp"`)
			http.Error(w, "log in", http.StatusUnauthorized)
			return
		}
		serve.ServeHTTP(w, r)
	})
	answer := func(path string, status int, doc func(r *http.Request) map[string]any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			json.NewEncoder(w).Encode(doc(r))
		})
	}
	answer("/.well-known/oauth-protected-resource/mcp", 200, func(*http.Request) map[string]any {
		return map[string]any{"resource": a.base + "/mcp", "authorization_servers": []string{a.base}}
	})
	answer("/.well-known/oauth-authorization-server", 200, func(*http.Request) map[string]any {
		return map[string]any{
			"issuer": a.base, "authorization_endpoint": a.base + "/authorize", "token_endpoint": a.base + "/token",
			"registration_endpoint":    a.base + "/register",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
		}
	})
	answer("/register", 201, func(*http.Request) map[string]any {
		return map[string]any{"client_id": "c", "redirect_uris": []string{"http://127.0.0.1/callback"}}
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		to := url.Values{"code": {"a-code"}, "state": {r.FormValue("state")}}
		http.Redirect(w, r, r.FormValue("redirect_uri")+"?"+to.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		a.mu.Lock()
		a.resources = append(a.resources, r.FormValue("resource"))
		a.mu.Unlock()
		if r.FormValue("resource") != a.base+"/mcp" {
			w.WriteHeader(http.StatusBadRequest)
			json.NewEncoder(w).Encode(map[string]string{"error": "invalid_target"})
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"access_token": issuedToken, "token_type": "Bearer",
			"expires_in": 3600})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	a.base = s.URL
	return a
}

// login tests that a client of the SDK can log in to a remote server through mcp if it
// takes the server's own URL for the resource, and that one which does not is told so
// before it asks for a token. mcp writes no token anywhere.
func login(t *testing.T, program, dir, sdk string) {
	server := startAuthorized(t)
	log := filepath.Join(t.TempDir(), "decisions.jsonl")
	cmd := exec.Command(program, "mcp", "--policy", "policy.yaml", "--decision-log", log, "--listen", "127.0.0.1:0",
		"--url", server.base+"/mcp")
	cmd.Dir = dir
	lines := startAndRead(t, cmd, 2)
	through := lines[0] + "?token=" + strings.TrimPrefix(lines[1], "ASSAY_MCP_TOKEN=")
	said := func(address, resource string) string {
		out, err := exec.Command("node", filepath.Join(sdk, "login.mjs"), address, resource).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	if got := said(server.base+"/mcp", ""); got != "echo" {
		t.Fatalf("without mcp: %s", got)
	}
	if got := said(through, server.base+"/mcp"); got != "echo" {
		t.Errorf("a client that takes the server's URL: %s", got)
	}
	if got := said(through, ""); !strings.HasPrefix(got, "error: Protected resource "+server.base+
		"/mcp does not match expected ") {
		t.Errorf("a client that takes mcp's URL only: %s", got)
	}
	if len(server.resources) != 2 {
		t.Errorf("tokens were asked for %q", server.resources)
	}
	if text, err := os.ReadFile(log); err != nil || len(text) == 0 || bytes.Contains(text, []byte(issuedToken)) {
		t.Errorf("the decision log: %v\n%s", err, text)
	}
}
