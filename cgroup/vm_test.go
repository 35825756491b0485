//go:build linux && amd64

package cgroup_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/vmtest"
)

// vmForms are the ways to run this test binary on a host with cgroup2 alone.
const vmForms = `
export PATH=/bin CGROUP_TEST_INNER=vm TMPDIR=/tmp
C=/sys/fs/cgroup
mount -t cgroup2 none $C || exit 1
suite() { /suite -test.short -test.v "$@"; }
form() { echo "form: $1"; }

form root
CGROUP_TEST_WANT="unified memory pids cpu io" suite || exit 1

# As systemd sets up user@.service: the user owns a subtree whose controllers
# are handed on to units beside ours; our unit is not ours alone.
form unit
for k in memory pids cpu; do echo +$k >$C/cgroup.subtree_control; done
mkdir $C/user
for k in memory pids cpu; do echo +$k >$C/user/cgroup.subtree_control; done
mkdir $C/user/unit
chown -R nobody $C/user
sleep 1000 &
echo $! >$C/user/unit/cgroup.procs
sh -c 'echo $$ >$0/user/unit/cgroup.procs; CGROUP_TEST_WANT="unified memory pids cpu -io" exec /suite role=nobody /suite -test.short -test.v' $C || exit 1
kill $!

# As systemd-run --scope -p Delegate=yes does, or a container: alone in it.
form scope
mkdir $C/scope
chown nobody $C/scope $C/scope/cgroup.procs $C/scope/cgroup.subtree_control $C/scope/cgroup.threads
sh -c 'echo $$ >$0/scope/cgroup.procs; CGROUP_TEST_WANT="unified memory pids cpu -io" exec /suite role=nobody /suite -test.short -test.v -test.run "Test(Host|Child|Pids|Memory|Fork|CPU)"' $C || exit 1
[ "$(cat $C/scope/cgroup.subtree_control)" = "" ] || { echo "scope: controllers are still on"; exit 1; }
[ -z "$(ls -d $C/scope/*/ 2>/dev/null)" ] || { echo "scope: cgroups are left: $(ls -d $C/scope/*/)"; exit 1; }

# A service with a limit of its own, and not ours alone: what it sets holds.
form service
mkdir $C/user/service
echo 500 >$C/user/service/pids.max
chown -R nobody $C/user/service
sleep 1000 &
echo $! >$C/user/service/cgroup.procs
sh -c 'echo $$ >$0/user/service/cgroup.procs; CGROUP_TEST_WANT="unified -memory -pids -cpu -io" exec /suite role=nobody /suite -test.short -test.v -test.run "Test(Host|Child|Daemon|Pids|Memory)"' $C || exit 1
kill $!
form end
`

// TestUnified runs the suite on kernels of Debian with cgroup2 alone.
func TestUnified(t *testing.T) {
	if os.Getenv("CGROUP_TEST_INNER") != "" {
		t.Skip("this is the inner run")
	}
	for _, series := range []string{"6.1", "6.12"} {
		t.Run("Linux "+series, func(t *testing.T) {
			if series != "6.1" {
				layertest.Night(t)
			}
			out := vmtest.Suite(t, vmtest.Machine{Script: vmForms}, series, 900*time.Second, 30)
			if !strings.Contains(out, "form: end") {
				t.Fatal(out)
			}
		})
	}
}
