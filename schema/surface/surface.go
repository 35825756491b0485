package surface

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// Builder gathers the capability surface: what events of class agent touched,
// as sorted sets. Equal workloads give equal bytes; normalize.go says which
// parts of a name count as equal.
//
//   - filesystem_paths: the object of every file event, both names of a rename
//     and a link, whatever the outcome: what was denied or not there was tried.
//   - network_endpoints: "ip:port" of every connect and datagram, followed by
//     " (name,name)" with the names that DNS and TLS gave it; "unix:/path";
//     "bind ip:port" for a local endpoint. A bound port in the range from which
//     the kernel chooses (32768 and up, ip(7)) is <ephemeral>, and so is that
//     port where the run itself connects to it over loopback, and the peer of
//     a datagram there. Peers of accepted connections are not listed: their
//     ports are random, and the bind already says that peers could connect.
//   - process_execs: the executable of every successful exec.
//
// It is not safe for concurrent use.
type Builder struct {
	// Redact takes the secrets out of a name, tags included, before anything
	// else looks at it; nil leaves names as they are.
	Redact func(string) string

	runID               string
	paths, hosts, execs *set
	tools, decisions    map[string]struct{}
	leftOut             [schema.NumClasses]uint64
	bound               portSet             // of those from firstEphemeral on
	temp                map[string]made     // by exact path; see made
	past                map[string]string   // names of those that are gone, for repeats that come late
	held                int                 // how many paths wait for one of temp
	dirs                int                 // how many of temp were directories
	words, pieces       map[string]struct{} // of arguments, and of random names; see hear

	room    map[string]int64  // bytes of each list in the document
	omitted map[string]uint64 // by list: how many WriteTo had no room for
}

// setMemory bounds each set in memory, in bytes.
const setMemory = 4 << 20

// New returns an empty surface. Sets of more than 4 MiB go to files in dir, whose names start with a dot, until Close.
// If dir is empty, they stay in memory.
func New(runID, dir string) *Builder { return newBuilder(runID, dir, setMemory) }

func newBuilder(runID, dir string, memory int) *Builder {
	return &Builder{
		runID: runID, room: listRoom, tools: make(map[string]struct{}), decisions: make(map[string]struct{}),
		temp: make(map[string]made), past: make(map[string]string), words: make(map[string]struct{}),
		pieces: make(map[string]struct{}),
		paths:  newSet(dir, ".surface-paths", memory),
		hosts:  newSet(dir, ".surface-hosts", memory),
		execs:  newSet(dir, ".surface-execs", memory),
	}
}

// AddPolicy adds the tool and the decision of a line of the policy layer.
func (b *Builder) AddPolicy(e *schema.PolicyEvent) {
	if e.Tool != "" {
		b.AddTool(e.Tool)
		b.AddDecision(e.Decision + ":" + e.Tool)
	}
}

// AddTool adds to mcp_tools, AddDecision to policy_decisions ("allow:tool").
func (b *Builder) AddTool(name string)  { b.tools[b.clean(name)] = struct{}{} }
func (b *Builder) AddDecision(d string) { b.decisions[b.clean(d)] = struct{}{} }

// clean is a name without secrets and without the tags of replaced ones: runs that differ only in a secret have equal
// surfaces.
func (b *Builder) clean(name string) string {
	if b.Redact != nil {
		return b.Redact(name)
	}
	return redact.Untag(name)
}

// LeftOut counts the occurrences of classes other than agent, by class. Classes without any are not listed.
func (b *Builder) LeftOut() map[string]uint64 {
	m := make(map[string]uint64)
	for c, n := range b.leftOut {
		if n > 0 {
			m[schema.Class(c).String()] = n
		}
	}
	return m
}

// Close removes the files of the surface.
func (b *Builder) Close() {
	b.paths.close()
	b.hosts.close()
	b.execs.close()
}

