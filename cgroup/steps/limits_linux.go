//go:build amd64 || arm64

package steps

// What the entry point says before it refuses to start: a Go runtime that lacks descriptors, memory
// or threads dies with
// pages of its own, and exit status 2.
//
//lint:file-ignore U1000 the entry point in assembly uses these
var (
	fewFiles = "assay-run: error: this process may open fewer than 16 files\n" +
		"assay-run: hint: raise the limit: ulimit -n 1024\n"
	littleSpace = "assay-run: error: this process may have less than 960 MiB of address space, most of which " +
		"Go only reserves\n" +
		"assay-run: hint: raise the limit: ulimit -v unlimited; --memory limits what a command may use\n"
	littleData = "assay-run: error: this process may have less than 96 MiB of data\n" +
		"assay-run: hint: raise the limit: ulimit -d unlimited; --memory limits what a command may use\n"
	fewProcesses = "assay-run: error: this user may have fewer than 32 processes and threads\n" +
		"assay-run: hint: raise the limit: ulimit -u 1024; --pids limits what a command may start\n"
)
