package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/assay-run/assay-run/runner/model"
	"github.com/assay-run/assay-run/runner/model/tape"
	"github.com/assay-run/assay-run/schema"
)

// Model configures how the command reaches models.
type Model struct {
	// Gateway puts the runner's endpoint between the command and the providers of its models. The other fields need
	// it.
	Gateway bool `json:"gateway,omitzero"`
	// Keys are files with the providers' keys, by route (see model.Routes), or ModelKeyAgent. The key of other routes
	// comes from the environment.
	Keys map[string]string `json:"keys,omitzero"`
	// Upstreams are the providers' addresses, by route. Other routes use the provider's default.
	Upstreams map[string]string `json:"upstreams,omitzero"`
	// Bodies is empty, or schema.ModelBodiesNone to keep only digests of bodies.
	Bodies string `json:"bodies,omitzero"`
	// Budget limits what the command may ask of models.
	Budget model.Budget `json:"budget,omitzero"`
	// Prices is a price list file; empty: costs are unknown.
	Prices string `json:"prices,omitzero"`
	// Replay is a bundle whose recorded answers the command gets. It implies Gateway. Empty: the providers answer.
	Replay string `json:"replay,omitzero"`
	// ReplayStrict gives no answer to a request that differs from the recorded one in any way.
	ReplayStrict bool `json:"replay_strict,omitzero"`
}

// ModelKeyAgent, in place of a file in Model.Keys, passes on the agent's own login.
const ModelKeyAgent = "agent"

// maxKey limits a key, in bytes.
const maxKey = 16 << 10

// ErrModel is wrapped by Validate's errors about Spec.Model.
var ErrModel = errors.New("model gateway")

// On reports whether the run has a model gateway.
func (m *Model) On() bool { return m.Gateway || m.Replay != "" }

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

// replayed lists the routes of the bundle that is replayed.
func (m *Model) replayed(c *tape.Cassette) (routes []model.Route) {
	for _, name := range c.Routes() {
		if at, err := model.Upstream(name, ""); err == nil && slices.Contains(model.Routes, name) {
			routes = append(routes, model.Route{Name: name, Upstream: at, Replayed: m.Keys[name] != ModelKeyAgent})
		}
	}
	return routes
}

// record is the form in run.json; nil without a model gateway.
func (m *Model) record(routes []model.Route, prices *model.Prices) *schema.RunModel {
	if !m.On() {
		return nil
	}
	r := &schema.RunModel{Routes: []string{}, Bodies: m.Bodies}
	if prices != nil {
		r.Prices = prices.Digest
	}
	for _, route := range routes {
		r.Routes = append(r.Routes, route.Name)
	}
	return r
}

// keyFiles calls f for each key file, and replaces the path by the result.
func (m *Model) keyFiles(f func(path string) (string, error)) error {
	if len(m.Keys) == 0 {
		return nil
	}
	files := map[string]string{}
	for route, file := range m.Keys {
		if file != ModelKeyAgent && file != "" {
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

// keyPaths lists the key files.
func (m *Model) keyPaths() (files []string) {
	for _, route := range sortedKeys(m.Keys) {
		if file := m.Keys[route]; file != ModelKeyAgent {
			files = append(files, file)
		}
	}
	return files
}

// inDir makes the key files' paths relative to dir.
func (m *Model) inDir(dir string) {
	_ = m.keyFiles(func(path string) (string, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return path, nil
	})
}
