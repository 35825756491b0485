//go:build linux

// Command assay-suite runs tasks × agents × attempts, each as a run of assay-run with a bundle of its own, and keeps a
// verdict for each. It is a separate program so that what carries the tries between machines is in no run.
package main

import "os"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
