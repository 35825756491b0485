package mcp

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// A message that is too large ends the client's side, and the client is told.
func TestAMessageTooLarge(t *testing.T) {
	serverOut, closed := io.Pipe()
	var told, got bytes.Buffer
	text := io.MultiReader(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"+`"`), io.LimitReader(endless{}, MaxLine))
	if err := New(Config{}).Relay(text, &told, &got, serverOut, func() { closed.Close() }); err != nil {
		t.Error(err)
	}
	if !strings.Contains(told.String(), "a message is larger than 67108864 bytes") {
		t.Errorf("the client was told %q", told.String())
	}
	if got.String() != `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n" {
		t.Errorf("the server got %.100q", got.String())
	}
}

func TestARefusalRepeatsNoIDThatIsNone(t *testing.T) {
	serverOut, closed := io.Pipe()
	var told bytes.Buffer
	text := strings.NewReader(`{"jsonrpc":"2.0","id":{"a":1},"method":5}` + "\n")
	if err := New(Config{}).Relay(text, &told, io.Discard, serverOut, func() { closed.Close() }); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(told.String(), `{"jsonrpc":"2.0","id":null,"error":`) {
		t.Errorf("the client was told %q", told.String())
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("x"), len(p))), nil }
