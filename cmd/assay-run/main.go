// Command assay-run runs a command in its own cgroup, records what it did, and
// seals the evidence into one bundle that anyone can verify offline.
package main

import "os"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
