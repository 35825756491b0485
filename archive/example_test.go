package archive_test

import (
	"context"
	"fmt"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// Verify checks a bundle from the first to the last byte. What is wrong is in
// the report; nothing in a bundle is believed before.
func ExampleVerify() {
	report, err := archive.Verify(context.Background(), "testdata/vectors/sample.tar.gz")
	if err != nil {
		fmt.Println(err) // the context's
		return
	}
	for _, problem := range report.Problems {
		fmt.Println(problem.Error())
	}
	fmt.Println(report.OK(), report.Members, "members")
	// Output: true 14 members
}

// A Reader gives one layer's lines, or all documents, and checks the digest of
// whatever it reads.
func ExampleOpen() {
	ctx := context.Background()
	bundle, err := archive.Open("testdata/vectors/sample.tar.gz")
	if err != nil {
		fmt.Println(err)
		return
	}
	documents, err := bundle.Documents(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(documents.Run.Command, documents.Result.Outcome, documents.Health.KernelLayer)
	lines := 0
	for _, err := range bundle.Lines(ctx, schema.PolicyPath) {
		if err != nil {
			fmt.Println(err)
			return
		}
		lines++
	}
	fmt.Println("policy lines:", lines)
	// Output:
	// [/bin/true] exited partial_ringbuf_drops
	// policy lines: 1
}
