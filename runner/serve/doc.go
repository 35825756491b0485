// Package serve records runs of agents that somebody else started. An agent
// opens a run through the gateway, reports its calls and turns, and completes
// it; the run leaves a bundle like any other, which says that no process, file
// or connection of it was observed.
//
// It is a short story told with the parts of package runner: the lifecycle, the
// account of tool calls, the surface and the documents are written by the same
// code. While a run is open, its turns can be read in a live record, which is
// the spool's own file by another name.
package serve
