package vmtest

import (
	"fmt"
	"os"
	"path/filepath"
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
