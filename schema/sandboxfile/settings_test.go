package sandboxfile

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema/config"
)

// A policy file cannot set what only the formats of other sandboxes mean.
func TestAFileSetsOnlyItsKeys(t *testing.T) {
	for _, text := range []string{"exact: true", "Exact: true", "GitConfig: true", "sockets: true",
		"Unrestricted: true",
		"network: {reasons: {}}", "network: {Reasons: {}}", "HomeLayer: /x", "Login: x", "Hidden: [x]"} {
		var s Settings
		if err := config.Decode([]byte(text), config.YAML, &s); err == nil {
			t.Errorf("%q was read as %+v", text, s)
		}
	}
}

// Lists are joined, and of other settings the last one counts.
func TestComposeJoinsLists(t *testing.T) {
	var a, b Settings
	for text, s := range map[string]*Settings{
		"mode: read-only\nuser: 5\nfilesystem: {denyRead: [x]}\nlimits: {pids: 7, memory: 1M}":    &a,
		"mode: workspace-write\nfilesystem: {denyRead: [y], privateTmp: true}\nlimits: {pids: 9}": &b,
	} {
		if err := config.Decode([]byte(text), config.YAML, s); err != nil {
			t.Fatal(err)
		}
	}
	got := Compose(a, b)
	if got.Mode != WorkspaceWrite || got.User != "5" || !got.Filesystem.PrivateTmp ||
		!slices.Equal(got.Filesystem.DenyRead, []string{"x", "y"}) || got.NetworkMode() != NetLoopback {
		t.Error(cmp.Diff(Settings{}, got))
	}
}

// Each built-in profile can be read.
func TestBuiltinsAreRead(t *testing.T) {
	names := Builtins()
	if len(names) < 4 {
		t.Errorf("the profiles are %q", names)
	}
	for _, name := range names {
		p, err := Builtin(name)
		if err != nil || p.Settings.Empty() && !strings.Contains(p.Text, "#") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Builtin("../go"); err == nil {
		t.Error("a path is a profile")
	}
}
