package layer

import "github.com/assay-run/assay-run/schema"

// Surface gathers the capability surface: what events of class agent touched,
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
//     ports are chance, and the bind says that they could come.
//   - process_execs: the executable of every successful exec.
//
// It is not safe for concurrent use.
type Surface struct {
	runID               string
	paths, hosts, execs *sortedSet
	tools, decisions    map[string]struct{}
	leftOut             [schema.NumClasses]uint64
	bound               portSet // of those from firstEphemeral on
	// temp holds, by exact path, what mkstemp made under a name that only its
	// making tells from a chosen one; see normalize.go.
	temp map[string]string

	room map[string]int64  // bytes of each list in the document
	cut  map[string]uint64 // by list: what WriteTo had no room for
}

// surfaceMemory is the default bound of each set in memory, in bytes.
const surfaceMemory = 4 << 20

// NewSurface returns an empty surface. What is over memory bytes in a set (0
// means 4 MiB) is kept in files in dir, with names that start with a dot, until
// Close; with an empty dir everything stays in memory.
func NewSurface(runID, dir string, memory int) *Surface {
	if memory <= 0 {
		memory = surfaceMemory
	}
	return &Surface{
		runID: runID, room: surfaceRoom, tools: make(map[string]struct{}), decisions: make(map[string]struct{}), temp: make(map[string]string),
		paths: newSortedSet(dir, ".surface-paths", memory),
		hosts: newSortedSet(dir, ".surface-hosts", memory),
		execs: newSortedSet(dir, ".surface-execs", memory),
	}
}

// AddTool adds to mcp_tools, AddDecision to policy_decisions ("allow:tool").
func (s *Surface) AddTool(name string)  { s.tools[name] = struct{}{} }
func (s *Surface) AddDecision(d string) { s.decisions[d] = struct{}{} }

// LeftOut is how many occurrences were of another class than agent, by class;
// classes without any are left out.
func (s *Surface) LeftOut() map[string]uint64 {
	m := make(map[string]uint64)
	for c, n := range s.leftOut {
		if n > 0 {
			m[schema.Class(c).String()] = n
		}
	}
	return m
}

// Close removes the files of the surface.
func (s *Surface) Close() {
	s.paths.close()
	s.hosts.close()
	s.execs.close()
}

// Add takes one event of the layer. Only a failure to spill is an error. It
// keeps nothing of e but its strings.
func (s *Surface) Add(e *schema.KernelEvent) error {
	if e.Class != schema.ClassAgent {
		s.leftOut[e.Class] += e.Times()
		return nil
	}
	switch e.Kind {
	case schema.KindOpen:
		if e.Creates() {
			s.remember(e)
		}
		return s.path(e, e.Value)
	case schema.KindUnlink:
		err := s.path(e, e.Value)
		if len(s.temp) > 0 && !e.Failed() {
			delete(s.temp, normalizePath(e.Value, e.PID))
		}
		return err
	case schema.KindRmdir, schema.KindMkdir, schema.KindMknod, schema.KindTruncate, schema.KindChmod,
		schema.KindChown, schema.KindSetxattr, schema.KindRemovexattr, schema.KindUtime, schema.KindWrite, schema.KindMmapShared, schema.KindFileBlocked,
		schema.KindExecFailed, schema.KindChroot, schema.KindIOUringOp, schema.KindSymlink:
		return s.path(e, e.Value)
	case schema.KindRename, schema.KindLink:
		if err := s.path(e, e.Value); err != nil {
			return err
		}
		return s.path(e, e.Target)
	case schema.KindExec:
		if e.Value == "" {
			return nil
		}
		return s.execs.add(nameless(normalizePath(e.Value, e.PID), e.Marks))
	case schema.KindConnect, schema.KindSendto, schema.KindConnectBlocked:
		return s.endpoint(e.Value, e)
	case schema.KindFlow:
		return s.nameOf(e.Value, e.Names...)
	case schema.KindTLS:
		return s.nameOf(e.Remote, e.Value)
	case schema.KindBind:
		return s.bind(e)
	case schema.KindListen:
		s.note(e.Value)
	}
	return nil
}

// path adds a path of an event.
func (s *Surface) path(e *schema.KernelEvent, p string) error {
	if p == "" {
		return nil
	}
	n := nameless(normalizePath(p, e.PID), e.Marks)
	if t, ok := s.temp[n]; ok {
		n = t
	}
	return s.paths.add(n)
}

// maxTemp bounds how many names of mkstemp are remembered at a time.
const maxTemp = 8192

// remember takes note of a file that mkstemp made.
func (s *Surface) remember(e *schema.KernelEvent) {
	if len(s.temp) >= maxTemp || e.Result < 0 {
		return
	}
	n := normalizePath(e.Value, e.PID)
	if t := madeByMkstemp(n, e.Flags, e.Mode); t != "" {
		s.temp[n] = t
	}
}
