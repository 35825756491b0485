package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/schema"
)

// Limits on how long a server may take: to end after it was asked to, and to finish its output after its process has
// ended while other processes hold the output open.
const (
	endGrace   = 2 * time.Second
	quietGrace = 10 * time.Second // without output, after the client has ended
	lastWords  = 500 * time.Millisecond
)

// Server is a running MCP server: a program, or a connection to a remote server. It reads and writes one message per
// line.
type Server struct {
	In  io.WriteCloser
	Out io.Reader
	// Signal passes on a signal. After SIGINT, SIGTERM or SIGHUP the server has two seconds to end.
	Signal func(syscall.Signal)
	// Accepted is set for a remote server, which may refuse a request with an HTTP status, such as a login challenge.
	// Call it before the first message. Its argument is then called with the id of each request that was not refused.
	Accepted func(func(id jsontext.Value))
	// Close ends the server. The error is an *exec.ExitError if the program failed on its own.
	Close func() error
}

// Command is an MCP server that is a program.
type Command struct {
	Args   []string
	Env    []string // nil: this process's
	Dir    string
	Stderr io.Writer
}

// Start starts the program. The program and everything that it starts are one group. The group is ended when the
// program ends, at Close, and when this process is killed.
func (c Command) Start() (_ *Server, err error) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir, cmd.Stderr = c.Env, c.Dir, c.Stderr
	cmd.WaitDelay = endGrace // for a stderr pipe that other processes hold open
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// StdoutPipe does not work: Wait would close it while the reader reads.
	out, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = outW
	p := &process{cmd: cmd, ended: make(chan struct{})}
	err = p.start()
	outW.Close()
	if err != nil {
		out.Close()
		in.Close()
		return nil, fmt.Errorf("start the MCP server %q: %w", c.Args[0], err)
	}
	return &Server{In: in, Out: out, Signal: p.signal, Close: func() error {
		err := p.close()
		out.Close()
		in.Close()
		return err
	}}, nil
}

// process is a server's program and its group.
type process struct {
	cmd     *exec.Cmd
	session *cgroup.Session // nil if it cannot be created
	guard   *cgroup.Guard

	ended chan struct{} // closed when the program has ended
	err   error         // from waiting for it
	once  sync.Once
	fail  error
}

func (p *process) start() error {
	// Without a session, start the server anyway: a grandchild may then outlive it, but calls are still checked.
	session, err := cgroup.Probe().NewSession("mcp-"+schema.NewID(), cgroup.Limits{})
	if err == nil {
		p.session = session
		p.guard, _ = session.Guard(nil)
		err = session.Agent().Start(p.cmd)
	} else {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		err = p.cmd.Start()
	}
	if err != nil {
		p.remove()
		return err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
		time.Sleep(lastWords)
		p.kill()
	}()
	return nil
}

// signal passes a signal on to every process of the server.
func (p *process) signal(s syscall.Signal) {
	if p.session != nil {
		_ = p.session.Agent().Signal(s)
	} else {
		_ = p.cmd.Process.Signal(s)
	}
	if s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGHUP {
		time.AfterFunc(endGrace, p.kill)
	}
}

func (p *process) kill() {
	if p.session != nil {
		_ = p.session.Agent().Kill()
	} else {
		_ = p.cmd.Process.Kill()
	}
}

// close waits for the server to end; its input is already closed. If it does not end in time, close sends SIGTERM.
// Then it removes the group, which kills the rest.
func (p *process) close() error {
	p.once.Do(func() {
		select {
		case <-p.ended:
		case <-time.After(endGrace):
			p.signal(syscall.SIGTERM)
			<-p.ended
		}
		if p.session != nil {
			ctx, cancel := context.WithTimeout(context.Background(), lastWords)
			_ = p.session.Agent().Wait(ctx)
			cancel()
		}
		p.fail = errors.Join(p.remove(), p.err)
	})
	return p.fail
}

func (p *process) remove() error {
	if p.session == nil {
		return nil
	}
	err := p.session.Remove()
	if p.guard != nil {
		_ = p.guard.Release()
	}
	return err
}
