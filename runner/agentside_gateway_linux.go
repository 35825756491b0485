package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/internal/rundir"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// openGateway lets the agent in, under the policy that is in force from now on.
// A run that asks for neither goes on without a gateway, and says so.
func (a *agentSide) openGateway() error {
	rules := a.access.rules
	if rules == nil && a.access.policyFile != "" {
		var err error
		if rules, err = policy.Load(a.access.policyFile); err != nil {
			return &runError{source: schema.SourceRunner, exit: ExitRunner, ResultError: schema.ResultError{Code: "policy_unusable", Message: err.Error()}}
		}
	}
	cfg := gateway.Config{
		Run: &gateway.Recording{RunID: a.log.RunID, Recorder: a.log.Recorder, TurnsFile: a.access.turnsFile},
		Now: a.log.Elapsed, Policy: rules, Turns: a.access.turns, Observer: a.calls, Warn: a.warned,
	}
	for _, s := range a.access.audit {
		cfg.Sinks = append(cfg.Sinks, gateway.NewSink(s.Name, s.Writer))
	}
	if a.access.websocket {
		cfg.Token = rand.Text()
	}
	if m := a.access.mode; m == cgroup.Unified || m == cgroup.Hybrid {
		cfg.Join = newCallGroups(a.session.nest, a.calls.Correlator).join
	}
	if kernel.HostPIDs() { // else the kernel layer has other numbers
		cfg.Own = a.ownCalls
	}
	g, err := gateway.New(cfg)
	if err == nil {
		a.gateway = g // from now on closed at the end
		err = a.listen()
	}
	if err == nil {
		return nil
	}
	if rules != nil || a.access.websocket || len(a.access.audit) > 0 {
		return sandboxError("gateway_failed", err)
	}
	a.reasons = append(a.reasons, schema.Reason{
		Subject: "gateway", Code: "no_gateway", Message: fmt.Sprintf("the agent had no socket to report tool calls to, only its logs and its tools' environment: %v", err),
		Remedy: "set TMPDIR to a directory that can be written and has a short name",
	})
	return nil
}

// ownCalls tells the correlator of a client that does its calls by itself and its
// descendants alone.
func (a *agentSide) ownCalls(conn *net.UnixConn) (uint32, error) {
	pid, pidfd, err := peer(conn)
	if err != nil {
		return 0, err
	}
	defer unix.Close(pidfd)
	a.calls.Tree(uint32(pid), a.log.Now)
	return uint32(pid), nil
}

// listen listens where the spec says. Who connects there does not act.
func (a *agentSide) listen() error {
	at, err := a.socketFor(a.inside.user())
	if err != nil {
		return err
	}
	socket, err := a.gateway.Listen("unix", at)
	if err != nil {
		return err
	}
	a.socket = socket
	a.session.outlive(filepath.Dir(socket))
	if u := a.inside.user(); u != nil {
		if err := os.Lchown(socket, u.UID, u.GID); err != nil {
			return fmt.Errorf("give the gateway's socket to the command's user: %w", err)
		}
	}
	a.calls.Own("unix:" + socket)
	if real, err := filepath.EvalSymlinks(filepath.Dir(socket)); err == nil {
		a.calls.Own("unix:" + filepath.Join(real, filepath.Base(socket)))
	}
	if !a.access.websocket {
		return nil
	}
	url, err := a.gateway.Listen("ws", "127.0.0.1:0")
	if err != nil {
		return err
	}
	a.calls.Own(strings.TrimPrefix(url, "ws://"))
	return nil
}

// socketFor is where to listen for another user, who cannot reach the usual place; empty
// stands for that. The socket alone will be the user's, not its directory: nobody can
// put another in its place.
func (a *agentSide) socketFor(u *sandbox.User) (at string, err error) {
	if u == nil {
		return "", nil
	}
	if a.socketDir, err = rundir.Open(); err != nil {
		return "", err
	}
	return filepath.Join(a.socketDir.Path, "gateway"), nil
}

// warned is told by the gateway's goroutines what a reader should know.
func (a *agentSide) warned(message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warnings = append(a.warnings, message)
}

// closeTimeout bounds what clients that are no processes of the run may still
// have to say.
const closeTimeout = 5 * time.Second

// closeGateway takes what clients that are gone have sent, and ends the session.
func (a *agentSide) closeGateway() {
	if a.gateway == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := a.gateway.Close(ctx); err != nil {
		a.missing = errors.Join(a.missing, fmt.Errorf("record what came through the gateway: %w", err))
	}
	_ = a.socketDir.Remove() // else the guard does
}
