// Package sockaddr attaches BPF programs to a cgroup. They decide to which addresses the cgroup's processes may
// connect, send and bind, whether or not the processes cooperate. They count each denial before they report it.
package sockaddr

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -Wall -Werror -mcpu=v3" -target bpfel -no-global-types -type denial -type tally -go-package sockaddr programs sockaddr.bpf.c -- -I/usr/include -I/usr/include/x86_64-linux-gnu
