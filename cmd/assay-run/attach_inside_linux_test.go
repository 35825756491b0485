package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/schema"
)

// As docs/kubernetes/inside.yaml says: one container copies the static program, and
// another, without privileges, starts with it.
func TestCopiedIntoAContainer(t *testing.T) {
	e := enginetest.Docker(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e.Import("recorder", map[string]string{"bin/assay-run": exe})
	assay, bundles := t.TempDir(), t.TempDir()
	for _, dir := range []string{assay, bundles} { // as an emptyDir is
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	restricted := []string{"run", "--network=none", "--user=1000", "--read-only", "--cap-drop=ALL",
		"--security-opt=no-new-privileges"}
	e.Run(append(restricted, "--volume="+assay+":/assay", "recorder", "cp", "/bin/assay-run", "/assay/assay-run")...)
	e.Run(append(restricted, "--volume="+assay+":/assay:ro", "--volume="+bundles+":/bundles", "--tmpfs=/tmp",
		"--env=XDG_STATE_HOME=/bundles/state",
		enginetest.Image, "/assay/assay-run", "-o", "/bundles/agent.tar.gz", "--", "touch", "/tmp/made")...)
	b := attachedBundle(t, filepath.Join(bundles, "agent.tar.gz"))
	if b.result.Outcome != schema.OutcomeExited || *b.result.ExitCode != 0 || b.health.KernelLayer == schema.Complete {
		t.Errorf("%s, and the kernel layer is %s", b.result.Outcome, b.health.KernelLayer)
	}
}
