// Package evidence is what every recorded run leaves, whoever started the
// agent: the lifecycle events, the account of tool calls, the capability
// surface, and the closing documents. Runs of a command (package runner) and
// runs that only report (package runner/serve) write them through here, so
// that a reader finds the same claims made by the same rules.
//
// A [Log] belongs to one run. Its clock starts with run_started: [Log.Event] is
// called for that first. [Log.Finish] ends it and writes the documents.
package evidence
