package runner_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/assay-run/assay-run/archive"
	_ "github.com/assay-run/assay-run/cgroup/reexec" // the program is its own helper
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema/specfile"
)

// A run is recorded into a spool, and the spool is sealed into a bundle.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "run-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	spec := specfile.New("sh", "-c", "echo hello; exit 3")
	record, err := runner.Record(spec, time.Now(), "example", filepath.Join(dir, "run.tar.gz"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	spool, err := archive.CreateSpool(filepath.Join(dir, "spool"), record)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer spool.Close()
	result, err := runner.Run(ctx, spec,
		runner.Options{Recorder: spool, ScratchDir: spool.Dir(), Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		fmt.Println("evidence is missing:", err)
	}
	sealed, err := spool.Seal(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := archive.Verify(ctx, sealed.Path)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Outcome, *result.ExitCode, report.OK())
	// Output:
	// hello
	// exited 3 true
}
