package layer

import "golang.org/x/crypto/cryptobyte"

// serverName returns the server name in the start of a TLS record with a
// ClientHello (RFC 8446, section 4.1.2; RFC 6066, section 3), in lower case.
// ok is false when p is no ClientHello, was cut before the name, or holds a
// name that no host can have; a ClientHello without a name is ok and "".
func serverName(p []byte) (name string, ok bool) {
	const handshake, clientHello, serverNameExtension, hostName = 22, 1, 0, 0
	in := cryptobyte.String(p)
	var kind uint8
	if !in.ReadUint8(&kind) || kind != handshake || !in.Skip(2) { // version
		return "", false
	}
	record, _, ok := atMost16(&in)
	if !ok || !record.ReadUint8(&kind) || kind != clientHello {
		return "", false
	}
	var length uint32
	if !record.ReadUint24(&length) {
		return "", false
	}
	hello := record[:min(int(length), len(record))]
	var skipped cryptobyte.String
	if !hello.Skip(2+32) || // legacy_version, random
		!hello.ReadUint8LengthPrefixed(&skipped) || // legacy_session_id
		!hello.ReadUint16LengthPrefixed(&skipped) || // cipher_suites
		!hello.ReadUint8LengthPrefixed(&skipped) { // legacy_compression_methods
		return "", false
	}
	if hello.Empty() && len(record) >= int(length) {
		return "", true // a hello without extensions
	}
	extensions, whole, ok := atMost16(&hello)
	if !ok {
		return "", false
	}
	for !extensions.Empty() {
		var typ uint16
		var body, names, host cryptobyte.String
		if !extensions.ReadUint16(&typ) || !extensions.ReadUint16LengthPrefixed(&body) {
			return "", false
		}
		if typ != serverNameExtension {
			continue
		}
		if !body.ReadUint16LengthPrefixed(&names) || !names.ReadUint8(&kind) || kind != hostName ||
			!names.ReadUint16LengthPrefixed(&host) {
			return "", false
		}
		return plainHost(host)
	}
	return "", whole
}

// atMost16 reads bytes that follow their length, a number of 16 bits. If fewer are
// there, it reads those, and whole is false.
func atMost16(s *cryptobyte.String) (v cryptobyte.String, whole, ok bool) {
	var n uint16
	if !s.ReadUint16(&n) {
		return nil, false, false
	}
	have := min(int(n), len(*s))
	v = (*s)[:have]
	*s = (*s)[have:]
	return v, have == int(n), true
}

// plainHost accepts what can be a host name: at most 255 letters, digits,
// hyphens, underscores and dots.
func plainHost(b []byte) (string, bool) {
	if len(b) == 0 || len(b) > 255 {
		return "", false
	}
	out := make([]byte, len(b))
	for i, c := range b {
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return "", false
		}
		out[i] = c
	}
	return string(out), true
}
