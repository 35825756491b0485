package modelfile

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/assay-run/assay-run/schema"
)

// Settings say how a command reaches models.
type Settings struct {
	// Gateway puts the runner's endpoint between the command and the providers of its models. The other fields need
	// it.
	Gateway bool `json:"gateway,omitzero"`
	// Keys are files with the providers' keys, by route (see Routes), or KeyAgent. The key of other routes
	// comes from the environment.
	Keys map[string]string `json:"keys,omitzero"`
	// Upstreams are the providers' addresses, by route. Other routes use the provider's default.
	Upstreams map[string]string `json:"upstreams,omitzero"`
	// Bodies is empty, or schema.ModelBodiesNone to keep only digests of bodies.
	Bodies string `json:"bodies,omitzero"`
	// Budget limits what the command may ask of models.
	Budget Budget `json:"budget,omitzero"`
	// Prices is a price list file; empty: costs are unknown.
	Prices string `json:"prices,omitzero"`
	// Replay is a bundle whose recorded answers the command gets. It implies Gateway. Empty: the providers answer.
	Replay string `json:"replay,omitzero"`
	// ReplayStrict gives no answer to a request that differs from the recorded one in any way.
	ReplayStrict bool `json:"replay_strict,omitzero"`
}

// KeyAgent, in place of a file in Settings.Keys, passes on the agent's own login.
const KeyAgent = "agent"

// maxKey limits a key, in bytes.
const maxKey = 16 << 10

// On reports whether the run has a model gateway.
func (m *Settings) On() bool { return m.Gateway || m.Replay != "" }

// ErrGateway is wrapped by the errors of Check, Providers and PriceList.
var ErrGateway = errors.New("model gateway")

// Check returns an error for each setting that is invalid on every host.
func (m *Settings) Check() (faults []error) {
	add := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: %s", ErrGateway, fmt.Sprintf(format, args...)))
	}
	if !m.On() && (len(m.Keys) > 0 || len(m.Upstreams) > 0 || m.Bodies != "" || m.Prices != "" ||
		m.Budget != Budget{}) {
		add("the other options of the model gateway need --model-gateway")
	}
	known := func(what, route string) bool {
		if !slices.Contains(Routes, route) {
			add("%s for %q; the providers are %s", what, route, strings.Join(Routes, ", "))
			return false
		}
		return true
	}
	for _, route := range slices.Sorted(maps.Keys(m.Keys)) {
		if known("key", route) && m.Keys[route] == "" {
			add("the key of %s has no file", route)
		}
	}
	for _, route := range slices.Sorted(maps.Keys(m.Upstreams)) {
		if !known("upstream", route) {
			continue
		}
		u, err := Upstream(route, m.Upstreams[route])
		switch {
		case err != nil:
			add("the upstream of %s is not a URL", route)
		case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			add("the upstream of %s is not an http or https URL: %q", route, m.Upstreams[route])
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			add("the upstream of %s has more than a host and a path", route)
		}
	}
	if m.Bodies != "" && m.Bodies != schema.ModelBodiesNone {
		add("bodies %q (none)", m.Bodies)
	}
	if m.ReplayStrict && m.Replay == "" {
		add("--model-replay-strict needs --model-replay")
	}
	if m.Replay != "" {
		for _, route := range slices.Sorted(maps.Keys(m.Keys)) {
			if m.Keys[route] != KeyAgent {
				add("a replay asks no provider, and needs no key of %s", route)
			}
		}
		if len(m.Upstreams) > 0 {
			add("a replay asks no provider: --model-upstream has no use")
		}
	}
	if err := m.Budget.Check(); err != nil {
		add("budget: %v", err)
	}
	if m.Budget.Cost != 0 && m.Prices == "" {
		add("a budget of cost needs the prices of models (--model-prices)")
	}
	if m.Budget.End && !m.Budget.Limited() {
		add("--model-budget-end needs --model-budget")
	}
	return faults
}

