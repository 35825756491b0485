// Package kernel is the user side of the eBPF observer: it loads, attaches and
// self-tests the programs of package bpf, decodes and accounts for what they
// report, and says what could not be seen.
package kernel
