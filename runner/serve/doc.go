// Package serve records runs of agents that assay-run did not start. An agent opens a run through the gateway,
// reports its calls and turns, and completes it. The run leaves a bundle like any other. The bundle says that no
// process, file or connection of the run was observed.
//
// The lifecycle, the summary of tool calls, the surface and the documents are written by the same code as in package
// runner. While a run is open, its turns can be read in a live record, which is the spool's file under another name.
package serve
