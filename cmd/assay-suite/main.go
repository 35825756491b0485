//go:build linux

// Command assay-suite lets each agent try each task several times. Each try is a run of assay-run with a bundle of its
// own, and each attempt gets a verdict. It is a program of its own so that assay-run does not link NATS.
package main

import "os"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
