// Package dirs keeps the processes of a session together by cgroup
// directories: <base>/assay-run/<run id> on every hierarchy in use, or a slice of
// systemd's (see slice_linux.go), with one directory per group below it. See package
// cgroup for the kinds of hosts, for where the base is, and for what the limits mean.
//
// A Host is what this machine's hierarchies allow, found by trying. A dir is
// one directory of a session or group on one hierarchy; the first of several,
// the primary one, is cgroup2's where there is one.
package dirs
