package vmtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Kernel finds a Debian cloud kernel of a series, such as "6.1" or "6.12", for a GOARCH. It
// looks in /boot and in the cache directory. Otherwise it fetches the package with
// apt-get download and unpacks it in the cache directory, without installing it.
func Kernel(series, arch string) (image string, err error) {
	name := "vmlinuz-" + series + ".*-cloud-" + arch
	if found, _ := filepath.Glob(filepath.Join("/boot", name)); len(found) > 0 {
		return found[len(found)-1], nil
	}
	return unpacked(arch, filepath.Join("boot", name), func(apt apt) (string, error) {
		pkg, err := apt.candidate("linux-image-"+series+".", "-cloud-"+arch)
		if err != nil {
			return "", fmt.Errorf("a kernel %s (Debian package linux-image-%s*-cloud-%s): %w", series, series, arch,
				err)
		}
		return pkg, nil
	})
}

// Module finds a module of a kernel that Kernel found for a GOARCH, by its path such as "fs/overlayfs/overlay.ko".
func Module(image, arch, path string) (string, error) {
	version := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
	path = filepath.Join("lib/modules", version, "kernel", path)
	if _, err := os.Stat("/" + path); err == nil {
		return "/" + path, nil
	}
	return unpacked(arch, path, func(apt) (string, error) { return "linux-image-" + version, nil })
}

// busyboxFor finds a static busybox for an instruction set, as Kernel does.
func busyboxFor(arch string) (string, error) {
	if arch == runtime.GOARCH {
		if path, err := exec.LookPath("busybox"); err == nil {
			return path, nil
		}
	}
	return unpacked(arch, "bin/busybox", func(apt) (string, error) { return "busybox-static", nil })
}

// unpacked is a file of a Debian package for an instruction set. pattern matches its path
// in the package. The file is kept in the user's cache directory.
func unpacked(arch, pattern string, pick func(apt) (pkg string, err error)) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "assay-run-vmtest", arch)
	if found, _ := filepath.Glob(filepath.Join(cache, pattern)); len(found) > 0 {
		return found[len(found)-1], nil
	}
	apt, err := newApt(arch, cache)
	if err != nil {
		return "", fmt.Errorf("%w: packages for %s: %w", ErrMissing, arch, err)
	}
	pkg, err := pick(apt)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrMissing, err)
	}
	tmp, err := os.MkdirTemp("", "vmtest-package-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if out, err := apt.get(tmp, "download", pkg); err != nil {
		return "", fmt.Errorf("%w: Debian package %s: apt-get download: %w: %s", ErrMissing, pkg, err, out)
	}
	debs, _ := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if len(debs) != 1 {
		return "", fmt.Errorf("%w: Debian package %s: apt-get download left %d packages", ErrMissing, pkg, len(debs))
	}
	if out, err := exec.Command("dpkg-deb", "-x", debs[0], tmp).CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w: %s", debs[0], err, out)
	}
	files, _ := filepath.Glob(filepath.Join(tmp, pattern))
	if len(files) == 0 { // from Debian 13 on
		files, _ = filepath.Glob(filepath.Join(tmp, "usr", pattern))
	}
	if len(files) != 1 {
		return "", fmt.Errorf("the Debian package %s has %d of %s", pkg, len(files), pattern)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, filepath.Dir(pattern), filepath.Base(files[0]))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	part := filepath.Join(cache, fmt.Sprintf("part-%d", os.Getpid())) // another test may unpack it at the same time
	if err := os.WriteFile(part, data, 0o755); err != nil {
		return "", err
	}
	return path, os.Rename(part, path)
}

// apt is the options that make apt use the packages of an instruction set.
type apt []string

// newApt prepares to fetch packages for arch. If that is not the host's own instruction
// set, the lists of packages are kept in dir, and the host's lists do not change.
func newApt(arch, dir string) (apt, error) {
	if arch == runtime.GOARCH {
		return nil, nil
	}
	lists := filepath.Join(dir, "lists")
	if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil {
		return nil, err
	}
	a := apt{"-o", "APT::Architecture=" + arch, "-o", "APT::Architectures=" + arch, "-o", "Dir::State::Lists=" + lists,
		"-o", "Dir::Cache=" + filepath.Join(dir, "cache"), "-o", "APT::Sandbox::User="}
	if out, err := a.get(dir, "update", "-qq"); err != nil {
		return nil, fmt.Errorf("apt-get update: %w: %s", err, out)
	}
	return a, nil
}

func (a apt) get(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("apt-get", append(slices.Clone(a), args...)...)
	cmd.Dir = dir
	return cmd.CombinedOutput()
}

// candidate names the newest package with this prefix and suffix that apt knows.
func (a apt) candidate(prefix, suffix string) (string, error) {
	out, err := exec.Command("apt-cache", append(slices.Clone(a), "pkgnames", prefix)...).Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache pkgnames: %w", err)
	}
	var names []string
	for _, n := range strings.Fields(string(out)) {
		if strings.HasSuffix(n, suffix) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("apt knows no such package; run apt-get update")
	}
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return names[len(names)-1], nil
}