// Add adds one event of the layer. exe is what its process executes. An error comes from a file in dir. Add keeps only
// the strings of e.
func (b *Builder) Add(e *schema.KernelEvent, exe string) error {
	if e.Class != schema.ClassAgent {
		b.leftOut[e.Class] += e.Times()
		return nil
	}
	switch e.Kind {
	case schema.KindOpen, schema.KindMkdir, schema.KindMknod, schema.KindSymlink, schema.KindLink, schema.KindRename:
		b.remember(e, exe)
	case schema.KindExec:
		b.hear(e.Argv)
		if err := b.executed(e); err != nil {
			return err
		}
	}
	for name, how := range e.Touches() {
		var err error
		switch how {
		case schema.AccessRun:
			err = b.execs.add(b.clean(e.Name(nameless(normalizePath(name, e.PID), e.Marks))))
		case schema.AccessConnect:
			err = b.endpoint(name, e)
		default:
			err = b.path(e, name)
		}
		if err != nil {
			return err
		}
	}
	switch e.Kind {
	case schema.KindUnlink, schema.KindRmdir, schema.KindRename:
		if len(b.temp) > 0 && !e.Failed() {
			return b.gone(fixedPath(e.Value, e.PID))
		}
	case schema.KindFlow:
		return b.nameOf(e.Value, e.Names...)
	case schema.KindTLS:
		return b.nameOf(e.Remote, e.Value)
	case schema.KindBind:
		return b.bind(e)
	case schema.KindListen:
		b.note(e.Value)
	}
	return nil
}

// made is a new file or directory of the run with a name that looks random. The name counts as random if the run
// removes or renames the file, and as chosen if the file exists at the end. Until that is known, paths at and below it
// wait in held.
type made struct {
	base string // the last part of its path in the surface if it is random
	sure bool   // it is certainly random, by the way it was made: nothing waits
	held map[string]struct{}
	// maker is set where a name that is random as a whole looks like a word:
	// Python tries a temporary directory with a file of such a name, makes it,
	// writes to it and removes it. It is the process instance that made it; what
	// anything else touches has the name that it was given.
	maker uint64
}

const (
	maxMade  = 8192    // files that are remembered at a time
	maxHeld  = 1 << 15 // paths that wait for any of them
	maxWords = 1 << 16 // words of arguments that are remembered
)

// remember notes the file that e makes.
func (b *Builder) remember(e *schema.KernelEvent, exe string) {
	if len(b.temp) >= maxMade || e.Failed() || !e.Makes() && !b.renamesMade(e) {
		return
	}
	path := e.Value
	if e.Kind == schema.KindLink || e.Kind == schema.KindRename {
		path = e.Target
	}
	n := fixedPath(path, e.PID)
	dir, base := cutLast(n)
	if name := byName(n, len(dir), len(n)); name != n { // a known maker's, whatever becomes of it
		b.madePiece(randomPiece(base, name[len(dir):]))
		return
	}
	var m made
	if name := byForm(base, inHome(dir), b.spelled); name != base {
		m.base, m.sure = cmp.Or(ownPID(name, e.PID), name), true
		for start, end := range unique(base, true) {
			b.madePiece(base[start:end])
		}
	} else if name := byPID(base, strconv.FormatUint(uint64(e.PID), 10)); name != "" {
		m.base, m.sure = name, true
	} else if name := byMaker(base, byDrawing); name != "" && below(temporaryDirs, n) && drawn(e) &&
		!b.spelled(randomPiece(base, name)) {
		m.base, m.sure = name, true // also if it stays
		b.madePiece(randomPiece(base, name))
	} else if m.base = b.generated(e, n, exe); m.base == "" {
		return
	}
	if e.Kind == schema.KindMkdir {
		b.dirs++
	} else if m.base == "<random>" && len(base) == 8 && looksChosen(base) {
		m.maker = e.ExecID
	}
	b.temp[n] = m
}

// generated returns the last part of path, which e makes, as the surface has it if the file is gone at the end. It
// returns "" if the name does not look random, or if the file may have existed before.
func (b *Builder) generated(e *schema.KernelEvent, path, exe string) (name string) {
	dir, base := cutLast(path)
	if name := byPlace(dir, base, true); name != "" {
		return name
	}
	if e.Kind == schema.KindRename {
		return ""
	}
	if e.Kind == schema.KindOpen && e.Flags&openExcl == 0 {
		return b.beside(dir, base)
	}
	if name := ownPID(base, e.PID); name != "" {
		return name
	}
	perl := isProgram(exe, "perl")
	if e.Kind == schema.KindOpen {
		name = madeByMkstemp(path, perl, drawn(e), e.Flags, e.Mode)
	} else {
		name = madeByMkdtemp(path, perl, drawn(e), e.Mode)
	}
	if name == "" {
		return b.beside(dir, base)
	}
	piece := randomPiece(base, name)
	if b.spelled(piece) {
		return ""
	}
	b.madePiece(piece)
	return name
}

