package facts

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Network says in which network namespace a process acted. Each namespace has its own 127.0.0.1 and its own abstract
// sockets such as unix:@x.
type Network string

const (
	OwnNetwork     Network = ""        // that of the run's command, which the sandbox may have made
	OtherNetwork   Network = "other"   // made by the process or an ancestor
	UnknownNetwork Network = "unknown" // an existing one that was entered, perhaps the command's own
)

// Mark returns the words to show after an endpoint; empty for the command's own network.
func (n Network) Mark() string {
	switch n {
	case OtherNetwork:
		return " (in another network namespace)"
	case UnknownNetwork:
		return " (perhaps in another network namespace)"
	}
	return ""
}

// cloneNewNet is CLONE_NEWNET.
const cloneNewNet = 0x40000000

// Networks tracks which network namespace each task is in, by the events of the calls that make and enter namespaces.
// The result is UnknownNetwork where the events do not say which thread forked, or which namespace a descriptor
// refers to. The zero value is ready to use. It is safe for concurrent use while nothing is added.
type Networks struct {
	at   map[uint64]*instanceNetworks // by exec_id; processes that never left and have no threads are left out
	full bool                         // at reached its limit: nothing is known of processes that are not in it
	// begun is a ring of the last processes that began. The event of a clone that made a namespace comes after
	// the events of its child.
	begun     [256]begun
	next      int
	home      string // the container of the first process
	homeKnown bool
}

type begun struct {
	exec, parent uint64
	pid          uint32
	fork         bool
	tns          int64
}

// instanceNetworks is what is known of a process between two execs.
type instanceNetworks struct {
	threads int                  // without the first
	forking bool                 // its next child may be in a new namespace
	tasks   map[uint32][]entered // by thread id; tasks that never left are not in it
}

// entered says in which network a task has been since tns.
type entered struct {
	tns int64
	in  Network
}

// Add follows an event. Events must come in order.
func (n *Networks) Add(e *schema.KernelEvent) {
	if e.ExecID == 0 || e.Repeat {
		return
	}
	switch e.Kind {
	case schema.KindFork, schema.KindExec, schema.KindJoin:
		n.begin(e)
	case schema.KindThread:
		n.thread(e)
	case schema.KindNamespace:
		n.namespace(e)
	}
}

func (n *Networks) begin(e *schema.KernelEvent) {
	in := OwnNetwork
	if from := n.at[e.ParentExecID]; from != nil {
		in = from.child(e.TNS)
		if e.Kind == schema.KindFork && from.forking {
			in, from.forking = UnknownNetwork, false
		}
	} else if n.full {
		in = UnknownNetwork
	}
	if !n.homeKnown {
		n.home, n.homeKnown = e.ContainerID, true
	}
	if e.Kind == schema.KindJoin && e.ContainerID != "" && e.ContainerID != n.home {
		in = UnknownNetwork
	}
	n.begun[n.next%len(n.begun)] = begun{e.ExecID, e.ParentExecID, e.PID, e.Kind == schema.KindFork, e.TNS}
	n.next++
	n.enter(e.ExecID, e.PID, e.TNS, in)
}

func (n *Networks) thread(e *schema.KernelEvent) {
	in := OwnNetwork
	if from := n.at[e.ExecID]; from != nil {
		in = from.child(e.TNS)
	}
	if i := n.instance(e.ExecID); i != nil && i.tasks[task(e)] == nil { // otherwise its id was reused
		i.threads++
	}
	n.enter(e.ExecID, task(e), e.TNS, in)
}

func (n *Networks) namespace(e *schema.KernelEvent) {
	// Before the command starts, the runner makes the command's own network.
	if e.Failed() || e.Class == schema.ClassRunner {
		return
	}
	makes := e.Flags&cloneNewNet != 0
	switch {
	case e.Call == "setns" && (makes || e.Flags == 0): // 0 allows any type of namespace
		n.enter(e.ExecID, task(e), e.TNS, UnknownNetwork)
	case e.Call == "setns" || !makes:
	case e.Call == "unshare" && !e.HasResult:
		n.enter(e.ExecID, task(e), e.TNS, UnknownNetwork)
	case e.Call == "unshare":
		n.enter(e.ExecID, task(e), e.TNS, OtherNetwork)
	case !e.HasResult:
		if i := n.instance(e.ExecID); i != nil {
			i.forking = true
		}
	default:
		n.cloned(e)
	}
}

