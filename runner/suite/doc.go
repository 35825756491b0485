//go:build linux

// Package suite lets each agent try each task several times, and keeps a verdict for each attempt. A verified bundle
// backs each verdict.
//
// A [File] says what to run. An attempt of an agent at a task takes one or more tries, since the machine may fail. A
// try is one run of assay-run in a copy of the task's workspace. It has a number, and a random token that only its
// worker and the coordinator know.
//
// The suite's directory is the only source of truth: its ledger (package ledger), and the bundles in its directory
// attempts. Only the [Coordinator] writes there. It opens tries, publishes them, fetches and verifies their bundles,
// and decides. A [Worker] takes tries, runs them, and reports how they ended. NATS is between the two (package
// carrier). If it loses everything, some work is repeated, but no verdict changes.
package suite
