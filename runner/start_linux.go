package runner

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/internal/stdio"
	"github.com/assay-run/assay-run/schema"
)

// start executes the command inside the agent's cgroup.
func (r *run) start() error {
	env := append(r.spec.environ(), r.agentSide.env()...)
	dir, err := r.spec.workdir()
	if err != nil {
		return sandboxError("workdir_unusable", err)
	}
	name := r.spec.Command[0]
	path, err := lookPath(name, dir, env)
	if err == nil {
		r.cmd = &exec.Cmd{Path: path, Args: r.spec.Command, Env: env, Dir: dir}
		r.streams.Attach(r.cmd)
		r.started = bootTime()
		err = r.execute()
	}
	if err != nil {
		source, exit, e := startFailure(name, dir, err)
		return &runError{source: source, exit: exit, ResultError: e}
	}
	r.result.Timings.SetupNS = new(int64(r.started - r.began))
	r.rec.event(schema.Event{Type: schema.ProcessStarted, PID: r.cmd.Process.Pid})
	if err := r.streams.Started(); err != nil {
		r.rec.event(schema.Event{Type: schema.RecorderError, Code: "stdio_failed", Message: err.Error()})
	}
	return nil
}

func (r *run) execute() (err error) {
	if r.streams.OwnSession() {
		r.job, err = r.agent.StartJob(r.cmd)
		return err
	}
	if !r.sharesTerminal() {
		r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	return r.agent.Start(r.cmd)
}

// sharesTerminal tells whether the command must stay in our process group to
// be able to use a terminal of ours. It then gets what the terminal sends on
// its own.
func (r *run) sharesTerminal() bool {
	if r.streams.OwnSession() || r.opt.Host.Mode() == cgroup.None {
		return false
	}
	return r.terminal() != nil
}

// terminal is the one that settings will be changed of, nil if there is none.
func (r *run) terminal() *os.File {
	for _, f := range []*os.File{r.opt.Stdin, r.opt.Stdout, r.opt.Stderr} {
		if stdio.IsTerminal(f) {
			return f
		}
	}
	return nil
}
