package helper

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"

	"golang.org/x/sys/unix"
)

// TerminalChanged tells the guard what cgroup.Guard.TerminalChanged says.
func (g *Guard) TerminalChanged(set, own *unix.Termios) {
	line := []byte{'t'}
	for _, tio := range []*unix.Termios{set, own} {
		if tio != nil {
			line = append(line, ' ')
			b, _ := binary.Append(nil, binary.NativeEndian, tio) // of fixed size
			line = hex.AppendEncode(line, b)
		}
	}
	_, _ = g.Write(append(line, '\n')) // short enough to be one write
}

// terminal is the guard's side of it.
type terminal struct {
	fd       int
	changed  bool
	set, own unix.Termios
}

// hear takes a line of the runner's.
func (t *terminal) hear(line []byte) {
	f := bytes.Fields(line)
	if len(f) == 0 || string(f[0]) != "t" {
		return
	}
	t.changed = len(f) == 3 && decodeTermios(f[1], &t.set) && decodeTermios(f[2], &t.own)
}

func decodeTermios(text []byte, tio *unix.Termios) bool {
	b := make([]byte, hex.DecodedLen(len(text)))
	if _, err := hex.Decode(b, text); err != nil {
		return false
	}
	n, err := binary.Decode(b, binary.NativeEndian, tio)
	return err == nil && n == len(b)
}

// restore acts on the runner's death. A shell that notices it puts the settings
// back by itself, or makes others for its line editor; the guard leaves those
// alone, also where an editor was quicker and has made them from ours: it would
// return to ours after the line, whatever the guard did meanwhile. The guard is
// in another session than the terminal's, so that the kernel never stops it for
// this, whoever is in the foreground.
func (t *terminal) restore() {
	if !t.changed {
		return
	}
	now, err := unix.IoctlGetTermios(t.fd, unix.TCGETS)
	// Line speeds and the like are the driver's to adjust.
	if err == nil && now.Iflag == t.set.Iflag && now.Oflag == t.set.Oflag && now.Lflag == t.set.Lflag && now.Cc == t.set.Cc {
		_ = unix.IoctlSetTermios(t.fd, unix.TCSETS, &t.own)
	}
}
