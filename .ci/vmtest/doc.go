// Package vmtest boots a Debian cloud kernel under qemu (software emulation) to run a
// static test binary on a kernel other than the host's: with cgroup2 alone and every
// controller, or with the BPF LSM. A Machine is what boots. Its root file system is in
// memory and holds busybox and the Files. The machine runs its Script and powers off.
//
// Only tests use it. It needs the Debian packages qemu-system-x86 (or -arm for a machine
// with that instruction set), busybox-static and linux-image-*-cloud-*. See Kernel for
// where the kernel comes from.
package vmtest
