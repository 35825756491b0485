// Package render shows what bundles say: to a person on a terminal ([Show], [Follow], [Play]), as one
// HTML file ([WriteHTML]), and in the formats of other tools ([Formats]).
//
// Everything in a bundle may come from a hostile agent. So names and texts are escaped for
// each form, and what a recording of a terminal does besides drawing is left out.
//
// [Show] and [Follow] print a run in the order of time: its turns and tool calls, what its processes did
// during each, and their output. A repeated line is printed once, with a count. Follow reads the spool of a
// live run.
//
// The HTML file needs no network and no server. Its content security policy allows
// the scripts and styles that are in it, by their digests, and nothing else. The front end is the plain
// scripts in web, in one scope, in the order of scripts; web/vendor has the terminal emulator as the npm package
// @xterm/headless publishes it.
//
// The formats of other tools are traces for OpenTelemetry and Perfetto, judgements as JUnit, CTRF and SARIF, and
// an in-toto statement. None holds all of a bundle: each returns sentences that count what it leaves out.
package render
