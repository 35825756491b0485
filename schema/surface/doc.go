// Package surface makes the capability surface of a run: what the program itself
// touched, as sorted sets.
//
// A [Builder] takes the events of the kernel layer and the tools and decisions of
// the policy layer, and writes capability-surface.json. [Classify] distinguishes what
// the program itself did from the noise of starting it (class.go has the rules). Only
// the former is listed. Names that differ by chance between two runs of the
// same work, such as process ids and the names of temporary files, are normalized
// (normalize.go has the rules), so that equal work gives equal bytes.
//
// A live run, recovery, serve and the archive use the same Builder. Memory is bounded;
// beyond the bound, sets spill to disk.
package surface
