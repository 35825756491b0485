// Package sandbox restricts a command: what it may read, write, reach and become. It can be used as a library on its
// own. The runner uses it for a run's modes.
//
// # Vocabulary
//
// [Settings] are what an operator writes in a policy file. A [Profile] is the meaning of the settings in one
// directory at one moment. [Settings.Resolve] makes it, and it never changes. Its [Plan] says for each path, socket,
// device, host and class of calls what applies and which rule decided: mounts, Landlock rules, explanations and
// judgements of failed calls are made from it. A [Sandbox] applies a profile to one command: it starts the command
// inside and runs the proxy and other helpers for it. A [Layer] is one kernel mechanism that enforces a part of the
// profile, with a report on the result.
//
// # Layers
//
//   - privileges: no_new_privs, no capabilities, the user, none of the runner's descriptors;
//   - namespaces: user (without CAP_SYS_ADMIN), mount, PID, IPC, UTS, network;
//   - files: everything is mounted read-only except what may be written; what
//     must not be read is covered; /dev, /dev/shm, /proc and /run are the run's own;
//   - network: the run has its own loopback device, with the proxy's port on it;
//   - landlock: the same file rules again, by inode instead of path, and rules for
//     abstract sockets and signals;
//   - seccomp: denies the system calls that would bypass the other layers. See filter;
//   - sockets: the command reaches no unix socket that a process outside bound, also during the run. seccomp asks the
//     runner about each connect(2), and each sendto(2) with an address, and the runner makes the call instead. Only
//     calls through unsafe pass on addresses as the command wrote them, and take rights from one thread alone.
//
// The files layer does what Landlock cannot: exceptions inside an allowed directory, and rules about metadata. The
// sandbox creates nothing in the user's directories.
//
// # Promises
//
// No layer fails silently. If a layer that the profile needs is not available, [Sandbox.Start] returns a [LayerError]
// and the command does not start. With on_unavailable: degrade the command starts, and the layer's report says what
// is missing.
//
// The calling process is never restricted. The command starts through a re-exec of this binary (see internal/shim).
// That process stays as the init of the PID namespace, and ends the command if the runner dies.
package sandbox
