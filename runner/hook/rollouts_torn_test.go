package hook_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/runner/hook"
)

// called is the line of a call that the model's service made.
func called(id string) string {
	return fmt.Sprintf(`{"timestamp":%q,"type":"response_item","payload":{"type":"web_search_call","id":%q}}`+"\n",
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339), id)
}

// A damaged rollout file only loses the calls in its damaged lines, and the error says so.
func TestDamagedRollouts(t *testing.T) {
	for name, c := range map[string]struct {
		first, then string
		change      func(path, then string) error
		want        []string
		wrong       string
	}{
		"the last line has no newline": {first: called("a"), then: strings.TrimSuffix(called("b"), "\n"),
			want: []string{"a", "b"}},
		"the last line is torn": {first: called("a"), then: called("b")[:50], want: []string{"a"},
			wrong: "a line is not JSON"},
		"a resumed session goes on after a torn line": {first: called("a") + called("b")[:50],
			then: called("c") + called("d"), want: []string{"a", "d"}, wrong: "a line is not JSON"},
		"a huge line": {first: called("a"), then: called("b"), want: []string{"a", "b"},
			wrong: "a line is larger than 67108864 bytes, and was skipped", change: func(path, then string) error {
				info, err := os.Stat(path)
				return errors.Join(err, os.Truncate(path, info.Size()+80<<20), added(path, "\n"+then))
			}},
		"the file is replaced": {first: called("a") + called("b"), then: called("a") + called("b") + called("c"),
			want: []string{"a", "b", "c"}, change: func(path, then string) error {
				return errors.Join(os.WriteFile(path+".new", []byte(then), 0o600), os.Rename(path+".new", path))
			}},
		"the file is replaced by a shorter one": {first: called("a") + called("b"), then: called("c"),
			want: []string{"a", "b", "c"}, change: func(path, then string) error {
				return errors.Join(os.WriteFile(path+".new", []byte(then), 0o600), os.Rename(path+".new", path))
			}},
		"the file is written anew": {first: called("a") + called("b"), then: called("c"), want: []string{"a", "b", "c"},
			change: func(path, then string) error {
				return os.WriteFile(path, []byte(then), 0o600)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.env["CODEX_HOME"] = t.TempDir()
			path := filepath.Join(s.env["CODEX_HOME"], "sessions", time.Now().Format("2006/01/02"), "rollout-1.jsonl")
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			stop := hook.Follow(func(k string) string { return s.env[k] })
			if err := added(path, c.first); err != nil {
				t.Fatal(err)
			}
			if !leaktest.Within(time.Minute, func() bool {
				text, _ := os.ReadFile(s.log)
				return strings.Count(string(text), "\n") >= 2*strings.Count(c.first, "\n")
			}) {
				t.Fatal("the first calls are not reported")
			}
			if c.change == nil {
				c.change = added
			}
			if err := c.change(path, c.then); err != nil {
				t.Fatal(err)
			}
			err := stop()
			if c.wrong == "" && err != nil || c.wrong != "" &&
				(err == nil || !strings.Contains(err.Error(), path+": "+c.wrong)) {
				t.Errorf("%v, want %q", err, c.wrong)
			}
			var got []string
			for _, l := range s.lines() {
				if f := strings.Fields(l); f[1] == "tool_call_completed" {
					got = append(got, f[2])
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func added(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	return err
}