// cloned puts the child of a clone, and what the child has already started, in another network. The event's result is
// the child's id in the caller's pid namespace, which may differ from the id in the child's events: then the last
// child counts.
func (n *Networks) cloned(e *schema.KernelEvent) {
	var child *begun
	for back := 1; back <= min(n.next, len(n.begun)); back++ {
		b := &n.begun[(n.next-back)%len(n.begun)]
		if !b.fork || b.parent != e.ExecID {
			continue
		}
		if child == nil || int64(b.pid) == e.Result {
			child = b
		}
		if int64(b.pid) == e.Result {
			break
		}
	}
	if child == nil {
		return
	}
	descend := []uint64{child.exec}
	for i := max(0, n.next-len(n.begun)); i < n.next; i++ {
		b := &n.begun[i%len(n.begun)]
		if b.exec != child.exec {
			if !slices.Contains(descend, b.parent) {
				continue
			}
			descend = append(descend, b.exec)
		}
		n.enter(b.exec, b.pid, b.tns, OtherNetwork)
	}
}

// enter notes that a task is in a network from tns on.
func (n *Networks) enter(exec uint64, tid uint32, tns int64, in Network) {
	if in == OwnNetwork && (n.at[exec] == nil || n.at[exec].tasks[tid] == nil) {
		return
	}
	i := n.instance(exec)
	if i == nil {
		return
	}
	if i.tasks == nil {
		i.tasks = map[uint32][]entered{}
	}
	was := i.tasks[tid]
	if len(was) > 0 && was[len(was)-1].in == in {
		return
	}
	i.tasks[tid] = append(was, entered{tns, in})
}

// instance returns the entry of a process, and makes it if there is none; nil at the limit.
func (n *Networks) instance(exec uint64) *instanceNetworks {
	i := n.at[exec]
	if i == nil && len(n.at) >= MaxProcesses {
		n.full = true
	} else if i == nil {
		if n.at == nil {
			n.at = map[uint64]*instanceNetworks{}
		}
		i = &instanceNetworks{}
		n.at[exec] = i
	}
	return i
}

// child returns the network in which a child or a new thread begins, whichever task makes it.
func (i *instanceNetworks) child(tns int64) Network {
	all := map[Network]bool{}
	if len(i.tasks) < 1+i.threads {
		all[OwnNetwork] = true // some tasks never left
	}
	for _, was := range i.tasks {
		all[where(was, tns)] = true
	}
	if len(all) > 1 {
		return UnknownNetwork
	}
	for in := range all {
		return in
	}
	return OwnNetwork
}

// where returns the network of a task at a time.
func where(was []entered, tns int64) Network {
	for _, w := range slices.Backward(was) {
		if w.tns <= tns {
			return w.in
		}
	}
	return OwnNetwork
}

// Of returns the network of an event. It is OwnNetwork if the event is about nothing that belongs to a network.
func (n *Networks) Of(e *schema.KernelEvent) Network {
	if !inNetwork(e) || e.ExecID == 0 {
		return OwnNetwork
	}
	i := n.at[e.ExecID]
	switch {
	case i == nil && n.full:
		return UnknownNetwork
	case i == nil:
		return OwnNetwork
	}
	was := i.tasks[task(e)]
	if !e.Repeat {
		return where(was, e.TNS)
	}
	in := where(was, e.TFirstNS)
	if where(was, e.TLastNS) != in {
		return UnknownNetwork
	}
	return in
}

// inNetwork reports whether an event is about an endpoint that exists separately in each network namespace.
func inNetwork(e *schema.KernelEvent) bool {
	switch e.Kind {
	case schema.KindConnect, schema.KindConnectResult, schema.KindConnectBlocked, schema.KindBind, schema.KindListen,
		schema.KindAccept, schema.KindSendto, schema.KindForeignSocket, schema.KindInherited, schema.KindDNS,
		schema.KindTLS:
	default:
		return false
	}
	return slices.ContainsFunc([]string{e.Value, e.Local, e.Remote}, func(at string) bool {
		_, err := netip.ParseAddrPort(at)
		return err == nil || strings.HasPrefix(at, "unix:@")
	})
}

// task returns the id of the thread that acted.
func task(e *schema.KernelEvent) uint32 {
	if e.TID == 0 {
		return e.PID
	}
	return e.TID
}
