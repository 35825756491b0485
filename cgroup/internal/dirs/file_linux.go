package dirs

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// words reads a file of words; nil when it cannot be read.
func words(path string) []string {
	b, err := procs.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// keyed reads one value of a flat keyed cgroup file.
func keyed(path, key string) (int64, bool) {
	w := words(path)
	for i := 0; i+1 < len(w); i += 2 {
		if w[i] == key {
			n, err := strconv.ParseInt(w[i+1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// number reads a file of one number.
func number(path string) (int64, bool) {
	w := words(path)
	if len(w) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(w[0], 10, 64)
	return n, err == nil
}

// exists tells whether there is such a file.
func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }

// write writes a whole value to an existing cgroup file in one system call.
func write(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for {
		switch _, err := unix.Write(fd, []byte(value)); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return &os.PathError{Op: "write " + value + " to", Path: path, Err: err}
		}
	}
}
