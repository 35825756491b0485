package shim

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// Message is what a shim sends over the control socket, one a packet.
type Message struct {
	Kind uint64
	// Sender is the process that sent the message, as the kernel says, in the receiver's PID namespace.
	Sender int
	// Failed comes with layers and failed: the steps that failed, the last one last.
	Failed []steps.Failure
	// Status is a wait status, with state.
	Status uint32
	// ID tells answers to dial apart.
	ID uint64
	// Refused comes with dialed, 0 where there is a descriptor.
	Refused unix.Errno
}

// Errno is what the last step failed with, for a message that says that one did.
func (m *Message) Errno() unix.Errno {
	if len(m.Failed) == 0 {
		return unix.EIO
	}
	return m.Failed[len(m.Failed)-1].Errno
}

// Kinds of messages.
const (
	KindLayers   = iota + 1 // from the process that becomes the command
	KindListener            // with a descriptor
	KindStarted             // with the command's pidfd, where there is an init
	KindFailed              // the command could not be started
	KindState
	KindDialed // with a descriptor, which may still be connecting, or Refused
)

// messageSize is the length of a message without failures: its kind and two words.
const messageSize = 24

func decode(b []byte) (m Message, err error) {
	if len(b) < 16 {
		return m, errors.New("a message is too short")
	}
	second := binary.NativeEndian.Uint64(b[8:])
	switch m.Kind = binary.NativeEndian.Uint64(b); m.Kind {
	case KindLayers, KindFailed:
		m.Failed = steps.ParseFailures(b[16:])
	case KindState:
		m.Status = uint32(second)
	case KindDialed:
		if m.ID = second; len(b) == messageSize {
			m.Refused = unix.Errno(binary.NativeEndian.Uint64(b[16:]))
		}
	}
	return m, nil
}
