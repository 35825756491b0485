//go:build linux && amd64

package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/vmtest"
)

// TestLockdown runs the real command on a kernel that is locked down for
// confidentiality, where no program may read kernel memory.
func TestLockdown(t *testing.T) {
	bootsKernels(t)
	binary := filepath.Join(t.TempDir(), "assay-run")
	build := exec.Command("go", "build", "-o", binary, "../cmd/assay-run")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	m := vmtest.Machine{Cmdline: "lsm=lockdown,capability lockdown=confidentiality", Files: map[string]string{"/assay-run": binary}, Script: `
export HOME=/tmp
mount -t cgroup2 none /sys/fs/cgroup || exit 1
cd /tmp
/assay-run --kernel require -o no.tar.gz -- touch started </dev/null >no 2>&1
echo "require: $?, started: $(ls started 2>/dev/null)"
/assay-run -q -o yes.tar.gz -- touch started </dev/null >yes 2>&1
echo "auto: $?, started: $(ls started 2>/dev/null)"
cat no yes
/assay-run verify yes.tar.gz
tar xzOf yes.tar.gz observation-health.json
`}
	out := vmtest.Boot(t, m, "6.12", 100*time.Second)
	for _, want := range []string{"require: 125, started: \n", "auto: 0, started: started\n", "yes.tar.gz: ok\n",
		`"kernel_layer": "absent"`, `"code": "lockdown"`, `"remedy": "boot with lockdown=integrity or none"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing from:\n%s", want, out)
		}
	}
}
