package layer

// cursor eats bytes from the front; bad once more was asked for than there is.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return nil
	}
	t := c.b[:n]
	c.b = c.b[n:]
	return t
}

// uint reads a big-endian number of n bytes.
func (c *cursor) uint(n int) (v int) {
	for _, x := range c.take(n) {
		v = v<<8 | int(x)
	}
	return v
}

// vector reads what follows its own length of n bytes.
func (c *cursor) vector(n int) []byte { return c.take(c.uint(n)) }

// serverName returns the server name in the start of a TLS record with a
// ClientHello (RFC 8446, section 4.1.2; RFC 6066, section 3), in lower case.
// ok is false when p is no ClientHello, was cut before the name, or holds a
// name that no host can have; a ClientHello without a name is ok and "".
func serverName(p []byte) (name string, ok bool) {
	rec := cursor{b: p}
	if typ := rec.uint(1); rec.bad || typ != 22 { // handshake
		return "", false
	}
	rec.take(2) // version
	n := rec.uint(2)
	hs := cursor{b: rec.b[:min(n, len(rec.b))]}
	if typ := hs.uint(1); hs.bad || typ != 1 { // client_hello
		return "", false
	}
	n = hs.uint(3)
	c := cursor{b: hs.b[:min(n, len(hs.b))], bad: hs.bad}
	c.take(2 + 32) // legacy_version, random
	c.vector(1)    // legacy_session_id
	c.vector(2)    // cipher_suites
	c.vector(1)    // legacy_compression_methods
	if c.bad {
		return "", false
	}
	if len(c.b) == 0 && len(hs.b) >= n {
		return "", true // a hello without extensions
	}
	left := c.uint(2)
	cut := left > len(c.b)
	ext := cursor{b: c.b[:min(left, len(c.b))], bad: c.bad}
	for !ext.bad && len(ext.b) > 0 {
		typ := ext.uint(2)
		body := ext.vector(2)
		if ext.bad || typ != 0 { // server_name
			continue
		}
		list := cursor{b: body}
		names := cursor{b: list.vector(2), bad: list.bad}
		if kind := names.uint(1); kind != 0 { // host_name, the only kind there is
			return "", false
		}
		host := names.vector(2)
		if names.bad {
			return "", false
		}
		return plainHost(host)
	}
	return "", !ext.bad && !cut
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
