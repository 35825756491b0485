// Package serve records runs of agents that somebody else started. An agent opens a
// run through the gateway, reports its calls and turns, and completes it. The run
// leaves a bundle like any other. The bundle says that no process, file or connection
// of the run was observed.
//
// The lifecycle, the account of tool calls, the surface and the documents are written
// by the same code as in package runner. While a run is open, its turns can be read in
// a live record. That is the file in the spool, under another name.
package serve
