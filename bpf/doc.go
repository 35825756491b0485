// Package bpf holds the observer's eBPF programs: C sources, the objects
// compiled from them, and the Go bindings that bpf2go generates. It has no
// logic of its own; package kernel loads and attaches what is here.
//
// The programs are CO-RE: compiled per instruction set against the few kernel types in
// core.h and relocated to the running kernel when loaded. They need kernel BTF and Linux
// 6.1 (bpf_loop came with 5.17, cgroup.ancestors with 6.1). There are two objects: Words
// for kernels that have bpf_rdonly_cast, since 6.2, and Assay for those before. See word.h.
//
// What loading costs: the kernel's check of the programs is half of the CPU time of a
// first run. It takes 0.3 µs for each instruction on each way that it goes, so what functions
// have in common is a function that is not static, which is checked once, and a choice
// between two values is better a sum or a look into a table. It takes 10 µs more in the
// largest programs for each call of a helper that the kernel replaces by instructions
// (looking up an element, the CPU, the current task, bpf_loop), and as much for each stretch
// of code that is dead on this kernel, since it moves all that follows.
//
// One set of programs serves any number of sessions: see sessions.h for how they tell
// whose an event is, and state.h for the maps that each session has of its own.
//
// What an event costs the command: each read of the kernel's memory with a helper takes
// 15 to 30 ns, however small, and a read of a word as in word.h one or two. An open makes
// none of the former, unless a name of its path has more than 40 bytes. Before Linux 6.2 there
// is no word.h's way, and it makes 7 to tell that it is a repeat, and 17 to send a path of four
// names across three mounts: fields that stand together are read at once. What was read for the key is used for the
// record. A pointer that the verifier knows the type of can be followed for nothing, but
// the first step from a task takes the verifier up to a millisecond in each program. Before
// Linux 6.2, that is worth it in file_of alone.
//
// record.h is the contract with package kernel.
package bpf

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -Wall -Werror -mcpu=v3" -target amd64,arm64 -no-global-types -type record -type counter -type slot -type syscall -type address -type endpoint -type traffic -type place_of -type uring_op -type operation -type owner -type request -type session -type scope -type member -type lesson -go-package bpf Assay assay.bpf.c -- -I/usr/include
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -Wall -Werror -mcpu=v3 -DWORDS" -target amd64,arm64 -no-global-types -go-package bpf Words assay.bpf.c -- -I/usr/include
