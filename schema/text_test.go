package schema

import (
	"strings"
	"testing"
)

// A name that is not UTF-8 has the same form wherever it is written, and every text has one line in messages.
func TestNamesHaveOneForm(t *testing.T) {
	name := "a\nb\x1b[caf\xe9\u00e9"
	if got, want := Readable(name), "a\nb\x1b[caf\\xe9\u00e9"; got != want {
		t.Errorf("readable is %q, want %q", got, want)
	}
	if got, want := OneLine(name), `a\nb\x1b[caf\xe9é`; got != want {
		t.Errorf("the line is %q, want %q", got, want)
	}
	type named struct {
		Name string            `json:"name"`
		Of   map[string]string `json:"of"`
		List []string          `json:"list"`
		To   *string           `json:"to"`
	}
	line, err := Line(named{"caf\xe9", map[string]string{"caf\xe9": "\xff"}, []string{"caf\xe9"}, new("caf\xe9")})
	if want := `{"name":"caf\\xe9","of":{"caf\\xe9":"\\xff"},"list":["caf\\xe9"],"to":"caf\\xe9"}` + "\n"; string(line) != want {
		t.Errorf("a document has %s, want %s (%v)", line, want, err)
	}
	if line := AppendJSON(nil, &KernelEvent{Kind: KindOpen, Value: "/caf\xe9"}); !strings.Contains(string(line),
		`"value":"/caf\\xe9"`) {
		t.Errorf("a kernel line is %s", line)
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct {
		path string
		dirs []string
		want bool
	}{
		{"/a", nil, false}, {"/a", []string{"/a"}, true}, {"/a/b", []string{"/a"}, true}, {"/ab", []string{"/a"},
			false},
		{"/a", []string{"/a/b"}, false}, {"/a", []string{"/"}, true}, {"/b", []string{"/a", "/b"}, true},
		{"a/b", []string{"."}, true}, {".", []string{"."}, true}, {"..", []string{"."}, false},
		{"../a", []string{"."}, false}, {"..a", []string{"."}, true},
	} {
		if got := Below(c.path, c.dirs...); got != c.want {
			t.Errorf("Below(%s, %v) = %v", c.path, c.dirs, got)
		}
	}
}
