package main

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"sort"
	"strings"
	"time"
)

// debian is a binary package (deb(5)): an ar archive with the format's version, the control
// files and the data.
func debian(version, arch string, files, man []file, when time.Time) []byte {
	var data []file
	size := 0
	for _, f := range files {
		if strings.HasPrefix(f.path, "bin/") {
			f.path = "usr/" + f.path
		} else if f.path == "LICENSE" {
			f.path = "usr/share/doc/assay-run/copyright"
		} else {
			f.path = "usr/share/doc/assay-run/" + f.path
		}
		data = append(data, f)
	}
	for _, f := range man {
		f.path = "usr/share/" + f.path
		data = append(data, f)
	}
	var sums []string
	for _, f := range data {
		size += len(f.data)
		sums = append(sums, fmt.Sprintf("%x  %s\n", md5.Sum(f.data), f.path))
	}
	sort.Strings(sums)
	control := fmt.Sprintf(`Package: assay-run
Version: %s
Architecture: %s
Maintainer: assay-run <assay-run@localhost>
Installed-Size: %d
Section: utils
Priority: optional
Description: run a command, record what it did, seal the evidence
 assay-run runs a command unchanged in a cgroup of its own, records with eBPF
 what it does, and seals the evidence into one bundle that anyone can verify
 offline. assay-review shows, queries, compares and judges bundles. assay-suite
 runs many tasks with many agents, with a bundle behind each verdict.
`, debVersion(version), arch, (size+1023)/1024)
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, m := range []file{
		{path: "debian-binary", data: []byte("2.0\n")},
		{path: "control.tar.gz",
			data: tarGz("", []file{{"control", 0o644, []byte(control)},
				{"md5sums", 0o644, []byte(strings.Join(sums, ""))}}, when)},
		{path: "data.tar.gz", data: tarGz("", data, when)},
	} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.path, when.Unix(), 0, 0, "100644", len(m.data))
		b.Write(m.data)
		if len(m.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// debVersion is a version that Debian's policy allows: it begins with a digit, and its only
// hyphen is the one before the package's revision.
func debVersion(v string) string {
	v = strings.ReplaceAll(strings.TrimPrefix(v, "v"), "-", "+")
	if v == "" || v[0] < '0' || v[0] > '9' {
		v = "0+" + v
	}
	return v
}
