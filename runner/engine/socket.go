package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json/v1"
)

// Socket returns the path where a docker client with this environment finds its daemon; empty if the client would not
// use a unix socket. "docker context" documents the order.
func Socket(env []string) string {
	values := map[string]string{}
	for _, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		values[key] = value
	}
	host := values["DOCKER_HOST"]
	if host == "" {
		config := values["DOCKER_CONFIG"]
		if config == "" && values["HOME"] != "" {
			config = filepath.Join(values["HOME"], ".docker")
		}
		host = contextHost(config, values["DOCKER_CONTEXT"])
	}
	socket, _ := strings.CutPrefix(host, "unix://")
	if socket == host {
		return ""
	}
	return socket
}

// contextHost returns the daemon's address in a context of the client's configuration. An empty name means the
// current context. The result is empty if the context has none.
func contextHost(config, context string) string {
	if context == "" {
		var c struct{ CurrentContext string }
		readJSON(filepath.Join(config, "config.json"), &c)
		context = c.CurrentContext
	}
	if context == "" || context == "default" {
		return "unix:///var/run/docker.sock"
	}
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	name := sha256.Sum256([]byte(context))
	readJSON(filepath.Join(config, "contexts", "meta", hex.EncodeToString(name[:]), "meta.json"), &meta)
	return meta.Endpoints["docker"].Host
}

// readJSON reads a file of the client's configuration, if the file exists.
func readJSON(path string, into any) {
	if b, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(b, into)
	}
}
