// Package harbor knows what Harbor lays down about its tasks and trials: what follows from a task's folder for an
// evaluation, and what a trial, which somebody else runs with docker compose, says of itself. [Find] finds the trial
// that a container is the environment of, and [Phases] says which of the sessions in it are the agent's.
//
// A session is what joined the container from outside: its first process, and each docker exec. Who is inside cannot
// make one, so an agent cannot pretend to be the verifier.
package harbor
