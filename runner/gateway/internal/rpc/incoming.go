package rpc

import "slices"

// incoming is a message that is being read. Beyond its first chunk it takes room
// of what all clients together may hold, until it is freed.
type incoming struct {
	server *Server
	chunks [][]byte // full ones
	last   []byte
	taken  int // bytes of room
}

const chunkSize = 64 << 10

func (m *incoming) len() int { return len(m.chunks)*chunkSize + len(m.last) }

// add appends a part. The error is errNoRoom.
func (m *incoming) add(part []byte) error {
	for len(part) > 0 {
		if len(m.last) == chunkSize {
			if !m.server.reserve(chunkSize) {
				return errNoRoom
			}
			m.taken += chunkSize
			m.chunks = append(m.chunks, m.last)
			m.last = make([]byte, 0, chunkSize)
		}
		n := min(len(part), chunkSize-len(m.last))
		m.last = append(m.last, part[:n]...)
		part = part[n:]
	}
	return nil
}

// message is all of it, in memory of its own. The next one begins.
func (m *incoming) message() []byte {
	b := m.last
	if len(m.chunks) > 0 {
		b = append(slices.Concat(m.chunks...), m.last...)
	}
	m.chunks, m.last = nil, nil
	return b
}

// free gives the room back, once the message has been handled, and forgets what
// there is of one.
func (m *incoming) free() {
	m.server.release(m.taken)
	*m = incoming{server: m.server}
}
