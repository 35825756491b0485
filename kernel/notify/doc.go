// Package notify observes a run from inside, without any privilege: by seccomp user
// notification. It is for containers and users that may not load eBPF programs.
//
// A helper process loads a seccomp filter with a listener and then becomes the command
// ([Observer.Start]). From then on, each system call in the list of package kernel waits
// until the observer has read its arguments and lets it go on. Everything that the command
// starts inherits the filter, and no process can remove it.
//
// The events are those of package kernel, and [Observer] has the methods of
// kernel.Observer. Each event says what differs. The observer reads the arguments before
// the kernel does, so another thread can change them in between (Claimed). It does not
// learn the result of a call (Attempted). Executions are an exception: when the process
// makes its next call, the observer reads from /proc what the process executes.
//
// An [Observer] receives notifications from its listener and passes each on to one of its parts. lives finds the
// process of a task, and reports when processes begin and end. executions reports programs that are executed, sockets
// reports addresses, and reports reports all other calls. These parts read paths with names and make events with
// events, and tally counts the events.
//
// The observer knows a process by its pidfd. It reads only through descriptors that stay
// with the process when the pid is used again, or the listener confirms what it read
// (SECCOMP_IOCTL_NOTIF_ID_VALID). So it never mistakes one process for another with the
// same pid.
//
// A read of a process's memory waits if the memory belongs to a file system that does not
// answer, such as a FUSE server that hangs. After a second or two the observer gives the
// read up and goes on. The calls of that process are unreadable until it executes another
// program.
//
// If the observer dies, each of these calls fails with ENOSYS, and the run's guard ends
// the processes.
//
// # Cost
//
// A call that waits for the observer costs two switches between threads and the two
// requests that receive and answer the notification, which two threads do: see inbox. These
// are about half of the CPU time of a notified open, and no observer can avoid them: the
// benchmark shows them as a listener that reads nothing. The observer adds one call to learn whether it still knows
// the process, one to read each path, and one more for each path that is relative.
// Programs that compute between their calls make the Go runtime the larger part of the
// rest: it looks for other work whenever a thread has waited for 10 ms, and whenever a
// goroutine wakes. So the goroutine that reads the events wakes as seldom as the order of
// the events allows.
package notify