// renamesMade reports whether e gives another name to what the run made under a name
// that is random by its form: the new one often has a part of it.
func (b *Builder) renamesMade(e *schema.KernelEvent) bool {
	return e.Kind == schema.KindRename && b.temp[fixedPath(e.Value, e.PID)].sure
}

// cutLast cuts after the last slash.
func cutLast(path string) (dir, base string) {
	i := strings.LastIndexByte(path, '/') + 1
	return path[:i], path[i:]
}

// find returns the made file that path is, or is below.
func (b *Builder) find(path string) (root string, m made, ok bool) {
	return innermost(b.temp, path, b.dirs > 0)
}

// innermost finds path in what, or the longest of its parents.
func innermost[T any](what map[string]T, path string, parents bool) (root string, v T, ok bool) {
	if v, ok = what[path]; ok {
		return path, v, true
	}
	for i := strings.LastIndexByte(path, '/'); parents && i > 0; i = strings.LastIndexByte(path[:i], '/') {
		if v, ok = what[path[:i]]; ok {
			return path[:i], v, true
		}
	}
	return "", v, false
}

// path adds a path of an event.
func (b *Builder) path(e *schema.KernelEvent, p string) error {
	n := nameless(fixedPath(p, e.PID), e.Marks)
	root, m, ok := b.find(n)
	if ok && m.maker != 0 && !m.tries(e) {
		if err := b.decide(root, ""); err != nil {
			return err
		}
		ok = false
	}
	// What was made is spoken of after it was gone, too.
	gone := e.Repeat || e.Marks&schema.MarkDeleted != 0 || e.Result == enoent
	if !ok {
		if name := b.strangers(e, n); name != n {
			return b.put(e.Name(name), strings.LastIndexByte(name, '/'), gone)
		}
	}
	return b.put(e.Name(n), len(n), gone)
}

// beside is a file or directory that is named after another, which the run made exclusively: further files of gcc's,
// and what is called as a directory with an end of its own.
func (b *Builder) beside(dir, base string) string {
	if name := byMaker(base, byTheRun); name != "" && b.ours(base, name) {
		return name
	}
	for i := len(base) - 1; i > 0; i-- {
		if strings.IndexByte(".-_", base[i]) < 0 {
			continue
		}
		if m, ok := b.temp[dir+base[:i]]; ok && !m.sure {
			return m.base + base[i:]
		}
	}
	return ""
}

// ours reports whether the run made a file with the piece that is <random> in name.
func (b *Builder) ours(base, name string) bool {
	_, ok := b.pieces[randomPiece(base, name)]
	return ok
}

// strangers returns a path that the run did not make without what its last part has of the process
// itself, or of chance where there is nothing.
func (b *Builder) strangers(e *schema.KernelEvent, path string) string {
	dir, base := cutLast(path)
	if name := byPID(base, strconv.FormatUint(uint64(e.PID), 10)); name != "" {
		return dir + name
	}
	if e.Kind == schema.KindOpen && e.Result == enoent {
		// not even its directory is there
		if name := byMaker(base, byTheRun); name != "" && (e.Flags&openExcl != 0 || b.ours(base, name)) {
			return dir + name
		}
		if below(temporaryDirs, path) && hasUnique(path) {
			parts := strings.Split(path, "/")
			for i := range parts {
				parts[i] = byForm(parts[i], false, b.spelled)
			}
			return strings.Join(parts, "/")
		}
	}
	return path
}

