// Package specfile says what to run and how, as plain data: the command, its limits, its sandbox, and what is recorded.
// A [Spec] comes from flags and from a file; [Spec.Validate] finds what is wrong with it on every host. What a policy
// file, an evaluation file and an agent's recipe add to it is decided here, too. Package runner runs a Spec.
package specfile
