package strict

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDecodeAllTellsOfEachFault(t *testing.T) {
	var got struct {
		Name  string        `json:"name"`
		Wait  time.Duration `json:"wait"`
		Items []struct {
			Size int      `json:"size"`
			Of   []string `json:"of"`
		} `json:"items"`
	}
	lines, err := DecodeAll([]byte("name: n\nwait: 5\nitems:\n- size: 1\n- {size: x}\n- size: 3\n  of: [a, "+
		"4, b]\n  sise: 1\n"), &got)
	want := []string{
		`line 2: wait: "5" is not a time such as 90s or 10m`,
		"line 5: items[1].size: found a string, want a whole number",
		"line 7: items[2].of[1]: found a number, want a string (quote it)",
		"line 8: items[2].sise: unknown key; allowed are size, of",
	}
	if found := strings.Split(err.Error(), "\n"); !slices.Equal(found, want) {
		t.Errorf("faults are\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	if got.Name != "n" || len(got.Items) != 3 || got.Items[2].Size != 3 ||
		!slices.Equal(got.Items[2].Of, []string{"a", "", "b"}) {
		t.Errorf("the rest is %+v", got)
	}
	if n := lines.Of("items", "2", "of"); n != 7 {
		t.Errorf("it stands on line %d", n)
	}
}

func TestDecodeAllRefuses(t *testing.T) {
	for _, text := range []string{"", "[a]", "name: a\nname: b", "x", "name: &a b", "name: [",
		strings.Repeat("[", 100)} {
		var into struct {
			Name string `json:"name"`
		}
		if _, err := DecodeAll([]byte(text), &into); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
