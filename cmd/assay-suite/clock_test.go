//go:build linux && amd64

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/vmtest"
)

// TestTheClockIsSetBack runs a suite with two workers in a virtual machine. It sets the clock back an hour while both
// workers run attempts, and then kills one of them. The coordinator must notice after a lease, and not an hour later.
func TestTheClockIsSetBack(t *testing.T) {
	layertest.Night(t)
	if _, err := os.Stat("../../go.mod"); err != nil {
		t.Skipf("the tests run without the module: %v", err)
	}
	dir := t.TempDir()
	files := map[string]string{}
	for _, program := range []string{"assay-run", "assay-suite"} {
		files["/bin/"+program] = filepath.Join(dir, program)
		build := exec.Command("go", "build", "-o", files["/bin/"+program], "../"+program)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	const attempts = 8
	m := vmtest.Machine{MemoryMiB: 1536, Files: files, Script: fmt.Sprintf(`
export HOME=/tmp NO_COLOR=1
mount -t cgroup2 none /sys/fs/cgroup || exit 1
mkdir /suite && mount -t tmpfs -o size=8g none /suite && cd /suite || exit 1
cat >suite.yaml <<'END'
name: clock
attempts: %d
retries: 50
tasks: [{name: t, command: "true"}]
agents:
- name: a
  command: 'until [ $ASSAY_ATTEMPT -le $(cat /suite/most) ]; do pwd >>/suite/waiting; sleep 0.2; done'
END
echo 0 >most
count() { grep -c "$1" out/ledger.ndjson; }
waits() { for who in w1 local; do until grep -qs $who/ waiting; do sleep 0.2; done; done; }
assay-suite run suite.yaml --dir out --jobs 1 --lease 20s --listen 127.0.0.1:4222 >said 2>&1 </dev/null &
suite=$!
assay-suite worker --nats nats://127.0.0.1:4222 --name w1 --dir w1 --jobs 1 >worker 2>&1 </dev/null &
worker=$!
waits
date -s @$(($(date +%%s) - 3600))
echo 3 >most
until [ $(count '"kind":"verdict"') -ge 3 ]; do sleep 0.2; done
>waiting
waits
kill -9 $worker
until [ $(count '"class":"worker_lost"') -ge 1 ]; do sleep 0.2; done
echo 99 >most
wait $suite
echo "the suite ended with $?"
cat said worker
for bundle in out/attempts/*/*/*/*/run.tar.gz; do assay-run verify $bundle; done
sed -n '1s/.*"at":"\([^"]*\)".*/LEDGER \1 begun/p' out/ledger.ndjson
sed -n 's/.*"at":"\([^"]*\)","kind":"verdict".*"verdict":"\([a-z]*\)".*/LEDGER \1 \2/p' out/ledger.ndjson
`, attempts)}
	out := vmtest.Boot(t, m, "6.12", 15*time.Minute)
	if !strings.Contains(out, "the suite ended with 0\n") {
		t.Errorf("the suite did not end well")
	}
	passed := 0
	var begun time.Time
	for i, found := range regexp.MustCompile(`LEDGER (\S+) (\w+)`).FindAllStringSubmatch(out, -1) {
		at, err := time.Parse(time.RFC3339Nano, found[1])
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case i == 0:
			begun = at
		case !at.Before(begun):
			t.Errorf("a verdict is of %v, and the suite began at %v: nobody set the clock back", at, begun)
		case found[2] == "passed":
			passed++
		}
	}
	if passed != attempts {
		t.Errorf("%d attempts passed, want %d", passed, attempts)
	}
	if verified := strings.Count(out, "run.tar.gz: ok\n"); verified < attempts {
		t.Errorf("%d bundles verify", verified)
	}
	if t.Failed() {
		t.Log(out)
	}
}
