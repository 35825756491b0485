package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"

	"github.com/assay-run/assay-run/runner/internal/strict"
)

// Bounds of a token file and of a token, in bytes.
const (
	maxTokenFile = 1 << 20
	minToken     = 16
)

// LoadTokens reads a token file, for Config.Agents: on each line an agent's id and
// its token, with white space between them. Empty lines and lines that begin with # are
// ignored. An agent may have several tokens; a token belongs to one agent.
func LoadTokens(path string) (agents map[string]string, err error) {
	data, err := strict.ReadFile(path, maxTokenFile)
	if err != nil {
		return nil, err
	}
	agents = map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		// No error quotes a line: it may be a token.
		switch {
		case len(words) != 2:
			return nil, fmt.Errorf("%s: line %d: want an agent's id and its token", path, n)
		case !agentName().MatchString(words[0]):
			return nil, fmt.Errorf("%s: line %d: an agent's id must be 1 to 128 letters, digits, '.', '_' or '-'", path, n)
		case len(words[1]) < minToken:
			return nil, fmt.Errorf("%s: line %d: a token must have at least %d bytes", path, n, minToken)
		}
		if _, taken := agents[words[1]]; taken {
			return nil, fmt.Errorf("%s: line %d: an earlier line has the same token", path, n)
		}
		agents[words[1]] = words[0]
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(agents) == 0 {
		return nil, fmt.Errorf("%s has no tokens", path)
	}
	return agents, nil
}
