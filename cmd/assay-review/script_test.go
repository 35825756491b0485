package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/.ci/recordertest"
)

func TestMain(m *testing.M) {
	testscript.Main(leaktest.Of(recordertest.M{M: m}), map[string]func(){"assay-review": main})
}

// TestScripts runs every script of testdata/script, on bundles that assay-run
// itself records there. Condition [kernel]: a kernel layer can be recorded.
func TestScripts(t *testing.T) {
	dir, err := recordertest.Build()
	if err != nil {
		t.Fatal(err)
	}
	kernel := sync.OnceValue(func() bool { return recordertest.Observes(t, dir) })
	testscript.Run(t, testscript.Params{
		Dir:         filepath.Join("testdata", "script"),
		WorkdirRoot: t.TempDir(), // goes also when only one script runs
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".state"))
			action, err := filepath.Abs(filepath.Join("..", "..", ".ci", "action"))
			env.Setenv("ACTION", action)
			env.Setenv("LIVE", fmt.Sprintf("live_%d", os.Getpid()))
			env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+dir)
			return err
		},
		Condition: func(cond string) (bool, error) {
			if cond == "kernel" {
				return kernel(), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": recordertest.Status,
			"pack":   recordertest.Pack,
		},
	})
}
