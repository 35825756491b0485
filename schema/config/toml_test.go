package config

import (
	"errors"
	"strings"
	"testing"
)

func TestTOMLRefusesWhatWouldTakeAllMemory(t *testing.T) {
	for name, text := range map[string]string{
		"an array":     "a = " + strings.Repeat("[", 1_000_000),
		"a table":      "a = " + strings.Repeat("{a=", 30_000),
		"a key":        strings.Repeat("a.", 60_000) + "a = 1",
		"quoted parts": strings.Repeat(`"a".`, 60_000) + "a = 1",
		"a header":     "[" + strings.Repeat("a.", 60_000) + "a]",
		"a long file":  strings.Repeat("#\n", 1<<20),
	} {
		if _, err := TOML([]byte(text), &struct{ A any }{}); !errors.Is(err, errTOML) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var v struct{ Package struct{ Name string } }
	text := "[package]\nname = \"x\"\n[dependencies]\n" + strings.Repeat("# a.b\n", 1000)
	if _, err := TOML([]byte(text), &v); err != nil || v.Package.Name != "x" {
		t.Error(v, err)
	}
}
