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
	"github.com/oklog/ulid/v2"

	"github.com/assay-run/assay-run/cgroup"
)

// How long a server may take: to end after it was asked to, and to say its last
// words after its own process has ended and others hold its output.
const (
	endGrace   = 2 * time.Second
	quietGrace = 10 * time.Second // without output, after the client has ended
	lastWords  = 500 * time.Millisecond
)

// Server is an MCP server that has been started: a program, or a connection to a
// remote one. It takes and gives a message a line.
type Server struct {
	In  io.WriteCloser
	Out io.Reader
	// Signal tells it of a signal that the proxy got. After SIGINT, SIGTERM or
	// SIGHUP it has two seconds to end.
	Signal func(syscall.Signal)
	// Accepted, if set, is a remote server's, which may refuse a request by HTTP, as
	// with a challenge to log in. It takes, before the first message, a function that
	// is told the id of each request that was not refused so.
	Accepted func(func(id jsontext.Value))
	// Close ends what is left of it. The error is an *exec.ExitError when the
	// program failed by itself.
	Close func() error
}

// Command is a program that is an MCP server.
type Command struct {
	Args   []string
	Env    []string // nil: that of this process
	Dir    string
	Stderr io.Writer
}

// Start starts the program. It and everything that it starts are one group, which
// ends with it, with Close, and also when this process is killed.
func (c Command) Start() (_ *Server, err error) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir, cmd.Stderr = c.Env, c.Dir, c.Stderr
	cmd.WaitDelay = endGrace // a pipe for Stderr that others hold
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Our own pipe, since Wait would close one of StdoutPipe under the reader.
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
	session *cgroup.Session // nil where there can be none
	guard   *cgroup.Guard

	ended chan struct{} // the program itself
	err   error         // of waiting for it
	once  sync.Once
	fail  error
}

func (p *process) start() error {
	// Without a group of its own the server is started all the same: that a
	// grandchild may stay is no reason not to check calls.
	session, err := cgroup.Probe().NewSession("mcp-"+ulid.Make().String(), cgroup.Limits{})
	if err == nil {
		p.session = session
		p.guard, _ = session.Guard(nil)
		err = session.Agent().Start(p.cmd)
	} else {
		p.cmd.SysProcAttr = ownGroup()
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

// close lets the server end, whose input is closed by now, asks what is left to
// end, and then ends it.
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
