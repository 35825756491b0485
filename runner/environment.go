package runner

import (
	"os"
	"strings"

	"github.com/assay-run/assay-run/runner/engine"
	"github.com/assay-run/assay-run/runner/gateway"
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

// EnvCgroupParent names, in the command's environment, the cgroup to put containers
// into so that they belong to the run: the value of --cgroup-parent of docker and
// podman. It is not set where the run has no cgroup of its own.
const EnvCgroupParent = engine.EnvCgroupParent

// agentEnv are the keys that are never inherited.
var agentEnv = []string{envSDKLog, envSDKSchema, EnvDecisionLog, gateway.EnvSocket, gateway.EnvURL, gateway.EnvToken, EnvToolCall, EnvCgroupParent}

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
