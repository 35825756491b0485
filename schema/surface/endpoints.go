package surface

import (
	"iter"
	"net/netip"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// The set of endpoints holds "endpoint\x00" for each that was used and
// "endpoint\x00name" for each name of one: a name that is learned late, or of
// an endpoint that only flowed in, finds its endpoint when they are merged.
const nameMark = "\x00"

func (b *Builder) endpoint(ep string, e *schema.KernelEvent) error {
	if path, ok := strings.CutPrefix(ep, "unix:"); ok {
		if path == "" {
			return nil
		}
		return b.hosts.add(b.clean("unix:" + socketName(path, e.PID) + nameMark))
	}
	if ap, err := netip.ParseAddrPort(ep); err == nil && ap.Addr().IsLoopback() && ap.Port() >= firstEphemeral &&
		(e.Protocol == "udp" || b.bound.has(ap.Port())) {
		ep = anyPort(ep)
	}
	if err := b.hosts.add(b.clean(ep + nameMark)); err != nil {
		return err
	}
	return b.nameOf(ep, e.Names...)
}

// socketName is normalizePath for abstract names too, which may hold zeroes.
func socketName(path string, pid uint32) string {
	return normalizePath(strings.ReplaceAll(path, "\x00", `\x00`), pid)
}

// firstEphemeral is the least port that Linux chooses for a socket that asks
// for none, unless net.ipv4.ip_local_port_range says otherwise.
const firstEphemeral = 32768

// anyPort replaces the port.
func anyPort(ep string) string { return ep[:strings.LastIndexByte(ep, ':')] + ":<ephemeral>" }

// note remembers an own port that the kernel may have chosen, and reports
// whether it is one.
func (b *Builder) note(ep string) bool {
	ap, err := netip.ParseAddrPort(ep)
	if err != nil || ap.Port() < firstEphemeral {
		return false
	}
	b.bound.add(ap.Port())
	return true
}

func (b *Builder) nameOf(ep string, names ...string) error {
	for _, n := range names {
		if n == "" || ep == "" {
			continue
		}
		if err := b.hosts.add(b.clean(ep + nameMark + n)); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) bind(e *schema.KernelEvent) error {
	if path, ok := strings.CutPrefix(e.Value, "unix:"); ok {
		if path == "" {
			return nil
		}
		return b.hosts.add(b.clean("bind unix:" + socketName(path, e.PID) + nameMark))
	}
	if e.Value == "" {
		return nil
	}
	if b.note(e.Value) {
		return b.hosts.add(b.clean("bind " + anyPort(e.Value) + nameMark))
	}
	return b.hosts.add(b.clean("bind " + e.Value + nameMark))
}

// portSet is a set of ports.
type portSet [1 << 16 / 64]uint64

func (p *portSet) add(port uint16)      { p[port/64] |= 1 << (port % 64) }
func (p *portSet) has(port uint16) bool { return p[port/64]&(1<<(port%64)) != 0 }

// endpoints yields the endpoints with their names, in the order of their bytes.
func (b *Builder) endpoints() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var ep string
		var names []string
		flush := func() bool {
			if ep == "" {
				return true
			}
			out := ep
			if len(names) > 0 {
				out += " (" + strings.Join(names, ",") + ")"
			}
			ep, names = "", nil
			return yield(out, nil)
		}
		for v, err := range b.hosts.all() {
			if err != nil {
				yield("", err)
				return
			}
			at, name, _ := strings.Cut(v, nameMark)
			switch {
			case name == "":
				if !flush() {
					return
				}
				ep = at
			case at == ep:
				names = append(names, name)
			}
		}
		flush()
	}
}
