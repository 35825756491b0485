package layer

import (
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Stats are a builder's counts besides [Builder.Counts].
type Stats struct {
	// Received is how many events were pushed, Added how many lines the
	// builder added for processes that it had not seen forking. What became of
	// them, each counted once however often it happened:
	// Received + Added = Written + Filtered + Dropped, after Close.
	Received, Added, Written, Filtered, Dropped uint64
	// Late is how many came after their place in time was written.
	Late uint64
	// Forks and Exits are processes, not threads; Threads are the others.
	// Joins came in otherwise, MissedExits ended unseen, Alive have not ended.
	// CheckForks are those of Forks that belong to an outcome contract's checks.
	Forks, CheckForks, Threads, Exits, Joins, MissedExits uint64
	Alive                                                 int
	// ByClass counts occurrences by class, agent included.
	ByClass [schema.NumClasses]uint64
	// Own counts the events of assay-run's own helpers in the run, of class runner.
	Own kernel.Tally
	// ByKind counts occurrences by kind.
	ByKind map[schema.KernelKind]uint64
	// UserPaths counts opens that succeeded with a path that could only be read
	// from the caller's memory, Cut lines with a path that was cut, CutArguments
	// those with arguments or environment names that were.
	UserPaths, Cut, CutArguments uint64
	// DoubtfulChanges counts changes of files that happened, and whose names are doubtful as they were read.
	DoubtfulChanges uint64
	// AgentsJoined counts tasks that were moved into the session, except those that set up a container.
	AgentsJoined uint64
	// DirectoryClaims counts events whose directory is claimed.
	DirectoryClaims uint64
	// Reach is what reached beyond the run.
	Reach Reach
	// DatagramPeers counts sendto events with a remote endpoint, Connects
	// connects to one (unix sockets are neither).
	DatagramPeers, Connects uint64
	// Resolved is how many names are known to belong to addresses;
	// ForgottenNames were beyond the bound.
	Resolved       int
	ForgottenNames uint64
	// Open are the calls of the command after which claims are open.
	Open []schema.OpenCall
	// UnnamedCgroups were removed before it was known whether they are containers.
	UnnamedCgroups uint64
	// Unparsed is how many DNS and TLS payloads could not be read.
	Unparsed uint64
}
