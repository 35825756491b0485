//go:build linux && amd64

package truthtest

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// Honest programs open no claim, but for what kernel.HonestOpens has.
func TestHonestProgramsOpenNothing(t *testing.T) {
	layertest.Host(t)
	// Chromium makes a socket below TMPDIR, whose name must be short.
	const chromium = `HOME="$(mktemp -d /tmp/assay-XXXXXX)"; export HOME TMPDIR="$HOME"; `
	for _, c := range []struct {
		name, script string
		programs     string
		open         []string // names of calls
	}{
		{"git rebase", `git init -q; git config user.email a@b; git config user.name n
			git commit -qm a --allow-empty; git branch f; echo b >b; git add b; git commit -qm b
			git checkout -q f; echo c >c; git add c; git commit -qm c; git rebase -q -`, "git", nil},
		{"npm ci", `mkdir d; echo '{"name": "d", "version": "1.0.0"}' >d/package.json
			echo '{"name": "x", "version": "1.0.0", "dependencies": {"d": "file:d"}}' >package.json
			npm install --silent --no-audit --no-fund; rm -r node_modules; npm ci --silent --no-audit --no-fund`,
			"npm node", nil},
		{"go test", `export PATH="$HOSTPATH" HOME="$HOSTHOME"; mkdir m; cd m; printf 'module x\n' >go.mod
			printf 'package x\nimport "testing"\nfunc TestX(t *testing.T) {}\n' >x_test.go; go test ./...`, "go", nil},
		{"pytest", `echo 'def test_x(tmp_path): (tmp_path / "a").write_text("a")' >test_x.py
			/usr/bin/python3 -m pytest -q`, "pytest", nil},
		{"make -j", `printf 'all: a b c d\na b c d:\n\techo $@ >$@\n' >Makefile; make -j4`, "make", nil},
		{"apt-get install", `apt-get install -y --reinstall --no-download dash || apt-get -s install dash`, "apt-get", nil},
		{"sshd and ssh", `mkdir -p /run/sshd; ssh-keygen -q -t ed25519 -N "" -f key
			/usr/sbin/sshd -D -p 22991 -f /dev/null -h "$PWD/key" -o "AuthorizedKeysFile=$PWD/key.pub" -o StrictModes=no \
				-o PidFile=none -o ListenAddress=127.0.0.1 & p=$!
			until ssh -F none -i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p 22991 root@127.0.0.1 id
			do sleep 0.1; done
			kill $p; wait`, "/usr/sbin/sshd ssh", nil},
		{"multiprocessing", `cat >m.py <<'X'
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.Pool(3) as p:
        print(p.map(abs, [1, -2]))
    q = multiprocessing.Queue()
    c = multiprocessing.Process(target=q.put, args=(1,))
    c.start()
    print(q.get())
    c.join()
X
			/usr/bin/python3 m.py`, "/usr/bin/python3", nil},
		{"worker threads", `cat >w.js <<'X'
const { Worker } = require("worker_threads")
new Worker("1", { eval: true })
require("dns").lookup("localhost", () => console.log(require("os").networkInterfaces()))
X
			node w.js`, "node", nil},
		{"java", `cat >X.java <<'X'
class X {
  public static void main(String[] a) throws Exception {
    System.out.println(java.util.Collections.list(java.net.NetworkInterface.getNetworkInterfaces()));
    new java.net.ServerSocket(0).close();
  }
}
X
			java X.java`, "java", nil},
		{"strace", `strace -f -o t sh -c 'ls /'`, "strace", nil},
		{"perl", `perl -MSocket -e 'print scalar gethostbyname("localhost")'`, "perl", nil},
		{"ruby", `ruby -rsocket -e 'p Socket.ip_address_list, Addrinfo.getaddrinfo("localhost", 80)'`, "ruby", nil},
		{"tmux", `tmux -S s -f /dev/null new-session -d "sleep 0.3"; sleep 0.6; tmux -S s kill-server || true`, "tmux", nil},
		{"ip addr", `ip addr; ip route; ss -tn`, "ip ss", nil},
		{"bwrap", `bwrap --ro-bind / / --unshare-all --dev /dev --proc /proc true`, "bwrap", nil},
		{"qemu", `timeout 3 qemu-system-x86_64 -accel tcg -display none -serial none -monitor none -nic user || true`,
			"qemu-system-x86_64", nil},
		{"chromium", chromium + `chown 65534 "$HOME"; cd /; setpriv --reuid 65534 --regid 65534 --clear-groups \
			chromium --headless --no-sandbox --disable-gpu --dump-dom 'data:text/html,<p>x</p>'; rm -r "$HOME"`,
			"chromium setpriv", nil},
		{"chromium as root", chromium + `chromium --headless --no-sandbox --disable-gpu --dump-dom \
			'data:text/html,<p>x</p>'; rm -r "$HOME"`, "chromium", []string{"ioctl SIOCETHTOOL on a socket"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			need(t, strings.Fields(c.programs)...)
			r := record(t, t.TempDir(), []string{"HOSTPATH=" + os.Getenv("PATH"), "HOSTHOME=" + os.Getenv("HOME")},
				"/bin/sh", "-c", c.script)
			open := []string{}
			for _, o := range r.health.Open {
				open = append(open, o.Name())
				if o.Unusual {
					t.Errorf("%s is unusual", o.Name())
				}
			}
			if d := cmp.Diff(append([]string{}, c.open...), open); d != "" {
				t.Errorf("open (-want +got):\n%s", d)
			}
		})
	}
}
