//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/.ci/recordertest"
)

func TestMain(m *testing.M) {
	testscript.Main(leaktest.Of(recordertest.M{M: m}), map[string]func(){"assay-suite": main, "nats-node": natsNode})
}

// TestScripts runs every script of testdata/script. The condition [kernel] says that a kernel layer can be recorded,
// [memory] that memory can be limited, [mount] that this user can mount, [userns] that user namespaces can be
// created, and [pip] that a new environment of Python has pip.
func TestScripts(t *testing.T) {
	dir, err := recordertest.Build()
	if err != nil {
		t.Fatal(err)
	}
	kernel := sync.OnceValue(func() bool { return recordertest.Observes(t, dir) })
	testscript.Run(t, testscript.Params{
		Dir:         filepath.Join("testdata", "script"),
		WorkdirRoot: t.TempDir(),
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+dir)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "host":
				return layertest.HostScripts(), nil
			case "kernel":
				return kernel(), nil
			case "memory":
				return recordertest.LimitsMemory(t, dir), nil
			case "mount":
				return exec.Command("unshare", "--mount", "true").Run() == nil, nil
			case "pip":
				return exec.Command("python3", "-c", "import ensurepip").Run() == nil, nil
			case "userns":
				return exec.Command("unshare", "-rm", "true").Run() == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": recordertest.Status},
	})
}

// TestEachProgramLinksWhatItNeeds checks that NATS is in this program alone, and SQLite in assay-review.
func TestEachProgramLinksWhatItNeeds(t *testing.T) {
	if _, err := os.Stat("../../go.mod"); err != nil {
		t.Skipf("the tests run without the module: %v", err)
	}
	only := map[string]string{"github.com/nats-io/": "assay-suite", "modernc.org/sqlite": "assay-review"}
	for _, program := range []string{"assay-run", "assay-review", "assay-suite"} {
		out, err := exec.Command("go", "list", "-deps", "../"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		for library, needs := range only {
			if strings.Contains(string(out), library) != (program == needs) {
				t.Errorf("%s links %s: %t", program, library, program != needs)
			}
		}
	}
}
