// Package contract implements outcome contracts: a definition of done that the runner verifies itself, whatever the
// agent says about its own work.
//
// A [contractfile.Contract] is a list of shell commands, the checks, that must pass in the working directory after the
// agent has finished. [Derive] has a model write one.
//
// [Evaluate] runs the checks through an [Executor], which contains each one, and gives a verdict: passed, failed or
// inconclusive. Failed takes precedence over inconclusive: one check that ran and did not pass decides, whatever
// happened to the others.
//
// A run uses a [Gate], in four calls:
//
//	gate, err := contract.Open(contract.PrepareOptions{
//		Path: file, RunID: id, Workdir: dir, TempDir: spoolDir, Baseline: asked,
//		Executor: contract.Shell{Dir: dir, Env: agentEnv, Group: func(name string) (contract.Group, error) {
//			return session.NewGroup(name) // check-<n>, under the session's limits
//		}},
//		Options: contract.Options{Output: recorder.Create, Clock: sinceRunStarted, Started: ..., Completed: ...},
//	})                                        // before anything is started
//	err = gate.Prepare(ctx)                   // before the agent starts
//	defer gate.Release()
//	doc, err := gate.Settle(ctx, whyNotRun)   // once the agent's cgroup is empty
//
// and exits with [ExitCode]. The document becomes contract.json even if there is an error, and its verdict goes into
// result.json. Until then, contract.json is the document that Pending returns, in case the run is interrupted.
//
// Open reads the contract and keeps its digest. Prepare copies the protected paths into an unlinked file, and
// evaluates the baseline if asked. Settle checks whether the contract file was edited meanwhile, restores the
// protected paths, evaluates the contract that Open read, and returns contract.json. A SIGKILL in between leaves
// nothing behind, since the snapshot has no name.
//
// The package imports neither runner nor cgroup: a caller that runs checks in cgroups passes its own Executor.
// [Shell] is one for a plain directory.
package contract
