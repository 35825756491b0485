package schema

import (
	"bytes"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Document encodes a whole-file artifact in its canonical form: two-space
// indentation, keys in the order of the type, map keys sorted, no HTML
// escapes, and one final newline. Equal values give equal bytes.
func Document(v any) ([]byte, error) {
	return encode(v, "  ")
}

// Line encodes one layer line: compact, and ending in a newline.
func Line(v any) ([]byte, error) {
	return encode(v, "")
}

// PrintDocument writes v to w as [Document] encodes it, with what drives a terminal
// escaped as [AppendForTerminal] does. It writes while it encodes.
func PrintDocument(w io.Writer, v any) error { return encodeTo(forTerminal{w}, v, "  ") }

// WriteDocument writes v to w as [Document] encodes it, while it encodes.
func WriteDocument(w io.Writer, v any) error { return encodeTo(w, v, "  ") }

func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	if err := encodeTo(&b, v, indent); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func encodeTo(w io.Writer, v any, indent string) error {
	format := json.JoinOptions(jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false))
	if indent != "" {
		format = json.JoinOptions(format, jsontext.WithIndent(indent))
	}
	if err := json.MarshalWrite(w, v, format); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
