//go:build linux

// Package suite runs tasks × agents × attempts, and keeps a verdict for each that a verified bundle backs.
//
// A [File] says what to run. Each attempt of an agent at a task is made in one or more tries, since the machine may
// fail: a try is one run of assay-run, in a copy of the task's workspace, with a number and a random token.
//
// The directory of a suite is the only truth about it: its ledger (package ledger), and the bundles below attempts. A
// [Coordinator] alone writes there. It opens tries, publishes them, fetches and verifies their bundles, and decides.
// A [Worker] takes tries, runs them, and reports. What is between them (package carrier) only carries: when it is lost
// whole, work is repeated, and no verdict changes.
package suite
