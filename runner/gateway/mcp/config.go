package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxConfig limits a configuration file, in bytes.
const maxConfig = 4 << 20

// Entry is a server in a configuration file, in the form that MCP clients share: a program with args, env and cwd, or
// a URL with headers. In its texts, "${NAME}" and "${NAME:-DEFAULT}" stand for an environment variable.
type Entry struct {
	Type    string            `json:"type"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	Dir     string            `json:"cwd"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

// configFile is the part of a configuration that assay-run reads. Clients have other keys too.
type configFile struct {
	Servers map[string]jsontext.Value `json:"mcpServers"`
}

// LoadConfig reads a configuration file.
func LoadConfig(path string) (map[string]Entry, error) {
	_, file, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	entries := map[string]Entry{}
	for name, value := range file.Servers {
		var e Entry
		if err := json.Unmarshal(value, &e); err != nil {
			return nil, fmt.Errorf("%s: mcpServers.%s: %w", path, name, err)
		}
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("%s: mcpServers.%s: %w", path, name, err)
		}
		entries[name] = e
	}
	return entries, nil
}

func readConfig(path string) ([]byte, *configFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxConfig {
		return nil, nil, fmt.Errorf("%s: not a regular file of at most %d bytes", path, maxConfig)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var file configFile
	if err := json.Unmarshal(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")), &file); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if file.Servers == nil {
		return nil, nil, fmt.Errorf("%s has no mcpServers: name the configuration file of an MCP client", path)
	}
	return raw, &file, nil
}

func (e Entry) check() error {
	switch {
	case (e.Command == "") == (e.URL == ""):
		return errors.New("a server needs a command or a url")
	case e.Type == "sse":
		return errors.New("the transport sse of earlier versions is not supported: use the server's " +
			"Streamable HTTP address")
	}
	return nil
}

// Expand replaces environment variables in all texts. A variable that is not set and has no default is an error.
func (e Entry) Expand() (Entry, error) {
	var missing []string
	x := func(s string) string { return expand(s, &missing) }
	e.Command, e.URL, e.Dir = x(e.Command), x(e.URL), x(e.Dir)
	e.Args = slices.Clone(e.Args)
	for i, a := range e.Args {
		e.Args[i] = x(a)
	}
	expandMap := func(m map[string]string) map[string]string {
		out := map[string]string{}
		for k, v := range m {
			out[k] = x(v)
		}
		return out
	}
	e.Env, e.Headers = expandMap(e.Env), expandMap(e.Headers)
	if len(missing) > 0 {
		return e, fmt.Errorf("the environment variable %s is not set", missing[0])
	}
	return e, nil
}

var variable = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}`)
})

func expand(s string, missing *[]string) string {
	return variable().ReplaceAllStringFunc(s, func(m string) string {
		parts := variable().FindStringSubmatch(m)
		if v, set := os.LookupEnv(parts[1]); set {
			return v
		}
		if parts[2] == "" {
			*missing = append(*missing, parts[1])
		}
		return parts[3]
	})
}

// Environ is the program's environment: this process's, plus the entry's.
func (e Entry) Environ() []string {
	env := os.Environ()
	for k, v := range e.Env {
		env = append(env, k+"="+v)
	}
	return env
}

// Header returns the entry's headers.
func (e Entry) Header() http.Header {
	h := http.Header{}
	for k, v := range e.Headers {
		h.Set(k, v)
	}
	return h
}

// text returns the file, with each server as it was written.
func (c *configFile) text() []byte {
	out := []byte("{\"mcpServers\": {")
	for i, name := range slices.Sorted(maps.Keys(c.Servers)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, "\n  "...)
		out, _ = jsontext.AppendQuote(out, name)
		out = append(append(out, ": "...), c.Servers[name]...)
	}
	return append(out, "\n}}\n"...)
}
