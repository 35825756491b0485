//go:build linux && amd64

package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/vmtest"
)

// TestLockdown runs the real command on a kernel that is locked down for
// confidentiality, where no program may read kernel memory. eBPF is then absent, and
// without a choice the run is observed by seccomp notification; both say why.
func TestLockdown(t *testing.T) {
	layertest.Night(t)
	bootsKernels(t)
	binary := filepath.Join(t.TempDir(), "assay-run")
	build := exec.Command("go", "build", "-o", binary, "../cmd/assay-run")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	m := vmtest.Machine{Cmdline: "lsm=lockdown,capability lockdown=confidentiality",
		Files: map[string]string{"/assay-run": binary}, Script: `
export HOME=/tmp NO_COLOR=1
mount -t cgroup2 none /sys/fs/cgroup || exit 1
cd /tmp
/assay-run --kernel require -o no.tar.gz -- touch started </dev/null >no 2>&1
echo "require: $?, started: $(ls started 2>/dev/null)"
cat no
for kernel in ebpf auto; do
	rm -f started
	/assay-run -q --kernel $kernel -o $kernel.tar.gz -- touch started </dev/null >out 2>&1
	echo "$kernel: $?, started: $(ls started 2>/dev/null)"
	cat out
	/assay-run verify $kernel.tar.gz
	tar xzOf $kernel.tar.gz observation-health.json >health
	grep -E '"(kernel_layer|kernel_state|code|remedy)":' health | sed "s/^ */$kernel: /"
done
`}
	out := vmtest.Boot(t, m, "6.12", 900*time.Second)
	for _, want := range []string{
		"require: 125, started: \n",
		"ebpf: 0, started: started\n", "ebpf.tar.gz: ok\n",
		`ebpf: "kernel_layer": "absent"`, `ebpf: "code": "lockdown"`,
		`ebpf: "remedy": "boot with lockdown=integrity or none"`,
		"auto: 0, started: started\n", "auto.tar.gz: ok\n",
		`auto: "kernel_state": "partial"`, `auto: "code": "lockdown"`, `auto: "code": "seccomp_notify"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing from:\n%s", want, out)
		}
	}
	if strings.Contains(out, `ebpf: "code": "seccomp_notify"`) {
		t.Errorf("--kernel ebpf used another way:\n%s", out)
	}
}
