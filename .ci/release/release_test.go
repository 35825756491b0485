package main

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var when = time.Unix(1_700_000_000, 0).UTC()

func sample() (files, man []file) {
	return []file{{"bin/assay-run", 0o755, []byte("run")}, {"bin/assay-review", 0o755, []byte("review")},
			{"bin/assay-suite", 0o755, []byte("suite")}, {"LICENSE", 0o644, []byte("free")},
			{"README.md", 0o644, []byte("read")}},
		[]file{{"man/man1/assay-run.1", 0o644, []byte(".TH")}}
}

func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("needs %s: %v", name, err)
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestTheSameInputsGiveTheSameBytes(t *testing.T) {
	files, man := sample()
	for name, make := range map[string]func() []byte{
		"tar":   func() []byte { return tarball("x", files, man, when) },
		"deb":   func() []byte { return debian("v1.2", "amd64", files, man, when) },
		"image": func() []byte { return image("v1.2", "amd64", files, when) },
	} {
		if !bytes.Equal(make(), make()) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestProgramsKeepTheirBuildID(t *testing.T) {
	dir := t.TempDir()
	source, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", linkFlags("v1.2"), "-o", bin, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.Section(".note.go.buildid") == nil {
		t.Error("linked without a build ID")
	}
}

func TestDebianReadsThePackage(t *testing.T) {
	files, man := sample()
	deb := filepath.Join(t.TempDir(), "x.deb")
	if err := os.WriteFile(deb, debian("v1.2-3-gabc", "arm64", files, man, when), 0o644); err != nil {
		t.Fatal(err)
	}
	info := tool(t, "dpkg-deb", "--info", deb)
	for _, want := range []string{"Package: assay-run", "Version: 1.2+3+gabc", "Architecture: arm64"} {
		if !strings.Contains(info, want) {
			t.Errorf("no %q in\n%s", want, info)
		}
	}
	contents := tool(t, "dpkg-deb", "--contents", deb)
	for _, want := range []string{"-rwxr-xr-x 0/0", "usr/bin/assay-review", "usr/bin/assay-suite",
		"usr/share/man/man1/assay-run.1",
		"usr/share/doc/assay-run/copyright"} {
		if !strings.Contains(contents, want) {
			t.Errorf("no %q in\n%s", want, contents)
		}
	}
}

// TestTheImageIsWhole follows every digest in the layout.
func TestTheImageIsWhole(t *testing.T) {
	files, _ := sample()
	dir := t.TempDir()
	name := filepath.Join(dir, "image.tar")
	if err := os.WriteFile(name, image("v1.2", "amd64", files, when), 0o644); err != nil {
		t.Fatal(err)
	}
	tool(t, "tar", "-C", dir, "-xf", name)
	blobs, err := filepath.Glob(filepath.Join(dir, "blobs/sha256/*"))
	if err != nil || len(blobs) != 3 {
		t.Fatalf("%v, %v", blobs, err)
	}
	index, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := string(index)
	for _, b := range blobs {
		data, err := os.ReadFile(b)
		if err != nil {
			t.Fatal(err)
		}
		if hexDigest(data) != filepath.Base(b) {
			t.Errorf("%s has the digest %s", b, hexDigest(data))
		}
		if bytes.HasPrefix(data, []byte("{")) {
			all += string(data)
			continue
		}
		held := tool(t, "tar", "-tf", b)
		want := "bin/\nbin/assay-review\nbin/assay-run\nlicenses/\nlicenses/LICENSE\ntmp/\ntmp/.keep\n"
		if held != want {
			t.Errorf("it holds %s, want %s", held, want)
		}
		if text := tool(t, "tar", "-xOf", b, "licenses/LICENSE"); text != "free" {
			t.Errorf("the licence is %q", text)
		}
	}
	for _, b := range blobs {
		if !strings.Contains(all, filepath.Base(b)) {
			t.Errorf("nothing refers to %s", b)
		}
	}
}
