// Command assay-review is the reviewer's bench: it shows, queries, compares and
// judges bundles. assay-run runs it for "assay-run show" and its like, and the
// libraries that it needs cost a run nothing.
package main

import "os"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