// executed gives a program that is executed, and the directories that it is in, the names that they
// were given. A script is a program too: its interpreter is the value, and the script the target.
func (b *Builder) executed(e *schema.KernelEvent) error {
	script := e.Target
	if script != "" && script[0] != '/' {
		script = path.Join(e.Cwd, script)
	}
	for _, p := range []string{fixedPath(e.Value, e.PID), fixedPath(script, e.PID)} {
		for i := len(p); i > 0 && len(b.temp) > 0; i = strings.LastIndexByte(p[:i], '/') {
			if m, ok := b.temp[p[:i]]; ok && !m.sure {
				if err := b.decide(p[:i], ""); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// put adds the path s, whose end from at on has been settled. gone says that the rest
// may be something that was there before.
func (b *Builder) put(s string, at int, gone bool) error {
	for {
		root, m, ok := b.find(s[:max(at, 0)])
		base := m.base
		if gone {
			if was, name, is := innermost(b.past, s[:max(at, 0)], true); is && len(was) > len(root) {
				root, base, ok, m = was, name, true, made{sure: true}
			}
		}
		if !ok {
			return b.paths.add(b.clean(byName(s, 0, at)))
		}
		s = byName(s, len(root), at)
		if !m.sure && b.held == maxHeld {
			if err := b.decide(root, ""); err != nil {
				return err
			}
			_, base = cutLast(root) // it has the name that it was given
		} else if !m.sure {
			if m.held == nil {
				m.held = make(map[string]struct{})
				b.temp[root] = m
			}
			if _, ok := m.held[s]; !ok {
				m.held[strings.Clone(s)] = struct{}{} // s may be part of a whole line
				b.held++
			}
			return nil
		}
		dir, _ := cutLast(root)
		s, at = dir+base+s[len(root):], len(dir)-1
	}
}

// tries reports whether e may be a part of Python's try of a directory.
func (m *made) tries(e *schema.KernelEvent) bool {
	return m.maker == e.ExecID &&
		(e.Kind == schema.KindOpen || e.Kind == schema.KindWrite || e.Kind == schema.KindUnlink)
}

// gone notes that a path does not exist any more.
func (b *Builder) gone(path string) error {
	m, ok := b.temp[path]
	if !ok {
		return nil
	}
	if len(b.past) < maxMade {
		b.past[path] = m.base
	}
	return b.decide(path, m.base)
}

// decide adds what waits for root, and forgets root. base is the last part of root in the surface; "" keeps its own.
func (b *Builder) decide(root, base string) error {
	dir, own := cutLast(root)
	if base == "" {
		base = own
	}
	held := b.temp[root].held
	delete(b.temp, root)
	b.held -= len(held)
	for h := range held {
		if err := b.put(dir+base+h[len(root):], len(dir)-1, true); err != nil {
			return err
		}
	}
	return nil
}

// decideAll adds what still waits: its files exist at the end. Files in a made directory come before the directory.
func (b *Builder) decideAll() error {
	byLength := func(a, c string) int { return len(c) - len(a) }
	for _, path := range slices.SortedFunc(maps.Keys(b.temp), byLength) {
		base := ""
		if m := b.temp[path]; m.sure {
			base = m.base
		}
		if err := b.decide(path, base); err != nil {
			return err
		}
	}
	return nil
}

// hear remembers the ends of the words in a program's arguments: a name that occurs there before it is made is not
// random, unless it is the name of another made file.
func (b *Builder) hear(argv []string) {
	for _, arg := range argv {
		for start, end := range unique(arg, true) {
			b.word(arg[start:end])
		}
		for _, word := range strings.FieldsFunc(arg, func(r rune) bool { return !strings.ContainsRune(alnum, r) }) {
			if len(word) >= 6 {
				b.word(word[len(word)-6:])
			}
		}
	}
}

func (b *Builder) word(piece string) {
	if _, ok := b.pieces[piece]; !ok && len(b.words) < maxWords {
		b.words[strings.Clone(piece)] = struct{}{} // it is part of a whole line
	}
}

// madePiece notes the random piece of the name of a made file.
func (b *Builder) madePiece(piece string) {
	if piece != "" && len(b.pieces) < maxWords {
		b.pieces[strings.Clone(piece)] = struct{}{}
	}
}

func (b *Builder) spelled(piece string) bool {
	_, ok := b.words[piece]
	return ok
}

// randomPiece is the end of the piece of base that is <random> in name, "" if none is.
func randomPiece(base, name string) string {
	const random = "<random>"
	i := strings.LastIndex(name, random)
	if i < 0 {
		return ""
	}
	end := i + len(random) + len(base) - len(name)
	return base[max(end-6, 0):max(end, 0)]
}

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

// anyPort replaces the port of an endpoint by <ephemeral>.
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

// The lists of capability-surface.json.
const (
	listPaths     = "filesystem_paths"
	listEndpoints = "network_endpoints"
	listExecs     = "process_execs"
	listTools     = "mcp_tools"
	listDecisions = "policy_decisions"
)

// listRoom bounds the bytes of each list in the document. Together they are less than the 64 MiB that readers accept
// (schema/SPEC.md).
var listRoom = map[string]int64{
	listPaths: 40 << 20, listEndpoints: 6 << 20, listExecs: 6 << 20, listTools: 4 << 20, listDecisions: 4 << 20,
}

// WriteTo streams capability-surface.json in the form of [schema.Document]. A list that is
// too long lacks its last members; Reasons says how many.
func (b *Builder) WriteTo(w io.Writer) (int64, error) {
	if err := b.decideAll(); err != nil {
		return 0, err
	}
	c := &countWriter{w: bufio.NewWriterSize(w, 64<<10)}
	c.text("{\n  \"schema\": ")
	c.value(schema.CapabilitySurfaceV0)
	c.text(",\n  \"run_id\": ")
	c.value(b.runID)
	b.omitted = make(map[string]uint64)
	for _, l := range []struct {
		key    string
		values iter.Seq2[string, error]
	}{
		{listPaths, b.paths.all()}, {listEndpoints, b.endpoints()}, {listExecs, b.execs.all()},
		{listTools, ascending(b.tools)}, {listDecisions, ascending(b.decisions)},
	} {
		if n := c.list(l.key, l.values, b.room[l.key]); n > 0 {
			b.omitted[l.key] = n
		}
	}
	c.text("\n}\n")
	if c.err == nil {
		c.err = c.w.Flush()
	}
	return c.n, c.err
}

// Reasons says, after WriteTo, which lists of the document are not whole.
func (b *Builder) Reasons() []schema.Reason {
	var reasons []schema.Reason
	for _, list := range slices.Sorted(maps.Keys(b.omitted)) {
		reasons = append(reasons, schema.Reason{
			Subject: "surface", Code: "surface_cut",
			Message: fmt.Sprintf("%s is over %d MiB, so the last %d of its sorted entries are left out; "+
				"the layers have them", list, b.room[list]>>20, b.omitted[list]),
		})
	}
	return reasons
}

// EndpointsOmitted reports, after WriteTo, whether there was no room for some endpoints.
func (b *Builder) EndpointsOmitted() bool { return b.omitted[listEndpoints] > 0 }

func ascending(m map[string]struct{}) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, v := range slices.Sorted(maps.Keys(m)) {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// countWriter writes JSON by hand and keeps the first error.
type countWriter struct {
	w   *bufio.Writer
	buf bytes.Buffer
	n   int64
	err error
}

func (c *countWriter) text(s string) {
	if c.err == nil {
		var n int
		n, c.err = c.w.WriteString(s)
		c.n += int64(n)
	}
}

func (c *countWriter) write(b []byte) {
	if c.err == nil {
		var n int
		n, c.err = c.w.Write(b)
		c.n += int64(n)
	}
}

func (c *countWriter) value(s string) { c.write(c.encode(s)) }

// encode returns a string as JSON, valid until the next call.
func (c *countWriter) encode(s string) []byte {
	c.buf.Reset()
	if asItIs(s) {
		c.buf.WriteByte('"')
		c.buf.WriteString(s)
		c.buf.WriteByte('"')
		return c.buf.Bytes()
	}
	line, err := schema.Line(s)
	if err != nil && c.err == nil {
		c.err = err
	}
	return bytes.TrimSuffix(line, []byte("\n"))
}

// asItIs reports whether a string needs no escapes in JSON.
func asItIs(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// list writes values as long as there is room, and returns how many it left out.
func (c *countWriter) list(key string, values iter.Seq2[string, error], room int64) (omitted uint64) {
	c.text(",\n  \"" + key + "\": [")
	sep, end := "\n    ", c.n+room
	for v, err := range values {
		if err != nil && c.err == nil {
			c.err = err
		}
		if c.err != nil {
			return omitted
		}
		text := c.encode(v)
		if omitted > 0 || c.n+int64(len(sep)+len(text)) > end {
			omitted++
			continue
		}
		c.text(sep)
		c.write(text)
		sep = ",\n    "
	}
	if sep != "\n    " {
		c.text("\n  ")
	}
	c.text("]")
	return omitted
}
