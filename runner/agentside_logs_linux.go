package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// followLogs starts to follow the logs that there are.
func (a *agentSide) followLogs() error {
	sdkPath, err := absLog(a.sdkLog)
	if err != nil {
		return sandboxError("sdk_event_log_unusable", err)
	}
	policyPath, err := absLog(a.polLog)
	if err != nil {
		return sandboxError("policy_decision_log_unusable", err)
	}
	a.calls.Own(realPath(sdkPath), realPath(policyPath))
	if a.inside.profile != nil {
		for _, path := range []string{sdkPath, policyPath} {
			if err := makeLog(path, a.inside.user()); err != nil {
				return sandboxError("agent_log_unusable", err)
			}
		}
	}
	if sdkPath != "" {
		if a.sdk, err = agentlog.Follow(agentlog.Options{Path: sdkPath, Name: realPath(sdkPath), Now: a.log.Now, Line: a.sdkLine, Restart: a.restart, Old: true, Precise: a.calls.Open}); err != nil {
			return logError("sdk_event_log_unusable", err)
		}
		a.calls.Log(realPath(sdkPath), a.sdk.Before())
	}
	if policyPath != "" {
		var precise func() bool
		if a.sdk == nil { // else decisions do not begin or end anything
			precise = a.calls.Open
		}
		if a.policy, err = agentlog.Follow(agentlog.Options{Path: policyPath, Name: realPath(policyPath), Now: a.log.Now, Line: a.decision, Restart: func() {}, Precise: precise}); err != nil {
			return logError("policy_decision_log_unusable", err)
		}
		a.calls.Log(realPath(policyPath), a.policy.Before())
	}
	return nil
}

// makeLog makes a log that does not exist, for u. The command could not: a
// sandbox opens no names, but files, and another user may not write there.
func makeLog(path string, u *sandbox.User) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil && u != nil {
		err = f.Chown(u.UID, u.GID)
	}
	if err != nil {
		return fmt.Errorf("make the agent's log: %w", err)
	}
	return f.Close()
}

// realPath is a log's path as the kernel has it.
func realPath(path string) string {
	if path == "" {
		return ""
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return path
}

func logError(code string, err error) *runError {
	return &runError{source: schema.SourceRunner, exit: ExitRunner, ResultError: schema.ResultError{
		Code: code, Message: "follow the log: " + err.Error(), Hint: "the log's directory must exist before the command starts",
	}}
}

// known reads the logs up to t.
func (a *agentSide) known(t int64) bool {
	sdk := a.sdk == nil || a.sdk.Known(t)
	policy := a.policy == nil || a.policy.Known(t)
	return sdk && policy
}

// restart is told that the SDK's log begins anew, as its numbers then may.
func (a *agentSide) restart() { a.due, a.resync = 0, true }

// sdkLine takes in a line of the SDK's log.
func (a *agentSide) sdkLine(line []byte, _ int, at agentlog.Arrival) error {
	var e schema.SDKEvent
	if err := agentlog.DecodeSDK(line, a.log.RunID, &e); err != nil {
		a.resync = true
		return err
	}
	var gap error
	switch {
	case e.Seq < a.due:
		return fmt.Errorf("seq is %d, which an earlier line already has; expected %d", e.Seq, a.due)
	case e.Seq > a.due && !a.resync:
		gap = fmt.Errorf("seq is %d, expected %d: lines are missing before this one; this line was kept", e.Seq, a.due)
	}
	a.due, a.resync = e.Seq+1, false
	e.TNS = at.At
	if e.SDKName != "" && !writes(a.shim, e.SDKName) && len(a.strangers) < maxStrangers && !slices.Contains(a.strangers, e.SDKName) {
		a.strangers = append(a.strangers, e.SDKName)
	}
	if err := a.log.Append(schema.SDKPath, func(seq uint64) any { e.Seq = seq; return &e }); err != nil && a.sdkErr == nil {
		a.sdkErr = err
	}
	a.calls.SDK(&e, at)
	if gap != nil {
		a.kept++
	}
	return gap
}

// decision takes in a line of the policy's log.
func (a *agentSide) decision(line []byte, _ int, at agentlog.Arrival) error {
	var e schema.PolicyEvent
	if err := agentlog.DecodeDecision(line, a.log.RunID, &e); err != nil {
		return err
	}
	e.TNS = at.At
	if err := a.log.Append(schema.PolicyPath, func(seq uint64) any { e.Seq = seq; return &e }); err != nil && a.policErr == nil {
		a.policErr = err
	}
	a.calls.DecidedOn(e.Tool, e.Decision)
	a.calls.Decision(&e, at)
	return nil
}

// maxStrangers bounds how many names are told that are not the shim's.
const maxStrangers = 8

// borrowed says that another than the shim reported.
func (a *agentSide) borrowed() {
	if len(a.strangers) == 0 {
		return
	}
	a.reasons = append(a.reasons, schema.Reason{
		Subject: "sdk", Code: "sdk_name_differs",
		Message: fmt.Sprintf("the SDK event log names %q, but --agent-shim names %s: it is not certain which of them reported", a.strangers, a.shim),
		Remedy:  "name the program that reports with --agent-shim, or \"log\" for one that is not listed",
	})
}

// endLog closes a log and tells what is wrong with it, and with how many lines.
// unwritten is why lines of it could not be recorded.
func (a *agentSide) endLog(f *agentlog.Follower, subject, name string, unwritten error) (bad uint64) {
	if f == nil {
		return 0
	}
	account := f.Close()
	for _, p := range account.Problems {
		a.reasons = append(a.reasons, schema.Reason{
			Subject: subject, Code: subject + "_log_" + p.Code, Message: p.Error(), Remedy: remedies[p.Code],
		})
	}
	if account.More > 0 {
		a.reasons = append(a.reasons, schema.Reason{
			Subject: subject, Code: subject + "_log_more", Message: fmt.Sprintf("%d more problems are not listed; %d of %d lines had a problem", account.More, account.Bad, account.Lines),
		})
	}
	if account.Wrong() {
		first, others := account.Problems[0], len(account.Problems)-1+int(account.More)
		for _, p := range account.Problems {
			if p.Code == agentlog.CodeLine {
				first = p
				break
			}
		}
		err := fmt.Errorf("%s: %w", name, first)
		if others > 0 {
			err = fmt.Errorf("%w (and %d more)", err, others)
		}
		a.missing = errors.Join(a.missing, err)
	}
	if unwritten != nil {
		a.missing = errors.Join(a.missing, fmt.Errorf("record the %s: %w", name, unwritten))
	}
	return account.Bad
}

var remedies = map[string]string{
	agentlog.CodeMissing:   "let the command write it: its path is in the command's environment",
	agentlog.CodeStale:     "remove it before the run",
	agentlog.CodeNotFile:   "name a path where the command makes a regular file",
	agentlog.CodeTruncated: "let the command only append to it",
	agentlog.CodeReplaced:  "let the command only append to it",
}
