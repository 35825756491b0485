// Command assay-review shows, queries, compares and judges bundles. assay-run starts
// it for "assay-run show" and other commands of reviewers. It is a separate program so
// that the libraries it needs do not slow down a run.
package main

import "os"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
