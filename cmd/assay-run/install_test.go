package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// sourceFile is a file of the module, by its path from there.
type sourceFile string

func (f sourceFile) Path() string                 { return string(f) }
func (f sourceFile) Lstat() (os.FileInfo, error)  { return os.Lstat(f.here()) }
func (f sourceFile) Open() (io.ReadCloser, error) { return os.Open(f.here()) }
func (f sourceFile) here() string                 { return filepath.Join("..", "..", string(f)) }

// TestGoInstall installs assay-run as a user does, from a module proxy that has this source.
func TestGoInstall(t *testing.T) {
	layertest.Host(t)
	if _, err := os.Stat("../../go.mod"); err != nil {
		t.Skipf("the tests run without the module: %v", err)
	}
	const path, version = "github.com/assay-run/assay-run", "v1.98.7"
	dir := t.TempDir()
	proxy := filepath.Join(dir, "proxy", path, "@v")
	if err := os.MkdirAll(proxy, 0o755); err != nil {
		t.Fatal(err)
	}
	tracked, err := exec.Command("git", "-C", "../..", "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []modzip.File
	for name := range strings.SplitSeq(strings.TrimSuffix(string(tracked), "\x00"), "\x00") {
		files = append(files, sourceFile(name))
	}
	var zipped bytes.Buffer
	if err := modzip.Create(&zipped, module.Version{Path: path, Version: version}, files); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"list": []byte(version + "\n"), version + ".mod": mod,
		version + ".info": []byte(`{"Version":"` + version + `"}`), version + ".zip": zipped.Bytes()} {
		if err := os.WriteFile(filepath.Join(proxy, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goEnv := func(name string) string {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	// What others wrote comes from this host's module cache, which is such a tree, too, and was checked by go.sum.
	install := exec.Command("go", "install", path+"/cmd/assay-run@latest")
	install.Dir = dir
	install.Env = append(os.Environ(), "GOBIN="+dir, "GOMODCACHE="+filepath.Join(dir, "modules"), "GOSUMDB=off",
		"GOFLAGS=-modcacherw -trimpath", "GOPROXY=file://"+filepath.Join(dir, "proxy")+",file://"+
			filepath.Join(goEnv("GOMODCACHE"), "cache", "download")+","+goEnv("GOPROXY"))
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct{ args, want string }{
		{"--version", "assay-run 1.98.7\n"},
		{"-o run.tar.gz -- echo hello", "hello\n"},
		{"verify run.tar.gz", "run.tar.gz: ok\n"},
		{"inspect run.tar.gz", "echo hello   exited 0 "},
	} {
		cmd := exec.Command(filepath.Join(dir, "assay-run"), strings.Fields(c.args)...)
		cmd.Dir = dir
		var said bytes.Buffer
		cmd.Stderr = &said
		if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, prints %s%s, want %q", c.args, err, out, &said, c.want)
		}
	}
}
