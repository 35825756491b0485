package shim

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// Message is a message from a shim over the control socket, one per packet.
type Message struct {
	Kind uint64
	// Sender is the sending process, as the kernel reports it, in the receiver's PID namespace.
	Sender int
	// Failed is set for layers and failed: the steps that failed, in order.
	Failed []steps.Failure
	// Status is a wait status, set for state.
	Status uint32
	// ID identifies the dial that a message answers.
	ID uint64
	// Refused is set for dialed; 0 if there is a descriptor.
	Refused unix.Errno
}

// Errno is the error of the last failed step, for a message that reports one.
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
	KindStarted             // with the command's pidfd if there is an init
	KindFailed              // the command could not start
	KindState
	KindDialed      // with a descriptor, which may still be connecting, or with Refused
	KindDiagnostics // with a socket for diagnostics in the command's network namespace
	KindAsks        // with the listener of the plan's Asks; it comes after the former
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
