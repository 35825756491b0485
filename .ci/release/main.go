// Command release builds the files of a release: an archive, a Debian package and a
// container image for each architecture, a software bill of materials, and checksums.
//
// The same commit gives the same bytes on every machine with the same version of
// Go: every time is SOURCE_DATE_EPOCH, every owner root, every list sorted, and
// no path of the machine gets into a program.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/assay-run/assay-run/cgroup/steps"
)

var programs = []string{"assay-run", "assay-review", "assay-suite"}

// most bounds each program, in bytes: what people download and keep in images.
const most = 45_000_000

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	version := flag.String("version", "", "the release's version")
	out := flag.String("out", "dist", "the folder to write to")
	flag.Parse()
	if err := release(*version, *out); err != nil {
		log.Fatal(err)
	}
}

// release writes everything to out, which it removes first.
func release(version, out string) error {
	if version == "" {
		return fmt.Errorf("-version is missing")
	}
	when, err := epoch()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	man, err := manPages(version)
	if err != nil {
		return err
	}
	bill := &materials{version: version, when: when}
	for _, arch := range []string{"amd64", "arm64"} {
		files, err := build(version, arch)
		if err != nil {
			return err
		}
		if err := bill.add(arch, files); err != nil {
			return err
		}
		name := fmt.Sprintf("assay-run_%s_linux_%s", version, arch)
		for path, data := range map[string][]byte{
			name + ".tar.gz":    tarball(name, files, man, when),
			name + ".deb":       debian(version, arch, files, man, when),
			name + "_image.tar": image(version, arch, files, when),
		} {
			if err := os.WriteFile(filepath.Join(out, path), data, 0o644); err != nil {
				return err
			}
		}
	}
	doc, err := bill.document()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "assay-run_"+version+"_sbom.cdx.json"), doc, 0o644); err != nil {
		return err
	}
	return checksums(out)
}

// epoch is the time of every file: SOURCE_DATE_EPOCH, else the commit's time
// (reproducible-builds.org/specs/source-date-epoch).
func epoch() (time.Time, error) {
	s := os.Getenv("SOURCE_DATE_EPOCH")
	if s == "" {
		out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("find the commit's time: %w (set SOURCE_DATE_EPOCH)", err)
		}
		s = strings.TrimSpace(string(out))
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return time.Unix(n, 0).UTC(), err
}

// file is a file of the release.
type file struct {
	path string
	mode int64
	data []byte
}

// linkFlags leave the program its build ID, which is a digest of what goes into it. Runs find
// the observer that they share by it, and would read the whole program for it otherwise.
func linkFlags(version string) string { return "-s -w -X main.release=" + version }

// build builds the programs for an architecture, and adds the files that go with them.
func build(version, arch string) ([]file, error) {
	dir, err := os.MkdirTemp("", "assay-run-release-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var files []file
	for _, p := range programs {
		flags := linkFlags(version)
		if p == "assay-run" {
			flags += " -E=" + steps.Entry
		}
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", dir+"/", "./cmd/"+p)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=-mod=readonly",
			"GOAMD64=v1", "GOARM64=v8.0")
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("build %s for %s: %w", p, arch, err)
		}
		data, err := os.ReadFile(filepath.Join(dir, p))
		if err != nil {
			return nil, err
		}
		if len(data) > most {
			return nil, fmt.Errorf("%s for %s has %d bytes, at most %d are allowed", p, arch, len(data), most)
		}
		files = append(files, file{"bin/" + p, 0o755, data})
	}
	for _, p := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		data, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		files = append(files, file{p, 0o644, data})
	}
	return files, nil
}

// manPages are the manual pages, section 1.
func manPages(version string) ([]file, error) {
	dir, err := os.MkdirTemp("", "assay-run-man-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for _, p := range []string{"assay-run", "assay-suite"} { // assay-run has the pages of assay-review's commands
		cmd := exec.Command("go", "run", "-trimpath", "-tags", "man", "-ldflags", "-X main.release="+version,
			"./cmd/"+p, "man", dir)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("write the manual pages of %s: %w", p, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var pages []file
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		pages = append(pages, file{"man/man1/" + e.Name(), 0o644, data})
	}
	return pages, nil
}

// checksums writes SHA256SUMS over everything in out.
func checksums(out string) error {
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(out, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), e.Name()))
	}
	sort.Strings(lines)
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
