package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTheReviewersLibrariesAreNotInARun looks at what the program links: the
// reviewer is a program of its own so that a run starts fast and stays small.
func TestTheReviewersLibrariesAreNotInARun(t *testing.T) {
	if _, err := os.Stat("../../go.mod"); err != nil {
		t.Skipf("the tests run without the module: %v", err)
	}
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(out)) {
		for _, heavy := range []string{
			"cel.dev/", "github.com/antlr4-go/", "go.opentelemetry.io/", "google.golang.org/protobuf",
			"github.com/chromedp/", "modernc.org/",
			"github.com/assay-run/assay-run/archive/judge", "github.com/assay-run/assay-run/archive/render",
		} {
			if strings.HasPrefix(dep, heavy) {
				t.Errorf("assay-run links %s", strings.TrimSpace(dep))
			}
		}
	}
}
