// Package notify observes a run from inside, without any privilege: by seccomp user
// notification. It is for containers and users that may not load eBPF programs.
//
// A helper process between runner and command loads a filter with a listener and
// then becomes the command ([Observer.Start]). From then on each call of the list in
// package kernel stops in the kernel until the observer has read its arguments and
// said to go on. The filter is inherited by all that the command starts, and nothing
// can leave it.
//
// The events are those of package kernel, and [Observer] has the methods of
// kernel.Observer. What differs is said in each event: the observer reads the
// arguments before the kernel does, so another thread may have changed them by then
// (Claimed), and it does not learn how the call ends (Attempted). An execution is
// different: the observer looks at the process when that makes its next call, and
// reports what is executed then, as the kernel has it.
//
// A process is known by its pidfd. All that is read of it comes through descriptors
// that stay with the process when its pid is used again, or is confirmed by the
// listener (SECCOMP_IOCTL_NOTIF_ID_VALID). So a pid is never taken for another's.
//
// When the observer dies, the kernel answers each call with ENOSYS, and the run's
// guard ends the processes.
package notify
