package layer

import (
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// coverage tells, dimension by dimension, what the tracepoint tier watches and
// what it cannot see, and whether the run did that. A dimension without any
// live hook says so in its method and observes nothing.
func coverage(a Account) []schema.Coverage {
	s, r := a.Stats, a.Report
	done := func(b bool) *bool { return &b }
	seen := func(kinds ...schema.KernelKind) *bool {
		var n uint64
		for _, k := range kinds {
			n += s.ByKind[k]
		}
		return done(n > 0)
	}
	ring := done(r.IOUringUsed)
	dim := func(name, method string, hook kernel.HookID, observes []string, blind ...schema.BlindSpot) schema.Coverage {
		if !live(r, hook) {
			method, observes = "none", []string{}
		}
		if blind == nil {
			blind = []schema.BlindSpot{}
		}
		return schema.Coverage{Dimension: name, Method: method, Observes: observes, KnownBlindSpots: blind}
	}
	return []schema.Coverage{
		dim("process", "scheduler tracepoints", kernel.HookFork,
			[]string{"fork", "thread", "exec", "exec_failed", "exit", "leave", "join"},
			schema.BlindSpot{Name: "tasks after they left the session cgroup", Exercised: done(r.LeftCgroup > 0)},
			schema.BlindSpot{Name: "what a process did before it was moved into the session cgroup", Exercised: done(r.JoinedCgroup > 0)},
			schema.BlindSpot{Name: "code brought in by ptrace or a shared mapping rather than exec", Exercised: seen(schema.KindPtrace)}),
		dim("filesystem", "system call exits with the kernel's own path", kernel.HookOpen,
			[]string{"open", "create", "rename", "unlink", "link", "symlink", "mkdir", "rmdir", "mknod", "truncate", "chmod", "chown", "xattr", "write", "mmap_shared"},
			schema.BlindSpot{Name: "paths of failed calls, read from user memory", Exercised: nil},
			schema.BlindSpot{Name: "results of requests through io_uring", Exercised: ring},
			schema.BlindSpot{Name: "which bytes were stored through shared mappings", Exercised: seen(schema.KindMmapShared)},
			schema.BlindSpot{Name: "reads of files after they were opened", Exercised: seen(schema.KindOpen)},
			schema.BlindSpot{Name: "use of files received over unix sockets", Exercised: nil},
			schema.BlindSpot{Name: "32-bit system calls", Exercised: seen(schema.KindCompatSyscall)},
			schema.BlindSpot{Name: "the rest of paths longer than 4096 bytes or 256 components", Exercised: done(s.Cut > 0)}),
		dim("network", "cgroup socket address programs", kernel.HookConnect4,
			[]string{"connect", "bind", "listen", "accept", "sendto", "flow"},
			schema.BlindSpot{Name: "requests through io_uring", Exercised: ring},
			schema.BlindSpot{Name: "raw and packet sockets", Exercised: nil},
			schema.BlindSpot{Name: "sockets inherited or received from outside the session", Exercised: nil},
			schema.BlindSpot{Name: "address families other than IPv4, IPv6 and unix", Exercised: nil}),
		dim("dns", "packets of port 53", kernel.HookSkbIn, []string{"query", "answer"},
			schema.BlindSpot{Name: "DNS over TLS, HTTPS or QUIC", Exercised: nil},
			schema.BlindSpot{Name: "names found in files or by other services", Exercised: nil},
			schema.BlindSpot{Name: "messages that could not be parsed", Exercised: done(s.Unparsed > 0)},
			schema.BlindSpot{Name: "names beyond the number remembered", Exercised: done(s.ForgottenNames > 0)}),
		dim("tls", "the first packets of TCP connections", kernel.HookSkbOut, []string{"server_name"},
			schema.BlindSpot{Name: "encrypted ClientHello", Exercised: nil},
			schema.BlindSpot{Name: "QUIC", Exercised: nil},
			schema.BlindSpot{Name: "a ClientHello in several segments", Exercised: done(s.Unparsed > 0)}),
		dim("privilege", "system call exits", kernel.HookPrivilege,
			[]string{"setid", "capset", "ptrace", "mount", "namespace", "bpf", "memfd_create", "module", "io_uring_setup"}),
	}
}
