package mcp

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// wrapSuffix is the suffix of the copy of the original configuration.
const wrapSuffix = ".assay-run.json"

// Wrap rewrites a configuration so that each of its servers is started through program with args. It stores the
// original entries in a second file, for [Unwrap] and for program, which reads the server from there. Everything else
// in the configuration stays the same, byte for byte. Wrap returns the servers that it wrapped. It skips those that
// are already wrapped.
func Wrap(path, program string, args []string) (wrapped []string, err error) {
	raw, file, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	if _, err := LoadConfig(path); err != nil {
		return nil, err
	}
	kept, backup, err := originals(path)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(file.Servers)) {
		if isWrapped(file.Servers[name], backup) {
			continue
		}
		kept.Servers[name] = file.Servers[name]
		entry, err := wrapEntry(file.Servers[name], program,
			append(slices.Clone(args), "--config", backup, "--server", name))
		if err != nil {
			return nil, fmt.Errorf("%s: mcpServers.%s: %w", path, name, err)
		}
		var ok bool
		if raw, ok = replace(raw, jsontext.Pointer("/mcpServers").AppendToken(name), entry); !ok {
			return nil, fmt.Errorf("%s: mcpServers.%s cannot be replaced", path, name)
		}
		wrapped = append(wrapped, name)
	}
	if len(wrapped) == 0 {
		return nil, nil
	}
	// Write the copy first: without it nothing could be restored.
	if err := writeAside(backup, kept.text(), 0o600); err != nil {
		return nil, err
	}
	return wrapped, rewrite(path, raw)
}

// Unwrap restores the servers of a configuration that Wrap rewrote, and returns them. It skips servers that have
// changed since.
func Unwrap(path string) (restored []string, err error) {
	raw, file, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	kept, backup, err := originals(path)
	if err != nil {
		return nil, err
	}
	left := false
	for _, name := range slices.Sorted(maps.Keys(kept.Servers)) {
		now, there := file.Servers[name]
		if !there || !isWrapped(now, backup) {
			continue
		}
		var ok bool
		if raw, ok = replace(raw, jsontext.Pointer("/mcpServers").AppendToken(name), kept.Servers[name]); !ok {
			return nil, fmt.Errorf("%s: mcpServers.%s cannot be replaced", path, name)
		}
		restored = append(restored, name)
	}
	for name, entry := range file.Servers {
		if isWrapped(entry, backup) && kept.Servers[name] == nil {
			left = true
		}
	}
	if len(restored) > 0 {
		if err := rewrite(path, raw); err != nil {
			return nil, err
		}
	}
	if left {
		return restored, fmt.Errorf("%s: a wrapped server is not in %s, so it cannot be restored", path, backup)
	}
	if err := os.Remove(backup); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return restored, err
	}
	return restored, nil
}

// originals returns the servers wrapped so far, and backup, the file that stores them.
func originals(path string) (file *configFile, backup string, err error) {
	if backup, err = filepath.Abs(path + wrapSuffix); err != nil {
		return nil, "", err
	}
	_, file, err = readConfig(backup)
	if errors.Is(err, fs.ErrNotExist) {
		return &configFile{Servers: map[string]jsontext.Value{}}, backup, nil
	}
	return file, backup, err
}

// isWrapped reports whether Wrap wrote an entry.
func isWrapped(entry jsontext.Value, backup string) bool {
	var e Entry
	return json.Unmarshal(entry, &e) == nil && slices.Contains(e.Args, backup)
}

// wrapEntry returns an entry that starts program instead. The client's other keys stay.
func wrapEntry(old jsontext.Value, program string, args []string) (jsontext.Value, error) {
	var keys map[string]jsontext.Value
	if err := json.Unmarshal(old, &keys); err != nil {
		return nil, err
	}
	for _, ours := range []string{"url", "headers", "env", "cwd"} {
		delete(keys, ours)
	}
	if keys["type"] != nil {
		keys["type"] = jsontext.Value(`"stdio"`)
	}
	var err1, err2 error
	keys["command"], err1 = json.Marshal(program)
	keys["args"], err2 = json.Marshal(args)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return json.Marshal(keys, json.Deterministic(true))
}

// rewrite replaces an existing file, and keeps its mode.
func rewrite(path string, text []byte) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	return writeAside(real, text, info.Mode().Perm())
}

// writeAside writes a file completely or not at all.
func writeAside(path string, text []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, werr := f.Write(text)
	err = errors.Join(werr, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
