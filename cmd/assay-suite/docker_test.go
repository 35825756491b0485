//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/recordertest"
)

// TestDockerScripts runs the scripts of testdata/docker, each with a Docker daemon of its own. Its image assay-test has
// busybox alone.
func TestDockerScripts(t *testing.T) {
	layertest.Host(t)
	scripts, err := filepath.Glob(filepath.Join("testdata", "docker", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) { dockerScript(t, script) })
	}
}

func dockerScript(t *testing.T, script string) {
	e := enginetest.Docker(t)
	dir, err := recordertest.Build()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files:       []string{script},
		WorkdirRoot: t.TempDir(),
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+dir)
			for _, kv := range e.Env {
				key, value, _ := strings.Cut(kv, "=")
				env.Setenv(key, value)
			}
			return nil
		},
		Condition: func(string) (bool, error) { return recordertest.Observes(t, dir), nil }, // kernel is the only one
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"status": recordertest.Status},
	})
}
