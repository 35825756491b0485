package startup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// entry is a line of git's configuration.
type entry struct {
	key   string // as git prints it: section and name in small letters
	value string
	file  string
	from  int // its bytes in the file, with the end of the line
	to    int
}

// maxConfig limits a configuration file, in bytes: git's own are small, and the command may have written any.
const maxConfig = 4 << 20

// maxIncludes is git's limit for includes in includes (MAX_INCLUDE_DEPTH in config.c).
const maxIncludes = 10

// ReadFile reads a regular file of at most maxConfig bytes. It opens nothing else: to open a device can do something.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = small(info)
	}
	if err != nil {
		return nil, err
	}
	return ReadOpen(os.OpenFile(path, ReadFlags, 0))
}

// errNotSmall is wrapped by errors about regular files of more than maxConfig bytes.
var errNotSmall = errors.New("not a small regular file")

// small returns an error that differs with what is known of a file that is not read.
func small(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Size() > maxConfig:
		return fmt.Errorf("%w: %d bytes of %s", errNotSmall, info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// ReadFlags open a file for ReadOpen, and do not wait for the writer of a pipe.
const ReadFlags = os.O_RDONLY | syscall.O_NONBLOCK

// ReadOpen is ReadFile for an open file, which it closes, or for the error of opening it.
func ReadOpen(f *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := small(info); err != nil {
		return nil, err
	}
	b := make([]byte, info.Size())
	n, err := f.ReadAt(b, 0)
	if n < len(b) && err != nil {
		return nil, err
	}
	return b, nil
}

// readConfig appends the entries of a configuration file and of what it includes. It calls read with each file that git
// would read, whether or not it exists.
func readConfig(path, home string, depth int, read func(path string)) []entry {
	read(path)
	b, err := ReadFile(path)
	if errors.Is(err, errNotSmall) {
		return []entry{{key: unread, value: err.Error(), file: path}}
	}
	if err != nil || depth > maxIncludes {
		return nil
	}
	var list []entry
	for _, e := range parseConfig(string(b)) {
		e.file = path
		list = append(list, e)
		if e.key == "include.path" || strings.HasPrefix(e.key, "includeif.") && strings.HasSuffix(e.key, ".path") {
			dir := path[:strings.LastIndexByte(path, '/')]
			list = append(list, readConfig(expand(e.value, dir, home), home, depth+1, read)...)
		}
	}
	return list
}

// unread is the key of a configuration file that git reads, and that is too large to be read here.
const unread = "configuration of more than 4 MiB"

// cString is what git sees of bytes that it reads: they end with the first NUL.
func cString[T string | []byte](b T) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// namedPath is a path that is the whole content of a file.
func namedPath(b []byte) string { return cString(strings.TrimRight(string(b), "\r\n")) }

// expand is a path in a configuration file, which may be relative to dir or to the home. It is not clean: what ..
// means depends on symbolic links before it.
func expand(path, dir, home string) string {
	switch {
	case strings.HasPrefix(path, "~/") && home != "":
		return filepath.Join(home, path[2:])
	case filepath.IsAbs(path):
		return path
	}
	return dir + "/" + path
}

// parseConfig reads git's configuration, as git_parse_source in git's config.c does. What git would refuse ends it.
func parseConfig(text string) []entry {
	p := &parser{text: text}
	if strings.HasPrefix(text, "\ufeff") {
		p.at = len("\ufeff")
	}
	var list []entry
	section := ""
	for {
		switch c := p.next(); {
		case p.eof:
			return list
		case space(c):
		case c == '#' || c == ';':
			p.line()
		case c == '[':
			var ok bool
			if section, ok = p.section(); !ok {
				return list
			}
		case letter(c):
			p.at--
			from := p.at
			name := p.word()
			value, ok := p.value()
			if !ok {
				return list
			}
			key := strings.ToLower(name)
			if section != "" {
				key = section + "." + key
			}
			list = append(list, entry{key: cString(key), value: cString(value), from: from, to: p.at})
		default:
			return list
		}
	}
}

// parser reads bytes.
type parser struct {
	text string
	at   int
	eof  bool // next has been called at the end
}

// next is the next byte. The end of a line, and of the file, is \n.
func (p *parser) next() byte {
	if p.at >= len(p.text) {
		p.eof = true
		return '\n'
	}
	p.at++
	if strings.HasPrefix(p.text[p.at-1:], "\r\n") {
		p.at++
	}
	return p.text[p.at-1]
}

// space is isspace of git.
func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// line skips the rest of a line.
func (p *parser) line() {
	for p.next() != '\n' {
	}
}

// named reports whether names may have a byte.
func named(c byte) bool { return letter(c) || c >= '0' && c <= '9' || c == '-' }

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// word reads letters, digits and hyphens.
func (p *parser) word() string {
	from := p.at
	for p.at < len(p.text) && named(p.text[p.at]) {
		p.at++
	}
	return p.text[from:p.at]
}

// section reads the rest of [section], [section.sub] or [section "sub"].
func (p *parser) section() (string, bool) {
	var b strings.Builder
	for {
		switch c := p.next(); {
		case c == ']':
			return b.String(), true
		case named(c) || c == '.':
			b.WriteString(strings.ToLower(string(c)))
		case space(c):
			return p.subsection(&b, c)
		default:
			return "", false
		}
	}
}

// subsection reads the rest of [section "sub"] after the first space, c.
func (p *parser) subsection(b *strings.Builder, c byte) (string, bool) {
	for space(c) {
		if c == '\n' {
			return "", false
		}
		c = p.next()
	}
	if c != '"' {
		return "", false
	}
	b.WriteByte('.')
	for {
		switch c = p.next(); c {
		case '\n':
			return "", false
		case '"':
			return b.String(), p.next() == ']'
		case '\\':
			if c = p.next(); c == '\n' {
				return "", false
			}
		}
		b.WriteByte(c)
	}
}

// value reads the rest of a line after a name. Without a value it is true.
func (p *parser) value() (string, bool) {
	c := p.next()
	for c == ' ' || c == '\t' {
		c = p.next()
	}
	if c == '\n' {
		return "true", true
	}
	if c != '=' {
		return "", false
	}
	var b strings.Builder
	quoted, comment, kept := false, false, 0
	for {
		switch c = p.next(); {
		case c == '\n':
			return b.String()[:kept], !quoted
		case comment:
		case space(c) && !quoted:
			if b.Len() > 0 {
				b.WriteByte(c) // unless the value ends here
			}
		case (c == '#' || c == ';') && !quoted:
			comment = true
		case c == '"':
			quoted = !quoted
			kept = b.Len()
		case c == '\\':
			kept = b.Len()
			switch c = p.next(); c {
			case '\n':
				continue
			case 't':
				c = '\t'
			case 'b':
				c = '\b'
			case 'n':
				c = '\n'
			case '\\', '"':
			default:
				return "", false
			}
			b.WriteByte(c)
			kept = b.Len()
		default:
			b.WriteByte(c)
			kept = b.Len()
		}
	}
}
