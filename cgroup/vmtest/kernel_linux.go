package vmtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Kernel finds a Debian cloud kernel of a series, such as "6.1" or "6.12":
// installed in /boot, or unpacked in the cache directory, or else fetched with
// apt-get download and unpacked there, without installing it.
func Kernel(series string) (bzImage string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "assay-run-vmtest")
	for _, dir := range []string{"/boot", filepath.Join(cache, "boot")} {
		found, _ := filepath.Glob(filepath.Join(dir, "vmlinuz-"+series+".*-cloud-amd64"))
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	pkg, err := candidate(series)
	if err != nil {
		return "", fmt.Errorf("%w: a kernel %s (Debian package linux-image-%s*-cloud-amd64): %w", ErrMissing, series, series, err)
	}
	tmp, err := os.MkdirTemp("", "vmtest-kernel-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	get := exec.Command("apt-get", "download", pkg)
	get.Dir = tmp
	if out, err := get.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: Debian package %s: apt-get download: %w: %s", ErrMissing, pkg, err, out)
	}
	debs, _ := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if len(debs) != 1 {
		return "", fmt.Errorf("%w: Debian package %s: apt-get download left %d packages", ErrMissing, pkg, len(debs))
	}
	if out, err := exec.Command("dpkg-deb", "-x", debs[0], tmp).CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w: %s", debs[0], err, out)
	}
	images, _ := filepath.Glob(filepath.Join(tmp, "boot", "vmlinuz-*"))
	if len(images) != 1 {
		return "", fmt.Errorf("the Debian package %s has %d kernels", pkg, len(images))
	}
	data, err := os.ReadFile(images[0])
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(cache, "boot"), 0o755); err != nil {
		return "", err
	}
	bzImage = filepath.Join(cache, "boot", filepath.Base(images[0]))
	part := fmt.Sprintf("%s.%d", bzImage, os.Getpid()) // another test may do the same
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return "", err
	}
	return bzImage, os.Rename(part, bzImage)
}

// candidate names the newest package of a series that apt knows.
func candidate(series string) (string, error) {
	out, err := exec.Command("apt-cache", "pkgnames", "linux-image-"+series+".").Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache pkgnames: %w", err)
	}
	var names []string
	for _, n := range strings.Fields(string(out)) {
		if strings.HasSuffix(n, "-cloud-amd64") {
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
