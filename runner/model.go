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

// Model says how the command reaches models.
type Model struct {
	// Gateway puts an endpoint of the runner's between the command and the providers of its models. The other
	// fields need it.
	Gateway bool `json:"gateway,omitzero"`
	// Keys are the files with the providers' keys, by route (see model.Routes), or ModelKeyAgent. A route
	// that is not in it has the key of the environment.
	Keys map[string]string `json:"keys,omitzero"`
	// Upstreams are the providers' addresses, by route. A route that is not in it has the provider's own.
	Upstreams map[string]string `json:"upstreams,omitzero"`
	// Bodies is empty, or schema.ModelBodiesNone to keep the digests of bodies alone.
	Bodies string `json:"bodies,omitzero"`
	// Budget bounds what the command may ask of models.
	Budget model.Budget `json:"budget,omitzero"`
	// Prices is a file with what models cost; empty: it is not known.
	Prices string `json:"prices,omitzero"`
	// Replay is a bundle whose answers the command gets: it implies Gateway. Empty: the providers answer.
	Replay string `json:"replay,omitzero"`
	// ReplayStrict has no answer for requests that differ from the recorded ones in anything.
	ReplayStrict bool `json:"replay_strict,omitzero"`
}

// ModelKeyAgent stands for a file of Model.Keys: the agent's requests carry its own login.
const ModelKeyAgent = "agent"

// maxKey bounds a key, in bytes.
const maxKey = 16 << 10

// ErrModel is wrapped by what Validate finds wrong with Spec.Model.
var ErrModel = errors.New("model gateway")

// On reports whether there is a model gateway.
func (m *Model) On() bool { return m.Gateway || m.Replay != "" }

// readKey reads a file with a key, which others must not be able to read.
func readKey(name string) (string, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() { // to open a pipe would wait
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

// minKey is how long a key is at least, in bytes: a shorter one would be found in every answer.
const minKey = 8

// checkKey reports what keeps a text from being a key.
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

// replayed are the routes of a bundle that is replayed.
func (m *Model) replayed(c *tape.Cassette) (routes []model.Route) {
	for _, name := range c.Routes() {
		if at, err := model.Upstream(name, ""); err == nil && slices.Contains(model.Routes, name) {
			routes = append(routes, model.Route{Name: name, Upstream: at, Replayed: m.Keys[name] != ModelKeyAgent})
		}
	}
	return routes
}

// record is how run.json says it; nil without a gateway.
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

// keyFiles calls f with each file that has a key.
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

// keyPaths are the files that have a key.
func (m *Model) keyPaths() (files []string) {
	for _, route := range sortedKeys(m.Keys) {
		if file := m.Keys[route]; file != ModelKeyAgent {
			files = append(files, file)
		}
	}
	return files
}

// inDir makes the paths of key files those in a directory.
func (m *Model) inDir(dir string) {
	_ = m.keyFiles(func(path string) (string, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return path, nil
	})
}
