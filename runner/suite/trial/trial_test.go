package trial

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Rewards are those of reward.json, or else that of reward.txt. What is not a number is no reward.
func TestRewardsAreReadAsHarborReadsThem(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  map[string]float64
	}{
		"a text": {map[string]string{"reward.txt": " 0.5\n"}, map[string]float64{"reward": 0.5}},
		"JSON comes first": {map[string]string{"reward.txt": "1", "reward.json": `{"a": 0, "b": 2}`},
			map[string]float64{"a": 0, "b": 2}},
		"nothing":           {nil, nil},
		"no number":         {map[string]string{"reward.txt": "yes"}, nil},
		"NaN":               {map[string]string{"reward.txt": "NaN"}, nil},
		"an empty text":     {map[string]string{"reward.txt": ""}, nil},
		"no reward in JSON": {map[string]string{"reward.json": "{}", "reward.txt": "1"}, nil},
		"null":              {map[string]string{"reward.json": "null"}, nil},
		"text in JSON":      {map[string]string{"reward.json": `{"a": "1"}`}, nil},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := read(dir)
		if d := cmp.Diff(c.want, got); d != "" || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
	dir := t.TempDir()
	if err := os.Symlink("/proc/self/statm", filepath.Join(dir, "reward.txt")); err != nil {
		t.Fatal(err)
	}
	if got, err := read(dir); err == nil {
		t.Errorf("a link was followed: %v", got)
	}
}
