package sandbox

import (
	"os/exec"
	"os/user"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// TestToolsWork uses real tools inside: each must find everything that it needs in its own workspace, without a
// network.
func TestToolsWork(t *testing.T) {
	layertest.Host(t)
	for _, c := range []struct {
		name, needs, script string
		modules             string // of Python that it needs, by their names
		rootOnly            bool   // the tool is in root's home on this machine
		mounts              bool   // what it asserts takes a mount namespace
		settings            *sandboxfile.Filesystem
	}{
		{name: "git", needs: "git", script: `
			export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
			git init -q -b main . && echo 1 > f && git add f && git commit -qm one &&
			git switch -qc side && echo 2 > g && git add g && git commit -qm two &&
			git switch -q main && git merge -q side && git stash list && git gc -q && git clone -q . ../work/copy && test -f copy/g`},
		{name: "git in a repository that was there", needs: "git", mounts: true, script: `
			cd there && echo 2 > f && git -c user.name=a -c user.email=b commit -qam two && test -n "$(git log --oneline --grep=two)" &&
			git switch -qc side && git worktree add -q wt && git config branch.side.remote origin &&
			! touch .git/hooks/x 2>/dev/null`},
		{name: "git config where the policy names the file", needs: "git", mounts: true,
			settings: &sandboxfile.Filesystem{AllowWrite: []string{"there/.git/config"}}, script: `
			cd there && git config user.name a && git remote add origin /nowhere && test "$(git config user.name)" = a && ! touch .git/hooks/x 2>/dev/null`},
		{name: "make and gcc", needs: "gcc", script: `
			printf 'int main(void){return 0;}\n' > a.c && printf 'a: a.c\n\tgcc -o a a.c\n' > Makefile && make -s && ./a`},
		{name: "go build", needs: "go", rootOnly: true, script: `
			export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0 &&
			printf 'module m\n\ngo 1.21\n' > go.mod && printf 'package main\n\nfunc main() {}\n' > main.go &&
			printf 'package main\n\nimport "testing"\n\nfunc TestX(t *testing.T) { t.TempDir() }\n' > main_test.go && go build . && ./m && go test .`},
		{name: "python venv and pytest", needs: "/usr/bin/python3", modules: "ensurepip, pytest", script: `
			/usr/bin/python3 -m venv --system-site-packages v && printf 'def test_x(tmp_path):\n    (tmp_path / "a").write_text("x")\n' > test_x.py &&
			v/bin/python -c 'import multiprocessing as m; p = m.Pool(2); assert p.map(abs, [-1, -2]) == [1, 2]; p.close(); p.join()' &&
			v/bin/python -m pytest -q --basetemp=t test_x.py`},
		{name: "node and npm", needs: "npm", script: `
			mkdir -p reg/pkg dep && printf '{"name":"dep","version":"1.0.0","main":"i.js"}' > dep/package.json && echo 'module.exports = 42' > dep/i.js &&
			export HOME=$PWD npm_config_cache=$PWD/.npm npm_config_update_notifier=false && tgz=$(cd dep && npm pack --silent) &&
			cp dep/$tgz reg/pkg/ && sum=$(node -e 'console.log("sha512-"+require("crypto").createHash("sha512").update(require("fs").readFileSync(process.argv[1])).digest("base64"))' reg/pkg/$tgz) &&
			printf '{"name":"dep","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"dep","version":"1.0.0","dist":{"tarball":"http://127.0.0.1:4873/pkg/%s","integrity":"%s"}}}}' $tgz "$sum" > reg/dep || exit 1
			(cd reg && exec /usr/bin/python3 -m http.server 4873 --bind 127.0.0.1 >/dev/null 2>&1) & server=$!
			until curl -fso /dev/null http://127.0.0.1:4873/dep; do sleep 0.1; done
			mkdir app && cd app && printf '{"name":"app","version":"1.0.0"}' > package.json && HOME=$OLDPWD npm_config_cache=$OLDPWD/.npm npm install --silent --registry http://127.0.0.1:4873 dep
			node -e 'process.exit(require("dep") === 42 ? 0 : 1)'; code=$?; kill $server; exit $code`},
		{name: "cargo", needs: "cargo", rootOnly: true, script: `
			mkdir src && printf '[package]\nname="m"\nversion="0.1.0"\nedition="2021"\n' > Cargo.toml && printf 'fn main() {}\n' > src/main.rs && cargo build -q --offline && ./target/debug/m`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.needs); err != nil {
				t.Skipf("%s is not installed: %v", c.needs, err)
			}
			if c.modules != "" {
				if out, err := exec.Command(c.needs, "-c", "import "+c.modules).CombinedOutput(); err != nil {
					t.Skipf("%s lacks one of the modules %s (python3-venv, python3-pytest): %s", c.needs, c.modules,
						out)
				}
			}
			for _, w := range everybody {
				if c.rootOnly && w.uid != 0 || c.mounts && w.noUserns {
					continue
				}
				t.Run(w.name, func(t *testing.T) {
					j := shell(t, "set -o pipefail\n"+c.script)
					there := exec.Command("sh", "-c",
						"git init -q there && cd there && echo 1 > f && git add f && git -c user.name=a -c "+
							"user.email=b commit -qm one")
					there.Dir = j.Dir
					if out, err := there.CombinedOutput(); err != nil {
						t.Fatalf("%v\n%s", err, out)
					}
					j.Env, j.Settings.Filesystem = []string{"HOME=" + j.Dir}, c.settings
					if w.noUserns {
						j.Settings.OnUnavailable = sandboxfile.Degrade
					}
					if c.rootOnly {
						u, err := user.Current() // HOME may not be set
						if err != nil {
							t.Fatal(err)
						}
						home := u.HomeDir
						j.Home, j.Env = home, []string{"HOME=" + home}
						j.Settings.Filesystem = &sandboxfile.Filesystem{AllowWrite: []string{"~/.cache/go-build"}}
					}
					if o := w.run(t, j); o.Err != "" || o.Code != 0 {
						t.Errorf("%+v\n%s", o, o.out)
					}
				})
			}
		})
	}
}
