// Package render shows what bundles say: to a person on a terminal ([Show], [Follow], [Play]), as one
// HTML file ([WriteHTML]), and in the formats of other tools ([Formats]).
//
// Everything in a bundle may come from a hostile agent. So names and texts are escaped for each format, and only
// control sequences that draw are replayed from a terminal recording.
//
// [Show] and [Follow] print a run in the order of time: its turns and tool calls, what its processes did
// during each, and their output. A repeated line is printed once, with a count. Follow reads the spool of a
// live run.
//
// The HTML file needs no network and no server. Its content security policy allows only the scripts and styles that
// are in it, by their digests. The front end is the scripts in web, which share one scope. web/vendor has the
// terminal emulator, from the npm package @xterm/headless.
//
// The formats of other tools are traces for OpenTelemetry and Perfetto, judgements as JUnit, CTRF and SARIF, and
// an in-toto statement. None holds everything in a bundle: each returns sentences that count what it leaves out.
package render
