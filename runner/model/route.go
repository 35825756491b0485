package model

import (
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/runner/model/wire"
	"github.com/assay-run/assay-run/schema/modelfile"
)

// Route is the way to a provider.
type Route struct {
	modelfile.Provider
	// Replayed means that a bundle answers. The agent gets a token even without a key.
	Replayed bool
}

// login reports whether the agent's own login is passed on.
func (r *Route) login() bool { return r.Key == "" && !r.Replayed }

// asked is what a request asks for.
type asked struct {
	route string // empty: the path names no route
	api   wire.API
	path  string // as the provider gets it
	model string // from the path; may be empty
	// stream means that the path asks for a stream.
	stream bool
}

// classify returns what a path asks for, and whether it asks a model. path is unescaped. Other spellings than the
// API's are refused.
func classify(method, path string) (a asked, ok bool) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !slices.Contains(modelfile.Routes, name) || !strings.HasPrefix(path, "/") {
		return a, false
	}
	a.route = name
	version := modelfile.Versions(name)[0]
	rest = "/" + rest
	for _, v := range modelfile.Versions(name) {
		if after, found := strings.CutPrefix(rest, v); found && strings.HasPrefix(after, "/") {
			version, rest = v, after
			break
		}
	}
	a.path = version + rest
	switch {
	case method == http.MethodPost && name == modelfile.Gemini:
		a.gemini(rest)
	case method == http.MethodPost:
		a.api = posts(name, rest)
	case method == http.MethodGet:
		if id, found := strings.CutPrefix(rest, "/models/"); rest == "/models" || found && isSegment(id) {
			a.api = wire.Models
		}
	}
	return a, a.api != ""
}

// posts returns the API of a path of Anthropic's or OpenAI's.
func posts(route, path string) wire.API {
	switch route + path {
	case "anthropic/messages":
		return wire.Messages
	case "anthropic/messages/count_tokens", "openai/responses/input_tokens":
		return wire.CountTokens
	case "openai/responses", "openai/responses/compact":
		return wire.Responses
	case "openai/chat/completions":
		return wire.ChatCompletions
	}
	return ""
}

// gemini parses a Gemini path such as /models/NAME:generateContent.
func (a *asked) gemini(path string) {
	id, found := strings.CutPrefix(path, "/models/")
	id, method, _ := strings.Cut(id, ":")
	if !found || !isSegment(id) {
		return
	}
	switch method {
	case "generateContent":
		a.api = wire.GenerateContent
	case "streamGenerateContent":
		a.api, a.stream = wire.GenerateContent, true
	case "countTokens":
		a.api = wire.CountTokens
	case "embedContent", "batchEmbedContents":
		a.api = wire.EmbedContent
	}
	a.model = id
}

// isSegment reports whether s is one path segment that needs no escapes.
func isSegment(s string) bool {
	return s != "" && s != "." && s != ".." && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	}) < 0
}

// credentials returns all credentials in a request.
func credentials(r *http.Request) []string {
	var all []string
	for _, v := range r.Header.Values("Authorization") {
		if scheme, token, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "bearer") {
			v = strings.TrimSpace(token)
		}
		all = append(all, v)
	}
	all = append(all, r.Header.Values("X-Api-Key")...)
	all = append(all, r.Header.Values("X-Goog-Api-Key")...)
	return append(all, r.URL.Query()["key"]...)
}

// authorize replaces the agent's credentials by the provider's key.
func (r *Route) authorize(out *http.Request) {
	if r.Key == "" {
		return
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Proxy-Authorization", "Cookie"} {
		out.Header.Del(name)
	}
	if q := out.URL.Query(); q.Has("key") {
		q.Del("key")
		out.URL.RawQuery = q.Encode()
	}
	switch r.Name {
	case modelfile.Anthropic:
		out.Header.Set("X-Api-Key", r.Key)
	case modelfile.OpenAI:
		out.Header.Set("Authorization", "Bearer "+r.Key)
	case modelfile.Gemini:
		out.Header.Set("X-Goog-Api-Key", r.Key)
	}
}

// environment returns the variables that point an agent to a route, and those that would point it elsewhere.
func (r *Route) environment(address, token string) (set, drop []string) {
	at := address + "/" + r.Name
	switch r.Name {
	case modelfile.Anthropic:
		set = []string{modelfile.AddressVariable(r.Name) + "=" + at, modelfile.QuietVariable + "=1"}
		if !r.login() {
			set = append(set, "ANTHROPIC_API_KEY="+token)
			drop = []string{"ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"}
		}
	case modelfile.OpenAI:
		set = []string{modelfile.AddressVariable(r.Name) + "=" + at + "/v1"}
		if !r.login() {
			set = append(set, "OPENAI_API_KEY="+token, "CODEX_API_KEY="+token)
		}
	case modelfile.Gemini:
		set = []string{modelfile.AddressVariable(r.Name) + "=" + at}
		if !r.login() {
			set = append(set, "GEMINI_API_KEY="+token)
			drop = []string{"GOOGLE_API_KEY"}
		}
	}
	return set, drop
}

// rewrite turns the agent's request into the request to the provider.
func (r *Route) rewrite(p *httputil.ProxyRequest) {
	x := p.In.Context().Value(exchangeKey{}).(*exchange)
	p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = r.Upstream.Scheme, r.Upstream.Host, r.Upstream.Host
	p.Out.URL.Path, p.Out.URL.RawPath, p.Out.URL.User = r.Upstream.Path+x.path, "", nil
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	r.authorize(p.Out)
	p.Out.Trailer = nil
	p.Out.Header.Set("Accept-Encoding", "identity")
}
