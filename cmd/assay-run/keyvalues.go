package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"strings"
)

// put sets the keys of from in *into.
func put(into *map[string]string, from map[string]string) {
	if *into == nil && len(from) > 0 {
		*into = map[string]string{}
	}
	maps.Copy(*into, from)
}

// keyValues are what a flag says that takes K=V and may be repeated.
type keyValues map[string]string

func (keyValues) String() string { return "" }
func (keyValues) Type() string   { return "K=V" }

func (m *keyValues) Set(kv string) error {
	k, v, ok := strings.Cut(kv, "=")
	if !ok || k == "" {
		return fmt.Errorf("%q is not of the form K=V", kv)
	}
	put((*map[string]string)(m), map[string]string{k: v})
	return nil
}

func (m keyValues) overlay(into *map[string]string) { put(into, m) }

// environment is what --env and --env-file say. The former wins.
type environment struct{ given, files keyValues }

func (environment) String() string { return "" }
func (environment) Type() string   { return "K=V" }

// Set takes K=V, and K for a variable that is passed on. One that is not set
// here stays so, as with docker run.
func (e *environment) Set(kv string) error {
	if !strings.Contains(kv, "=") {
		v, ok := os.LookupEnv(kv)
		if !ok {
			return nil
		}
		kv += "=" + v
	}
	k, v, _ := strings.Cut(kv, "=") // the Spec tells what is wrong with a key
	put((*map[string]string)(&e.given), map[string]string{k: v})
	return nil
}

func (e *environment) overlay(into *map[string]string) {
	put(into, e.files)
	put(into, e.given)
}

// environmentFiles is the value of --env-file.
type environmentFiles environment

func (*environmentFiles) String() string { return "" }
func (*environmentFiles) Type() string   { return "FILE" }

// Set reads K=V lines. Empty lines and those that begin with # are passed over;
// nothing is unquoted or expanded. Messages never quote a value.
func (e *environmentFiles) Set(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok || k == "" {
			return fmt.Errorf("%s:%d: not of the form K=V", path, n)
		}
		put((*map[string]string)(&e.files), map[string]string{k: v})
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
