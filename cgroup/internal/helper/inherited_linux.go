package helper

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// inherited extends extra, which become descriptors 3 and up, by the
// descriptors that the runner inherited itself without close-on-exec, each at
// its own number: they pass through to the child (a make job server's, say),
// and the joiner's own must come after them.
func inherited(extra []*os.File) (files []*os.File, closeAll func(), err error) {
	files = append(files, extra...)
	var dups []*os.File
	closeAll = func() {
		for _, f := range dups {
			f.Close()
		}
	}
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return files, closeAll, nil // without /proc the common case must do
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd < 3+len(extra) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		dups = append(dups, os.NewFile(uintptr(dup), "inherited"))
		for len(files) <= fd-3 {
			files = append(files, nil)
		}
		files[fd-3] = dups[len(dups)-1]
	}
	return files, closeAll, nil
}

// exactEnviron is the environment that was given, which os.Environ would tidy.
func exactEnviron() []string {
	b, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return os.Environ()
	}
	env := []string{}
	for e := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
		env = append(env, string(e))
	}
	return env
}
