package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json/v1"
)

// The packages that are installed without a network: about as many as a web project has.
const (
	npmPackages = 300
	npmFiles    = 12 // in each package
)

// packages packs npm packages and returns a package.json that depends on all of them.
func packages(dir string) string {
	depends := map[string]string{}
	for i := range npmPackages {
		name := fmt.Sprintf("dependency-%03d", i)
		tree := filepath.Join(dir, name)
		check(os.MkdirAll(filepath.Join(tree, "package", "lib"), 0o755))
		check(os.WriteFile(filepath.Join(tree, "package", "package.json"),
			fmt.Appendf(nil, `{"name":%q,"version":"1.0.0","main":"lib/0.js"}`, name), 0o644))
		for n := range npmFiles {
			text := strings.Repeat(fmt.Sprintf("exports.f%d = function () { return %d; };\n", n, i), 20*(n+1))
			check(os.WriteFile(filepath.Join(tree, "package", "lib", fmt.Sprintf("%d.js", n)), []byte(text), 0o644))
		}
		check(exec.Command("tar", "-czf", tree+".tgz", "-C", tree, "package").Run())
		check(os.RemoveAll(tree))
		depends[name] = "file:" + tree + ".tgz"
	}
	project, err := json.Marshal(map[string]any{"dependencies": depends})
	check(err)
	return string(project)
}

// npm installs the packages of a package.json. Packages of a registry come from a cache after
// the first time.
func (b *bench) npm(project func() string) func(dir string) *exec.Cmd {
	return func(dir string) *exec.Cmd {
		check(os.WriteFile(filepath.Join(dir, "package.json"), []byte(project()), 0o644))
		cmd := exec.Command("npm", "install", "--prefer-offline", "--no-audit", "--no-fund", "--silent")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "npm_config_cache="+filepath.Join(b.dir, "npm"))
		return cmd
	}
}
