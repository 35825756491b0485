package vmtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// Boot runs a machine with a Debian kernel of a series and returns what it printed. An
// error fails the test. If the host lacks something that is needed, the test is skipped.
func Boot(t *testing.T, m Machine, series string, timeout time.Duration) (output string) {
	t.Helper()
	layertest.Host(t)
	if m.Arch == "" {
		m.Arch = runtime.GOARCH
	}
	var err error
	if m.Kernel, err = Kernel(series, m.Arch); err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		output, err = m.Run(ctx)
	}
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return output
}

// Suite builds the test binary of the package in the working directory and boots a machine
// that has it as /suite. m.Script has to run it with -test.v. The test fails if fewer than
// least tests passed.
func Suite(t *testing.T, m Machine, series string, timeout time.Duration, least int) (output string) {
	t.Helper()
	layertest.Host(t)
	binary := filepath.Join(t.TempDir(), "suite")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if m.Arch != "" {
		build.Env = append(build.Env, "GOARCH="+m.Arch)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	if m.Files == nil {
		m.Files = map[string]string{}
	}
	m.Files["/suite"] = binary
	output = Boot(t, m, series, timeout)
	passed := strings.Count(output, "\n--- PASS: ")
	t.Logf("%d passed, %d skipped", passed, strings.Count(output, "\n--- SKIP: "))
	if passed < least {
		t.Fatalf("at least %d should pass\n%s", least, output)
	}
	return output
}
