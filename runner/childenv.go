package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/schema"
)

// Environment that every child gets on top of its own.
const envRunID = "ASSAY_RUNNER_RUN_ID"

// Environment that an agent gets where it has something to report to.
const (
	envSDKLog    = "ASSAY_RUNNER_SDK_EVENT_LOG"
	envSDKSchema = "ASSAY_RUNNER_SDK_EVENT_SCHEMA"
)

// EnvDecisionLog names the file that takes in policy decisions, for whatever
// decides inside of the run.
const EnvDecisionLog = "ASSAY_RUNNER_POLICY_DECISION_LOG"

// agentEnv are the keys that are never inherited.
var agentEnv = []string{envSDKLog, envSDKSchema, EnvDecisionLog, gateway.EnvSocket, gateway.EnvURL, gateway.EnvToken, EnvToolCall}

// environ returns the child's environment: ours, what the spec sets, and the
// run id. A later setting of a key wins.
func (s *Spec) environ() []string {
	own := map[string]string{envRunID: s.RunID}
	for _, key := range agentEnv {
		own[key] = "" // of a run around this one: it has no meaning in ours
	}
	env := make([]string, 0, len(os.Environ())+len(s.Env)+1)
	for _, kv := range os.Environ() {
		key, _, _ := strings.Cut(kv, "=")
		_, set := s.Env[key]
		if _, ours := own[key]; !set && !ours {
			env = append(env, kv)
		}
	}
	for _, k := range sortedKeys(s.Env) {
		if k != envRunID {
			env = append(env, k+"="+s.Env[k])
		}
	}
	return append(env, envRunID+"="+s.RunID)
}

// workdir returns the absolute directory the child starts in.
func (s *Spec) workdir() (string, error) {
	dir := s.Workdir
	if dir == "" {
		dir = "."
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("working directory %q: %w", dir, err)
	}
	return abs, nil
}

// lookPath finds the program as execvp(3) would in the child: by its PATH,
// from its working directory. A name with a slash is taken as it is.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/bin:/bin:/usr/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	found := error(fs.ErrNotExist)
	for _, d := range filepath.SplitList(path) {
		file := filepath.Join(d, name)
		if d == "" {
			file = "./" + name
		}
		at := file
		if !filepath.IsAbs(at) {
			at = filepath.Join(dir, at)
		}
		info, err := os.Stat(at)
		switch {
		case err != nil || info.IsDir():
			continue
		case info.Mode()&0o111 == 0:
			found = fs.ErrPermission
			continue
		}
		return file, nil
	}
	return "", found
}

// Exit codes of assay-run itself. A child may use the same numbers:
// result.json tells them apart.
const (
	ExitContractFailed       = contract.ExitFailed
	ExitContractInconclusive = contract.ExitInconclusive
	ExitTimeout              = 124
	ExitRunner               = 125
	ExitNotExecutable        = 126
	ExitNotFound             = 127
	exitSignalBase           = 128
)

// startFailure sorts an error from starting the command: whose fault it is,
// what the exit code is, and what the user can do.
func startFailure(command, dir string, err error) (source string, exit int, e schema.ResultError) {
	e.Message = fmt.Sprintf("start %q: %v", command, rootCause(err))
	if info, serr := os.Stat(dir); serr != nil || !info.IsDir() {
		e.Code = "workdir_unusable"
		e.Message = fmt.Sprintf("working directory %q: not a directory that can be entered", dir)
		e.Hint = "name an existing directory with --workdir"
		return schema.SourceRunner, ExitRunner, e
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		e.Code = "command_not_found"
		e.Hint = "check the spelling and the PATH of the command; a script also needs the interpreter its first line names"
		return schema.SourceChild, ExitNotFound, e
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR),
		errors.Is(err, syscall.ETXTBSY), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.E2BIG),
		errors.Is(err, syscall.ENAMETOOLONG):
		e.Code = "command_not_executable"
		e.Hint = "check that it is an executable file for this machine (chmod +x; a script needs a #! line)"
		return schema.SourceChild, ExitNotExecutable, e
	}
	e.Code = "start_failed"
	e.Hint = "run assay-run doctor to see what this host allows"
	return schema.SourceRunner, ExitRunner, e
}

// rootCause drops the wrapping that only repeats the command's name.
func rootCause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// absLog makes the path of a log absolute: the command may start elsewhere.
func absLog(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("log %q: %w", path, err)
	}
	return abs, nil
}
