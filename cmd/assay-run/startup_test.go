//go:build linux

package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// Every run starts the program several times. What a package allocates when it is
// initialized is the same on each machine, unlike the time that it takes.
const (
	packageStart = 16 << 10  // bytes of a package of ours
	wholeStart   = 400 << 10 // bytes of all packages
)

func TestTheProgramStartsWithoutWhatOnlySomeCommandsNeed(t *testing.T) {
	layertest.Host(t)
	if _, err := os.Stat("../../go.mod"); err != nil {
		t.Skipf("the tests run without the module: %v", err)
	}
	program := filepath.Join(t.TempDir(), "assay-run")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	// text/template's calls of methods by name make the linker keep all methods of all types.
	binary, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	symbols, err := binary.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == "reflect.Value.MethodByName" || s.Name == "reflect.Value.Method" {
			t.Errorf("something calls %s with a name that the linker does not know; go build "+
				"-ldflags=-dumpdep tells what", s.Name)
		}
	}

	version := exec.Command(program, "--version")
	version.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	version.Stderr = &trace
	if err := version.Run(); err != nil {
		t.Fatal(err)
	}
	whole := 0
	for line := range strings.Lines(trace.String()) {
		name, bytes := initialized(line)
		if whole += bytes; bytes > packageStart && strings.HasPrefix(name, "github.com/assay-run/assay-run/") {
			t.Errorf("%s allocates %d bytes when the program starts, want at most %d: make it where it is first "+
				"needed (sync.OnceValue)", name, bytes, packageStart)
		}
	}
	if whole == 0 || whole > wholeStart {
		t.Errorf("all packages allocate %d bytes when the program starts, want 1 to %d:\n%s", whole, wholeStart,
			trace.String())
	}
}

// initialized reads "init PACKAGE @1.2 ms, 0.3 ms clock, 456 bytes, 7 allocs".
func initialized(line string) (name string, bytes int) {
	words := strings.Fields(line)
	if len(words) < 9 || words[0] != "init" || words[8] != "bytes," {
		return "", 0
	}
	bytes, _ = strconv.Atoi(words[7])
	return words[1], bytes
}
