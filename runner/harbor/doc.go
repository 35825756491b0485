// Package harbor knows the rules of Harbor for tasks and trials. [Evaluation] says what follows from a task's folder
// for an evaluation. [Find] finds the trial that a container belongs to, which somebody else runs with docker compose.
// A [Recording] follows such a trial, and [Phases] says which of its sessions are the agent's.
//
// A session is what joined the container from outside: its first process, and each docker exec. A process inside the
// container cannot begin a session, so an agent cannot pretend to be the verifier.
package harbor
