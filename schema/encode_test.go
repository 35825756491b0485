package schema

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestForTerminal(t *testing.T) {
	text := "a\u007f\u0085\u009b31m\u061c\u200e\u200f\u202e\u2066\u2069\u2028é日😀\ufeff"
	doc, err := Document(map[string]string{"v": text})
	if err != nil {
		t.Fatal(err)
	}
	out := AppendForTerminal([]byte("> "), doc)
	if strings.IndexFunc(string(out), func(r rune) bool { return r != '\n' && DrivesTerminal(r) }) >= 0 {
		t.Errorf("%q", out)
	}
	var back map[string]string
	if err := json.Unmarshal(out[2:], &back); err != nil || back["v"] != text {
		t.Errorf("%q reads as %q, %v", out, back["v"], err)
	}
	if s := `{"plain":"é"}`; string(AppendForTerminal(nil, []byte(s))) != s {
		t.Error("a plain text is changed")
	}
}

// TestPrintDocumentIsTheDocument: printed in parts, none of which breaks a character.
func TestPrintDocumentIsTheDocument(t *testing.T) {
	for n := range 4 {
		v := []string{strings.Repeat("x", n) + strings.Repeat("日\u202e", 50_000)}
		doc, err := Document(v)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := PrintDocument(&out, v); err != nil || !bytes.Equal(out.Bytes(), AppendForTerminal(nil, doc)) {
			t.Errorf("%v: other bytes than the document's", err)
		}
	}
}
