// Package steps runs a list of system calls in a process that needs no Go runtime.
//
// Some helper processes only make calls in an order that is known before they start:
// they mount, drop privileges, fork, wait. The start of a Go program costs more than all
// of that. Here the caller compiles the calls into a [List], and a process that is started
// with [Args] executes them.
//
// # A list
//
// A list has steps and data. A step is a system call or one of [List.Set], [List.Make],
// [List.If], [List.Goto], [List.Fail] and [List.Program]. An argument of a step is a number, the address of
// data ([Ref]), or the word that is there ([Value]): a result that an earlier step put there
// with [Step.Into], or what the kernel wrote. The data is the process's own and writable.
//
// An error of a call leads where [Step.On] says. Any other is written down, with the
// number of the step, and leads where [List.OnError] says. So the list can send
// [List.Failures] to whoever made it, who knows what each step was for. A call that a signal
// interrupted is made again. After the last step the process exits with status 125.
//
//	l := steps.New()
//	pid := l.Word(0)
//	l.Call(unix.SYS_MKDIRAT, unix.AT_FDCWD, "/run/x", 0o755).Ignore(unix.EEXIST)
//	l.Call(unix.SYS_GETPID).Into(pid)
//	l.Call(unix.SYS_KILL, steps.Value(pid), unix.SIGKILL)
//	f, err := l.File() // sealed; a process that inherits it as descriptor 3 executes it:
//	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: steps.Args(3, "example"), ExtraFiles: []*os.File{f}}
//
// # Two ways in
//
// The program's entry point is this package's own code if it was linked with
// -ldflags=-E=[Entry], as `make build` does. It looks at the arguments and executes the
// list at once, on amd64 and arm64. In any other build the same arguments reach [Enter], by way of package init,
// which hands the list to the same interpreter after the runtime has started: slower, with the
// same result. The list begins with the signal mask and the ignored signals that the process
// inherited, no signal handlers, and its descriptors. The list's own descriptor is closed.
//
// File capabilities of the program are not for lists of whoever starts it: where AT_SECURE is
// set, the entry point leaves the list to Enter, which gives them up first.
package steps

// Entry is the symbol to link a program with as its entry point.
const Entry = "github.com/assay-run/assay-run/cgroup/steps.entry"
