package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDecodeTellsOfEachFault(t *testing.T) {
	var got struct {
		Name  string        `json:"name"`
		Wait  time.Duration `json:"wait"`
		Items []struct {
			Size int      `json:"size"`
			Of   []string `json:"of"`
		} `json:"items"`
	}
	doc, err := DecodeDocument([]byte("name: n\nwait: 5\nitems:\n- size: 1\n- {size: x}\n- size: 3\n  of: [a, "+
		"4, b]\n  sise: 1\n"), YAML, &got)
	want := []string{
		`line 2, column 1: wait: "5" has no unit: write 5s for seconds, or 5m for minutes`,
		"line 5, column 4: items[1].size: found a string, want a whole number",
		"line 7, column 11: items[2].of[1]: found a number, want a string (quote it)",
		"line 8, column 3: items[2].sise: unknown key; did you mean \"size\"; allowed are size, of",
	}
	if found := strings.Split(err.Error(), "\n"); !slices.Equal(found, want) {
		t.Errorf("faults are\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	if got.Name != "n" || len(got.Items) != 3 || got.Items[2].Size != 3 ||
		!slices.Equal(got.Items[2].Of, []string{"a", "", "b"}) {
		t.Errorf("the rest is %+v", got)
	}
	if f := doc.Fault("x", "items", "2", "of", "none"); f.Line != 7 || f.Key != "items[2].of.none" {
		t.Errorf("the fault is %+v", f)
	}
}

func TestDecodeRefusesWhatIsNoDocument(t *testing.T) {
	for _, text := range []string{"", "[a]", "name: a\nname: b", "x", "name: &a b", "name: [",
		strings.Repeat("[", 100)} {
		var into struct {
			Name string `json:"name"`
		}
		if err := Decode([]byte(text), YAML, &into); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
