// Package sandbox contains a command: what it may read, write, reach and
// become. It is a library of its own; the runner uses it for a run's modes.
//
// # Vocabulary
//
// [Settings] are what an operator wrote in a policy file. A [Profile] is what
// they mean in one directory at one moment: [Settings.Resolve] makes it, and it
// does not change any more. A [Sandbox] is a profile at work for one command: it
// starts the command inside and serves it. A [Layer] is one mechanism of the
// kernel's that enforces a part of the profile, and tells how that went.
//
// # Layers
//
//   - privileges: no_new_privs, no capability, the user, no descriptor of ours;
//   - namespaces: user (without CAP_SYS_ADMIN), mount, PID, IPC, UTS, network;
//   - files: everything is mounted read-only but for what may be written; what
//     must not be read is covered; /dev, /dev/shm, /proc and /run are the run's own;
//   - network: a loopback device of the run's own, and a port of the proxy's;
//   - landlock: the same rules for files once more, on inodes rather than paths,
//     abstract sockets and signals;
//   - seccomp: system calls that lead around the others. See filter.
//
// The files layer covers what Landlock cannot express: exceptions below what is
// allowed, and changes of metadata. Nothing is ever created in the user's tree.
//
// # Promises
//
// No layer fails open in silence. Where one that the profile needs cannot be
// had, [Sandbox.Start] returns a [LayerError] and the command does not start; or,
// with on_unavailable: degrade, the layer's report says what is missing.
//
// The calling process is never restricted. The command starts through a re-exec
// of this binary (see internal/shim), which stays as the init of its PID
// namespace, and ends the command when the runner is gone.
package sandbox
