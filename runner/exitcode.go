package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/assay-run/assay-run/schema"
)

// exitSignalBase plus a signal is the exit code of a command that died of it.
const exitSignalBase = 128

// startFailure classifies an error of starting the command: who is at fault, the exit code, and what the user can do.
func startFailure(command, dir string, err error) (source string, exit int, e schema.ResultError) {
	e.Message = fmt.Sprintf("start %q: %v", command, rootCause(err))
	if info, serr := os.Stat(dir); serr != nil || !info.IsDir() {
		e.Code = "workdir_unusable"
		e.Message = fmt.Sprintf("working directory %q: not a directory that can be entered", dir)
		e.Hint = "name an existing directory with --workdir"
		return schema.SourceRunner, schema.ExitRunner, e
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		e.Code = "command_not_found"
		e.Hint = "check the spelling and the PATH of the command; a script also needs the interpreter " +
			"its first line names"
		return schema.SourceChild, schema.ExitNotFound, e
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR),
		errors.Is(err, syscall.ETXTBSY), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.E2BIG),
		errors.Is(err, syscall.ENAMETOOLONG):
		e.Code = "command_not_executable"
		e.Hint = "check that it is an executable file for this machine (chmod +x; a script needs a #! line)"
		return schema.SourceChild, schema.ExitNotExecutable, e
	}
	e.Code = "start_failed"
	e.Hint = "run assay-run doctor to see what this host allows"
	return schema.SourceRunner, schema.ExitRunner, e
}

// rootCause removes wrapping that only repeats the command's name.
func rootCause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