// readKey reads a key file. It must not be readable by everyone.
func readKey(name string) (string, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() { // opening a pipe would block
		return "", fmt.Errorf("%s exists and is not a regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case info.Mode().Perm()&0o004 != 0 && os.PathSeparator == '/':
		return "", fmt.Errorf("every user can read %s; run: chmod 600 %s", name, name)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(b))
	if key == "" {
		return "", fmt.Errorf("%s is empty", name)
	}
	if err := checkKey(key); err != nil {
		return "", fmt.Errorf("%s %w", name, err)
	}
	return key, nil
}

// minKey is the minimum length of a key, in bytes. Shorter ones would be found in every answer.
const minKey = 8

// checkKey returns why a text cannot be a key.
func checkKey(key string) error {
	switch {
	case len(key) > maxKey:
		return fmt.Errorf("is longer than %d bytes", maxKey)
	case len(key) < minKey:
		return fmt.Errorf("is shorter than %d bytes", minKey)
	case strings.ContainsFunc(key, func(r rune) bool { return r > unicode.MaxASCII || r <= ' ' || r == 0x7f }):
		return errors.New("holds characters that no key has; it must be one word")
	}
	return nil
}

// EachKeyFile calls f for each key file, and replaces the path by the result.
func (m *Settings) EachKeyFile(f func(path string) (string, error)) error {
	if len(m.Keys) == 0 {
		return nil
	}
	files := map[string]string{}
	for route, file := range m.Keys {
		if file != KeyAgent && file != "" {
			var err error
			if file, err = f(file); err != nil {
				return err
			}
		}
		files[route] = file
	}
	m.Keys = files
	return nil
}

// KeyFiles lists the key files.
func (m *Settings) KeyFiles() (files []string) {
	for _, route := range slices.Sorted(maps.Keys(m.Keys)) {
		if file := m.Keys[route]; file != KeyAgent {
			files = append(files, file)
		}
	}
	return files
}

// InDir makes the key files' paths relative to dir.
func (m *Settings) InDir(dir string) {
	_ = m.EachKeyFile(func(path string) (string, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return path, nil
	})
}

// PriceList reads the price list; nil: there is none.
func (m *Settings) PriceList() (*Prices, error) {
	if !m.On() || m.Prices == "" {
		return nil, nil
	}
	p, err := LoadPrices(m.Prices)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGateway, err)
	}
	return p, nil
}

// Providers are the providers for which there is a key, in a file or in this process's environment; none without a
// model gateway, and in a replay.
func (m *Settings) Providers() (all []Provider, err error) {
	if !m.Gateway || m.Replay != "" {
		return nil, nil
	}
	var errs []error
	for _, name := range Routes {
		file, given := m.Keys[name]
		r := Provider{Name: name}
		if r.Upstream, err = Upstream(name, m.Upstreams[name]); err != nil {
			errs = append(errs, fmt.Errorf("%w: the upstream of %s is not a URL", ErrGateway, name))
			continue
		}
		switch {
		case given && file == KeyAgent:
		case given:
			if r.Key, err = readKey(file); err != nil {
				errs = append(errs, fmt.Errorf("%w: the key of %s: %w", ErrGateway, name, err))
				continue
			}
		default:
			for _, variable := range KeyVariables(name) {
				if r.Key = strings.TrimSpace(os.Getenv(variable)); r.Key != "" {
					break
				}
			}
			if r.Key == "" {
				continue
			}
			if err := checkKey(r.Key); err != nil {
				errs = append(errs, fmt.Errorf("%w: the key of %s in the environment %w", ErrGateway, name, err))
				continue
			}
		}
		all = append(all, r)
	}
	if len(all) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%w: there is no key: set %s, or name a file with --model-key NAME=FILE",
			ErrGateway, "ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY"))
	}
	return all, errors.Join(errs...)
}
