package modelfile

import (
	"net/url"
	"slices"
	"strings"
)

// Names of routes.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai"
	Gemini    = "gemini"
)

// Routes lists the names of routes.
var Routes = []string{Anthropic, OpenAI, Gemini}

// Provider is the provider of a route.
type Provider struct {
	Name string // the route's
	// Upstream is the provider's address, without the API version.
	Upstream *url.URL
	// Key is the provider's key. Empty: the agent's own login is passed on.
	Key string
}

// AddressVariable is the environment variable by which agents find a route.
func AddressVariable(route string) string {
	switch route {
	case Anthropic:
		return "ANTHROPIC_BASE_URL"
	case OpenAI:
		return "OPENAI_BASE_URL"
	case Gemini:
		return "GOOGLE_GEMINI_BASE_URL"
	}
	return ""
}

// Addresses has, by route, the name of the variable by which agents find it.
func Addresses() map[string]string {
	names := map[string]string{}
	for _, route := range Routes {
		names[route] = AddressVariable(route)
	}
	return names
}

// QuietVariable keeps Claude Code from asking its provider for what is no answer of a model.
const QuietVariable = "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"

// KeyVariables are the environment variables that may hold a route's key.
func KeyVariables(route string) []string {
	switch route {
	case Anthropic:
		return []string{"ANTHROPIC_API_KEY"}
	case OpenAI:
		return []string{"OPENAI_API_KEY", "CODEX_API_KEY"}
	case Gemini:
		return []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"}
	}
	return nil
}

// Upstream returns the address of a route's provider. An API version at the end of address is removed.
func Upstream(route, address string) (*url.URL, error) {
	if address == "" {
		switch route {
		case Anthropic:
			address = "https://api.anthropic.com"
		case OpenAI:
			address = "https://api.openai.com"
		case Gemini:
			address = "https://generativelanguage.googleapis.com"
		}
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	for _, v := range Versions(route) {
		u.Path = strings.TrimSuffix(u.Path, v)
	}
	u.RawPath = ""
	return u, nil
}

// Versions are the API versions at the start of a route's paths. The first is the default.
func Versions(route string) []string {
	if route == Gemini {
		return []string{"/v1beta", "/v1alpha", "/v1"}
	}
	return []string{"/v1"}
}

// Variables are the names of the variables by which agents find the routes, and of those for keys.
func Variables() []string {
	names := []string{QuietVariable}
	for _, route := range Routes {
		names = append(append(names, AddressVariable(route)), KeyVariables(route)...)
	}
	slices.Sort(names)
	return names
}
