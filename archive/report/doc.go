// Package report writes one HTML file about one bundle, two, or many: swimlanes
// in time, a process tree, the terminal recording, and what the health means in
// words.
//
// The file needs no network and no server. Its content security policy allows
// the scripts and styles that are in it, by their digests, and nothing else;
// what comes from evidence is data in it, with control characters and marks
// that turn text around escaped, and is shown as text.
//
// The front end is the plain scripts in web, in one scope, in the order of
// scripts; web/vendor has the terminal emulator as the npm package
// @xterm/headless publishes it.
package report
