package runner

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/runner/engine"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/specfile"
)

// EnvDecisionLog names the file to which programs inside the run append policy decisions.
const EnvDecisionLog = "ASSAY_RUNNER_POLICY_DECISION_LOG"

// EnvCgroupParent names, in the command's environment, the cgroup for containers that are to belong to the run: the
// value of --cgroup-parent of docker and podman. It is not set if the run has no cgroup of its own.
const EnvCgroupParent = engine.EnvCgroupParent

// agentEnv are the variables that are never inherited.
var agentEnv = []string{agents.EnvLog, agents.EnvLogSchema, agents.EnvSetup, EnvDecisionLog, EnvToolCall,
	EnvCgroupParent, gateway.EnvSocket, gateway.EnvURL, gateway.EnvToken}

// environ returns the command's environment: the runner's, what the spec sets, and the run id. A later value of a key
// wins.
func environ(s *specfile.Spec) []string {
	own := map[string]string{agents.EnvRun: s.RunID}
	for _, key := range agentEnv {
		own[key] = "" // they belong to an outer run
	}
	env := make([]string, 0, len(os.Environ())+len(s.Env)+1)
	for _, kv := range os.Environ() {
		key, _, _ := strings.Cut(kv, "=")
		_, set := s.Env[key]
		if _, ours := own[key]; !set && !ours {
			env = append(env, kv)
		}
	}
	for _, k := range s.EnvKeys() {
		if k != agents.EnvRun {
			env = append(env, k+"="+s.Env[k])
		}
	}
	return append(env, agents.EnvRun+"="+s.RunID)
}

// lookupEnv returns the last value of a variable in an environment, and whether there is one.
func lookupEnv(env []string, name string) (value string, set bool) {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// lookPath finds the program as execvp(3) would in the command: in its PATH, from its working directory. A name with
// a slash is used as it is.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, set := lookupEnv(env, "PATH")
	if !set {
		path = "/usr/local/bin:/bin:/usr/bin"
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
