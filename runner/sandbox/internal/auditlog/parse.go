package auditlog

import (
	"encoding/hex"
	"net"
	"strconv"
	"strings"
)

// Record is an access that Landlock refused. Repeated records are equal.
type Record struct {
	// Blockers are the rights that were missing, separated by commas, such as
	// fs.read_file, net.connect_tcp or scope.signal.
	Blockers string
	// Path is the file's path, or the directory's if a name in it was to be created or removed.
	Path string
	// Abstract is the name of an abstract socket.
	Abstract string
	// Address is ip:port or [ip6]:port.
	Address string
	// PID and Comm describe the target process of a signal or a trace.
	PID  int
	Comm string
}

// line is one audit record about Landlock.
type line struct {
	domain string
	access Record // Blockers is empty if the record is about the domain itself
	status string // allocated or deallocated
	pid    int    // process that made the domain
	count  uint64 // the domain's refusals
}

// parse reads the text of a record. The kernel writes a value in quotes, or in hexadecimal if it contains an
// unprintable character (audit_log_n_untrustedstring).
func parse(text string) (l line, ok bool) {
	_, fields, found := strings.Cut(text, "): ")
	if !found || !strings.HasPrefix(text, "audit(") {
		return l, false
	}
	var address, port string
	for field := range strings.FieldsSeq(strings.TrimRight(fields, "\x00\n")) {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "domain":
			l.domain = value
		case "blockers":
			l.access.Blockers = value
		case "status":
			l.status = value
		case "pid":
			l.pid, _ = strconv.Atoi(value)
		case "denials":
			l.count, _ = strconv.ParseUint(value, 10, 64)
		case "path":
			path := unquote(value)
			if abstract, is := strings.CutPrefix(path, "\x00"); is {
				l.access.Abstract = abstract
			} else {
				l.access.Path = path
			}
		case "saddr", "daddr":
			address = value
		case "src", "dest":
			port = value
		case "opid":
			l.access.PID, _ = strconv.Atoi(value)
		case "ocomm":
			l.access.Comm = unquote(value)
		}
	}
	if port != "" {
		if address == "" {
			address = "0.0.0.0"
		}
		l.access.Address = net.JoinHostPort(address, port)
	}
	return l, l.domain != ""
}

func unquote(value string) string {
	if inner, ok := strings.CutPrefix(value, `"`); ok {
		return strings.TrimSuffix(inner, `"`)
	}
	if b, err := hex.DecodeString(value); err == nil {
		return string(b)
	}
	return value
}
