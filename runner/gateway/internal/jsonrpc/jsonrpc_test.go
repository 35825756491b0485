package jsonrpc

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestMessagesThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}`:                   "",
		`{"jsonrpc":"2.0","method":"m"}`:                                           "",
		`{"jsonrpc":"2.0","id":"x","result":null}`:                                 "",
		`{"jsonrpc":"2.0","id":1,"error":{"code":1}}`:                              "",
		`{"jsonrpc":"2.0","id":1,"method":""}`:                                     "",
		`{"jsonrpc":"2.0","id":1,"method":null}`:                                   "exactly one of method",
		`{"jsonrpc":"2.0","id":1,"method":7}`:                                      "a method must be a string",
		`{"jsonrpc":"2.0","id":{},"method":"m"}`:                                   "an id must be a string or a number",
		`{"jsonrpc":"1.0","id":1,"method":"m"}`:                                    `jsonrpc must be "2.0"`,
		`{"jsonrpc":"2.0","id":1,"method":"m","result":1}`:                         "exactly one of method",
		`{"jsonrpc":"2.0","result":1}`:                                             "needs the id",
		`{"jsonrpc":"2.0","id":1,"method":"m","Params":{}}`:                        `"Params" is ambiguous`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`:                             "syntax: duplicate",
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"a":2}}`:             "syntax: duplicate",
		`{"jsonrpc":"2.0","id":1,"method":"m"} {}`:                                 "syntax: text after",
		`{"jsonrpc":"2.0","id":1`:                                                  "syntax: unexpected EOF",
		``:                                                                         "syntax: unexpected EOF",
		`7`:                                                                        "must be an object",
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", maxID) + `","method":"m"}`: "more than 256 bytes",
	} {
		m, err := Decode(jsontext.Value(text))
		if err == nil {
			err = m.Check()
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		var syntax *jsontext.SyntacticError
		if isSyntax := errors.As(err, &syntax); isSyntax != strings.HasPrefix(want, "syntax: ") {
			t.Errorf("%s: %v: an error of syntax: %t", text, err, isSyntax)
		}
		if want = strings.TrimPrefix(want, "syntax: "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestSpellingsOfOneID(t *testing.T) {
	for _, same := range [][]string{{`1`, `1.0`, `10e-1`}, {`"a"`, `"\u0061"`}, {`"1"`, `"\u0031"`}} {
		for _, id := range same[1:] {
			if a, b := IDKey(jsontext.Value(same[0])), IDKey(jsontext.Value(id)); a != b {
				t.Errorf("%s has the key %s, and %s has %s", same[0], a, id, b)
			}
		}
	}
	if one, text := jsontext.Value(`1`), jsontext.Value(`"1"`); IDKey(one) == IDKey(text) ||
		OtherKey(one) != IDKey(text) || OtherKey(text) != IDKey(one) {
		t.Errorf("the keys of 1 and \"1\" are %q and %q", IDKey(one), IDKey(text))
	}
}

func TestNumbersAndNestingAreBounded(t *testing.T) {
	for text, ok := range map[string]bool{
		strings.Repeat("1", maxDigits):   true,
		strings.Repeat("1", maxDigits+1): false,
		`1e300`:                          true,
		`1e301`:                          false,
		`"` + strings.Repeat("1", 1000) + `e999"`:           true,
		strings.Repeat("[", 64) + strings.Repeat("]", 64):   true,
		strings.Repeat("[", 65) + strings.Repeat("]", 65):   false,
		`"` + strings.Repeat("[", 100) + `\"` + `[[[[[[[["`: true,
	} {
		if err := CheckMessage([]byte(text)); (err == nil) != ok {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

// FuzzDecode checks that Decode accepts only what it would write again, and that its values are those of the text.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1,"x"]}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"\u0061","result":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil || m.Check() != nil {
			return
		}
		if !jsontext.Value(b).IsValid() {
			t.Fatalf("%q is accepted and not valid JSON", b)
		}
		if id, response := IDOf(b); m.ID != nil && m.ID.Kind() != 'n' &&
			(string(id) != string(m.ID) || response == m.IsRequest()) {
			t.Fatalf("%q: IDOf says %s, %t", b, id, response)
		}
	})
}
