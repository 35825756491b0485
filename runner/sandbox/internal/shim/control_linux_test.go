package shim

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// TestLastWords reads what a shim sent that ended without reading what it was sent.
func TestLastWords(t *testing.T) {
	conn, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Go(); err != nil {
		t.Fatal(err)
	}
	words := binary.NativeEndian.AppendUint64(nil, KindLayers)
	if _, err := theirs.Write(append(words, make([]byte, 8)...)); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if m, _, err := conn.Receive(); err != nil || m.Kind != KindLayers {
		t.Errorf("received %+v, %v; want the layers", m, err)
	}
	if m, _, err := conn.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("received %+v, %v; want the end", m, err)
	}
	if err := conn.Go(); err != nil {
		t.Errorf("a word to a shim that is gone: %v", err)
	}
}
