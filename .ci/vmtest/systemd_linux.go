package vmtest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// systemdPackages are the packages of a machine with systemd. The packages that they depend
// on are added.
var systemdPackages = []string{"systemd-sysv", "dbus-user-session", "libpam-systemd", "login"}

// systemdFiles are files that the packages' own scripts would have made, and a service that
// runs the machine's script and then powers off.
var systemdFiles = map[string]string{
	// if empty, systemd takes this for the first boot, and enables every unit
	"etc/machine-id": "0123456789abcdef0123456789abcdef\n",
	"etc/passwd":     "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
	"etc/group":      "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",

	"etc/pam.d/common-auth":                   "auth required pam_permit.so\n",
	"etc/pam.d/common-account":                "account required pam_permit.so\n",
	"etc/pam.d/common-password":               "password required pam_permit.so\n",
	"etc/pam.d/common-session":                "session required pam_permit.so\nsession required pam_systemd.so\n",
	"etc/pam.d/common-session-noninteractive": "session required pam_permit.so\n",

	"etc/systemd/system/vmtest.service": "[Service]\nStandardOutput=file:/dev/console\nStandardError=inherit\n" +
		"ExecStart=/bin/sh -c '/bin/sh /script; echo \"" + doneMark + "$?\"; poweroff -f'\n",
}

// systemd adds a Debian system to the archive. It fetches the packages into dir and unpacks
// them, but does not run their scripts.
func (a *archive) systemd(arch, dir string, more []string) error {
	files, err := debs(arch, dir, slices.Concat(systemdPackages, more))
	if err != nil {
		return err
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		a.parents("usr/" + d)
		a.add(d, 0o120777, []byte("usr/"+d))
		a.made[d] = true
	}
	for _, f := range files {
		if err := a.deb(f); err != nil {
			return fmt.Errorf("unpack %s: %w", f, err)
		}
	}
	for name, text := range systemdFiles {
		a.parents(filepath.Dir(name))
		a.add(name, 0o100644, []byte(text))
	}
	return a.err
}

// deb adds the files of a package, at their places on a system with a merged /usr.
func (a *archive) deb(name string) error {
	cmd := exec.Command("dpkg-deb", "--fsys-tarfile", name)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	defer cmd.Wait()
	defer out.Close()
	for r := tar.NewReader(out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		name := strings.Trim(strings.TrimPrefix(h.Name, "."), "/")
		switch top, _, _ := strings.Cut(name, "/"); {
		case name == "" || name == top && a.made[name]:
			continue
		case top == "bin" || top == "sbin" || top == "lib" || top == "lib64":
			name = "usr/" + name
		}
		if strings.HasPrefix(name, "usr/share/doc/") || strings.HasPrefix(name, "usr/share/locale/") ||
			strings.Contains(name, "/perl") {
			continue
		}
		data, mode := []byte(nil), uint32(h.Mode)&0o7777
		switch h.Typeflag {
		case tar.TypeReg:
			mode |= 0o100000
			data, err = io.ReadAll(r)
		case tar.TypeDir:
			mode |= 0o040000
		case tar.TypeSymlink:
			mode, data = 0o120777, []byte(h.Linkname)
		case tar.TypeLink:
			mode, data = 0o120777, []byte(strings.TrimPrefix(h.Linkname, "."))
		}
		if err != nil {
			return err
		}
		a.add(name, mode, data)
	}
}

// debs fetches the packages with apt-get into dir.
func debs(arch, dir string, packages []string) ([]string, error) {
	apt, err := newApt(arch, dir)
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "partial"), 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: packages for %s: %w", ErrMissing, arch, err)
	}
	// apt sees an empty list of installed packages, so it names every package needed.
	apt = append(apt, "-o", "Dir::State::status="+os.DevNull, "-o", "Dir::Cache::archives="+dir, "-o",
		"APT::Sandbox::User=", "-o", "Debug::NoLocking=1")
	args := append([]string{"install", "-q", "-y", "--no-install-recommends", "--download-only"}, packages...)
	if out, err := apt.get(dir, args...); err != nil {
		return nil, fmt.Errorf("%w: Debian packages %s: apt-get: %w: %s", ErrMissing, strings.Join(packages, " "), err,
			out)
	}
	return filepath.Glob(filepath.Join(dir, "*.deb"))
}
