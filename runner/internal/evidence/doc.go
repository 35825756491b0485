// Package evidence writes what every recorded run leaves, whoever started the agent: the lifecycle events, the tool
// calls, the capability surface, and the final documents. Runs of a command (package runner) and runs that clients
// report (package runner/serve) both use it, so both follow the same rules.
//
// A [Log] belongs to one run. Its clock starts with run_started, the first event passed to [Log.Event]. [Log.Finish]
// ends the log and writes the documents.
package evidence
