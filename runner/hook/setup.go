package hook

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema/agents"
)

// Write writes the files of a setup below a home directory.
func Write(s *agents.Setup, home string) error {
	for _, f := range s.Files {
		if err := write(&f.File, filepath.Join(home, strings.TrimPrefix(f.Path, "~/"))); err != nil {
			return fmt.Errorf("set up %s: %s: %w", s.Agent, f.Path, err)
		}
	}
	return nil
}

func write(f *agents.File, at string) error {
	content, mode := []byte(f.Text), fs.FileMode(0o600)
	if f.Executable {
		mode = 0o700
	}
	if f.JSON != nil {
		old, err := os.ReadFile(at)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if content, err = merge(old, f.JSON); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return err
	}
	return os.WriteFile(at, content, mode)
}

// merge adds the values of the document add to the document old, which may have comments, and may be empty: objects
// and arrays get what they lack, and other values are replaced.
func merge(old, add []byte) ([]byte, error) {
	var was, with any
	if err := json.Unmarshal(add, &with); err != nil {
		return nil, err
	}
	if old = bytes.TrimSpace(uncommented(old)); len(old) > 0 {
		if err := json.Unmarshal(old, &was, jsontext.AllowDuplicateNames(true)); err != nil {
			return nil, fmt.Errorf("what is there is not JSON: %w", err)
		}
	}
	doc, err := json.Marshal(joined(was, with), json.Deterministic(true), jsontext.WithIndent("  "))
	return append(doc, '\n'), err
}

func joined(was, with any) any {
	switch with := with.(type) {
	case map[string]any:
		into, ok := was.(map[string]any)
		if !ok {
			return with
		}
		for key, value := range with {
			into[key] = joined(into[key], value)
		}
		return into
	case []any:
		list, ok := was.([]any)
		if !ok {
			return with
		}
		for _, value := range with {
			if !slices.ContainsFunc(list, func(v any) bool { return reflect.DeepEqual(v, value) }) {
				list = append(list, value)
			}
		}
		return list
	}
	return with
}

// uncommented is text without the comments and trailing commas that agents allow in their JSON.
func uncommented(text []byte) []byte {
	var out []byte
	for i := 0; i < len(text); {
		rest := text[i:]
		switch {
		case rest[0] == '"':
			n := 1
			for n < len(rest) && rest[n] != '"' {
				if rest[n] == '\\' {
					n++
				}
				n++
			}
			n = min(n+1, len(rest))
			out, i = append(out, rest[:n]...), i+n
		case bytes.HasPrefix(rest, []byte("//")):
			n := bytes.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest)
			}
			i += n
		case bytes.HasPrefix(rest, []byte("/*")):
			n := bytes.Index(rest, []byte("*/"))
			if n < 0 {
				return out
			}
			i += n + 2
		case rest[0] == '}' || rest[0] == ']':
			if end := bytes.TrimRight(out, " \t\r\n"); bytes.HasSuffix(end, []byte{','}) {
				out = end[:len(end)-1]
			}
			out, i = append(out, rest[0]), i+1
		default:
			out, i = append(out, rest[0]), i+1
		}
	}
	return out
}
