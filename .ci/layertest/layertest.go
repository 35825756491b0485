// Package layertest says which layer of the project's tests a test belongs to:
//
//	go test ./...   any Linux, without root, with git and a compiler: seconds for each package
//	make test       everything for this host: a test that calls Host
//	make nightly    what takes a night: a test that calls Night
//
// ASSAY_TEST_LAYER is the layer that is run: empty, host or night. A test that -run names runs in every layer.
package layertest

import (
	"flag"
	"os"
	"strings"
	"testing"
)

// Variable names the environment variable that has the layer.
const Variable = "ASSAY_TEST_LAYER"

// Host skips a test that make test runs: one that takes seconds, or that kills, floods or drives what others wrote.
func Host(t testing.TB) {
	t.Helper()
	if !IsHost() && !named(t.Name()) {
		t.Skip("make test runs this")
	}
}

// Night skips a test that make nightly runs: one that boots a kernel beside Linux 6.1, runs a whole package
// once more in another way, or writes gigabytes.
func Night(t testing.TB) {
	t.Helper()
	if !IsNight() && !named(t.Name()) {
		t.Skip("make nightly runs this")
	}
}

// IsHost reports whether everything for this host is tested.
func IsHost() bool { return os.Getenv(Variable) == "host" || IsNight() }

// IsNight reports whether everything is tested.
func IsNight() bool { return os.Getenv(Variable) == "night" }

// HostScripts reports whether scripts with "[!host] skip" run: in make test, or as -test.run names them.
func HostScripts() bool {
	f := flag.Lookup("test.run")
	return IsHost() || f != nil && strings.Contains(f.Value.String(), "TestScripts/")
}

// named reports whether -test.run has the name of a test.
func named(name string) bool {
	name, _, _ = strings.Cut(name, "/")
	f := flag.Lookup("test.run")
	return f != nil && strings.Contains(f.Value.String(), name)
}
