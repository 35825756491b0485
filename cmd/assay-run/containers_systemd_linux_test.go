//go:build amd64

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/vmtest"
)

// insideMachine runs containers of a Docker daemon with the systemd driver, in runs in a
// unit of systemd's. It prints what it does.
const insideMachine = `
set -e
mkdir -p /image/bin /image/tmp /w
cd /w
for name in sh cat touch sleep; do cp /bin/busybox /image/bin/$name; done
DOCKER_RAMDISK=1 dockerd --exec-opt native.cgroupdriver=systemd --iptables=false --ip6tables=false --bridge=none --storage-driver=vfs > log 2>&1 &
until docker version > /dev/null 2>&1; do sleep 0.2; done
echo "daemon $(cut -d' ' -f1 /proc/uptime)"
tar -C /image -cf - . | docker import - image > /dev/null

# having PATTERN: the processes with this in their arguments.
having() {
	for p in /proc/[0-9]*; do ! tr '\0' ' ' 2> /dev/null < $p/cmdline | grep -q "$1" || basename $p; done
}

# nothing TEXT: no unit, cgroup, container or process of a run is there, now or soon.
nothing() {
	for i in $(seq 100); do
		left="$(systemctl list-units --all --plain --no-legend 'assay*' 'docker-*.scope'; ls -d /sys/fs/cgroup/assay* 2> /dev/null || true; docker ps --quiet; having 'sleep [6]00')"
		[ -n "$left" ] || return 0
		sleep 0.2
	done
	echo "$1: this was left: $left"
	exit 1
}

assay-run -q --containers --kernel require --require complete --run-id one-run --memory 256M --pids 200 -o a.tar.gz --result a.json -- sh -c '
	echo $ASSAY_RUN_CGROUP_PARENT > parent
	systemctl daemon-reload
	docker run --rm --network=none -v /w:/w image sh -c "cat /proc/self/cgroup > /w/in; echo 1 > /tmp/of-one-run"
	cat /proc/self/cgroup > out
	cat /sys/fs/cgroup/assay_run_one.run.slice/memory.max /sys/fs/cgroup/assay_run_one.run.slice/pids.max > limits
' || { cat log; exit 1; }
echo "run $(cut -d' ' -f1 /proc/uptime)"
nothing "a run"
cat parent in out limits
grep -q '^assay_run_one.run-containers.slice$' parent
grep -q '^0::/$\|^0::/assay_run_one.run.slice/assay_run_one.run-containers.slice/docker-[0-9a-f]*.scope$' in
grep -q '^0::/assay_run_one.run.slice/agent' out
[ "$(echo $(cat limits))" = '268435456 200' ]
assay-run verify a.tar.gz > /dev/null
tar -xzOf a.tar.gz layers/kernel.ndjson | grep of-one-run | grep -q '"container_id":"[0-9a-f]\{64\}"'

for restart in always no; do
	rm -f up
	assay-run -q --containers --run-id killed -o b.tar.gz -- sh -c '
		docker run -d --restart='$restart' --network=none -v /w:/w image sh -c "touch /w/up; exec sleep 600"; sleep 600' &
	until [ -e up ]; do sleep 0.1; done
	if [ $restart = no ]; then kill -KILL $(having '__guar[d]'); fi
	kill -KILL $!
	wait $! || true
	if [ $restart = no ]; then assay-run recover --all; fi
	nothing "a killed run (restart: $restart)"
	if [ $restart = always ]; then assay-run recover --all; fi
	assay-run verify b.tar.gz > /dev/null
	rm b.tar.gz
done

# Right after one another, and two at once: the slice of one is never stopped for another's.
for i in 1 2 3; do assay-run -q --containers --run-id again -o c.tar.gz -- true; rm c.tar.gz; done
for i in 1 2 3; do
	assay-run -q --containers --run-id "twin-$i" -o "d$i.tar.gz" -- sh -c 'touch ready'$i'; until [ -e go ]; do sleep 0.1; done; cat /proc/self/cgroup > twin'$i &
	eval "twin$i=$!"
done
until [ -e ready1 ] && [ -e ready2 ] && [ -e ready3 ]; do sleep 0.1; done
if assay-run -q --containers --run-id twin-1 -o e.tar.gz -- true 2> in-use; then echo "two runs of one id"; exit 1; fi
assay-run -q --containers --run-id one-more -o e.tar.gz -- true
touch go
for pid in $twin1 $twin2 $twin3; do wait $pid; done
cat twin1 twin2 twin3 in-use
for i in 1 2 3; do grep -q "^0::/assay_run_twin.$i.slice/agent" twin$i; done
nothing "runs at once"

# What a run left that was killed before its guard came up, and what only looks like that.
slice() { busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager StartTransientUnit 'ssa(sv)a(sa(sv))' "$1" replace 1 Description s "$2" 0; }
slice assay_run_torn.run.slice "processes and containers of assay-run torn-run"
systemd-run --quiet --unit=others --slice=assay_run_other.slice sleep 500
assay-run recover --all
assay-run -q --containers --run-id last -o f.tar.gz -- true
if [ -e /sys/fs/cgroup/assay_run_torn.run.slice ]; then echo "the torn run's slice is there"; exit 1; fi
[ "$(systemctl is-active others.service)" = active ]
if assay-run -q --containers --run-id other -o g.tar.gz -- true 2> in-use; then echo "a run has another's slice"; exit 1; fi
cat in-use
grep -q 'in use' in-use
[ "$(systemctl is-active others.service)" = active ]
systemctl stop others.service assay_run_other.slice
nothing "slices of others"

# D-Bus does not answer.
bus=$(systemctl show --value --property MainPID dbus.service)
kill -STOP $bus
if timeout 120 assay-run -q --containers -o h.tar.gz -- true 2> hung; then echo "a run without D-Bus"; exit 1; fi
kill -CONT $bus
cat hung
grep -q 'check that systemd answers on D-Bus' hung
sleep 1
assay-run -q --containers --run-id after -o i.tar.gz -- true
nothing "a bus that hung"
echo "end $(cut -d' ' -f1 /proc/uptime)"
`

// With the systemd driver, the run is a slice of systemd's: containers are in it, its
// limits hold for them, and it is gone after the run, and after one that was killed.
func TestContainersOfTheSystemdDriver(t *testing.T) {
	if os.Getenv("ASSAY_TEST_SYSTEMD_DOCKER") == "" {
		t.Skip("set ASSAY_TEST_SYSTEMD_DOCKER=1 to boot a system with Docker under emulation, which takes a minute")
	}
	binary := filepath.Join(t.TempDir(), "assay-run")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	out := vmtest.Boot(t, vmtest.Machine{
		Systemd: true, Packages: []string{"docker.io", "runc"}, Cmdline: "apparmor=0", MemoryMiB: 2048,
		Files: map[string]string{"/bin/assay-run": binary}, Script: insideMachine,
	}, "6.12", 10*time.Minute)
	t.Log(out)
}
