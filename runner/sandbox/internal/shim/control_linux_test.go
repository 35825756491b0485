package shim

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
)

// TestLastWords reads the messages of a shim that ended without reading its own.
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

// TestTheSenderIsKnownAfterItsEnd reads a message whose sender has ended, such as a short command on a busy machine.
func TestTheSenderIsKnownAfterItsEnd(t *testing.T) {
	conn, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cmd := exec.Command("sh", "-c", `printf '\001\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000' >&3`)
	cmd.ExtraFiles = []*os.File{theirs}
	out, err := cmd.CombinedOutput()
	theirs.Close()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if m, fd, err := conn.Receive(); err != nil || m.Kind != KindLayers || fd != -1 || m.Sender != cmd.Process.Pid {
		t.Errorf("received %+v, descriptor %d, %v; want the layers of process %d", m, fd, err, cmd.Process.Pid)
	}
}
