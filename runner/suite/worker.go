//go:build linux

package suite

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
)

// DefaultLease is how long a try whose worker is not heard of is waited for.
const DefaultLease = 30 * time.Second

// tailBytes is how much of what assay-run said a worker tells.
const tailBytes = 4 << 10

// Told is what a worker tells of a try.
type Told struct {
	Token string            `json:"token"`
	Began *schema.SuiteHost `json:"began,omitzero"` // the try begins
	Ended *Ended            `json:"ended,omitzero"` // it has ended
}

// Ended says how a try ended.
type Ended struct {
	// Class and Reason tell of a fault that kept assay-run from being started; both are empty for none.
	Class  string `json:"class,omitzero"`
	Reason string `json:"reason,omitzero"`
	// ExitCode is assay-run's, and Signal the name of the signal that ended it, which the worker did not send.
	ExitCode *int   `json:"exit_code"`
	Signal   string `json:"signal,omitzero"`
	// Said is the end of what assay-run said on stderr.
	Said string `json:"said,omitzero"`
	// Bundle is the bundle's path, or with Stored its name in the store; empty without one.
	Bundle string `json:"bundle,omitzero"`
	Stored bool   `json:"stored,omitzero"`
}

// line is the worker's end of a carrier.
type line interface {
	Next(ctx context.Context, into any) error
	Tell(ctx context.Context, message any) error
	Beat(token string) error
	Store(ctx context.Context, name string, r io.Reader) error
}

// Worker runs tries. Its fields are set before Run.
type Worker struct {
	// Name tells the worker from others.
	Name string
	// Dir is a directory that no other worker has. It holds the workspaces of running tries.
	Dir string
	// Program is assay-run.
	Program string
	// Jobs is how many tries run at once.
	Jobs int
	// Lease is the coordinator's: a try is said to live three times in it.
	Lease time.Duration
	Line  line
	// Local says that the coordinator sees Dir: bundles are left there.
	Local bool

	host   schema.SuiteHost
	memory memory // of the machine, for the limits of what runs
}

// Run takes tries and runs them until ctx ends; what runs then goes on. When kill ends, what runs is cancelled. It
// returns when nothing runs any more. What a dead predecessor left in Dir is ended, and removed.
func (w *Worker) Run(ctx, kill context.Context) error {
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return err
	}
	if err := w.sweep(kill); err != nil {
		return err
	}
	version, err := exec.CommandContext(kill, w.Program, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", w.Program, err)
	}
	w.host = schema.SuiteHost{Worker: w.Name, AssayRun: strings.TrimSpace(string(version)), Kernel: kernelRelease()}
	var slots sync.WaitGroup
	failed := make([]error, w.Jobs)
	for i := range w.Jobs {
		slots.Go(func() { failed[i] = w.slot(ctx, kill, i) })
	}
	slots.Wait()
	return errors.Join(failed...)
}

// localBundle is where a worker of this process leaves the bundle of the try with the token.
func localBundle(dir, token string) string { return filepath.Join(dir, "bundle-"+token) }

func (w *Worker) slotDir(i int) string { return filepath.Join(w.Dir, fmt.Sprintf("slot-%d", i)) }

// sweep removes what a predecessor left. Its runs end by themselves, since nobody holds their lifelines.
func (w *Worker) sweep(ctx context.Context) error {
	slots, err := filepath.Glob(filepath.Join(w.Dir, "slot-*"))
	if err != nil {
		return err
	}
	for _, dir := range slots {
		if err := w.recover(ctx, dir); err != nil {
			return err
		}
		if err := workspace.Remove(dir); err != nil {
			return err
		}
	}
	bundles, err := filepath.Glob(filepath.Join(w.Dir, "bundle-*"))
	for _, bundle := range bundles {
		err = errors.Join(err, os.Remove(bundle))
	}
	return err
}

// recover seals what an assay-run that died left in a slot. One that still lives is waited for.
func (w *Worker) recover(ctx context.Context, slot string) error {
	spool := filepath.Join(slot, "spool")
	for {
		left, err := os.ReadDir(spool)
		if len(left) == 0 {
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return err
		}
		out, err := exec.CommandContext(ctx, w.Program, "recover", "--all", "--spool-dir", spool).CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("the run is alive")) {
			return fmt.Errorf("recover what a dead worker left in %s: %s", slot, bytes.TrimSpace(out))
		}
		select { // a run that is alive is ending, since nobody holds its lifeline
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (w *Worker) slot(ctx, kill context.Context, i int) error {
	for {
		var work Work
		if err := w.Line.Next(ctx, &work); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		dir := w.slotDir(i)
		ended := w.try(kill, &work, i)
		err := w.Line.Tell(context.WithoutCancel(kill), Told{Token: work.Token, Ended: ended})
		if err = errors.Join(err, workspace.Remove(dir)); err != nil {
			return err
		}
	}
}

// try makes one try.
func (w *Worker) try(kill context.Context, work *Work, i int) *Ended {
	host := w.host
	host.AgentDigest = programDigest(work.Spec.Command[2])
	if err := w.Line.Tell(kill, Told{Token: work.Token, Began: &host}); err != nil {
		return &Ended{Class: schema.SuiteSetup, Reason: err.Error()}
	}
	beating, stop := context.WithCancel(context.WithoutCancel(kill))
	defer stop()
	go w.beat(beating, work.Token)
	give, err := w.memory.take(kill, int64(work.Spec.Limits.Memory))
	if err != nil {
		return &Ended{Class: schema.SuiteWorkerLost, Reason: err.Error()}
	}
	defer give()
	dir := w.slotDir(i)
	if err := w.prepare(kill, dir, work, i); err != nil {
		return setupFault(err)
	}
	ended := w.run(kill, dir, work)
	return w.hand(kill, dir, work, ended)
}

func setupFault(err error) *Ended {
	return &Ended{Class: faultClass(err.Error(), schema.SuiteSetup), Reason: err.Error()}
}

func (w *Worker) beat(ctx context.Context, token string) {
	lease := w.Lease
	if lease <= 0 {
		lease = DefaultLease
	}
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	for {
		_ = w.Line.Beat(token) // one that is lost is followed by others
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// prepare makes the slot's directory with the workspace and the files of the try.
func (w *Worker) prepare(ctx context.Context, dir string, work *Work, i int) error {
	if err := errors.Join(workspace.Remove(dir), os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	copied := filepath.Join(dir, "work")
	if err := copyWorkspace(ctx, work.Workspace, copied); err != nil {
		return fmt.Errorf("copy the workspace: %w", err)
	}
	if work.Workspace != "" {
		digest, err := DigestTree(work.Workspace)
		if info, serr := os.Stat(work.Workspace); err == nil && serr == nil && info.IsDir() {
			digest, err = DigestTree(copied)
		}
		if err != nil {
			return err
		}
		if digest != work.WorkspaceDigest {
			return fmt.Errorf("the workspace %s is not what it was when the suite began", work.Workspace)
		}
	}
	s := work.Spec
	s.Workdir = copied
	put := func(name string, data []byte) (string, error) {
		path := filepath.Join(dir, name)
		return path, os.WriteFile(path, data, 0o600)
	}
	prompt, err := put("prompt", []byte(work.Prompt))
	if err != nil {
		return err
	}
	s.Env[EnvPromptFile] = prompt
	for _, c := range []struct {
		Copy
		to *string
	}{{work.Contract, &s.Contract}, {work.Policy, &s.Policy}} {
		if c.Name == "" {
			continue
		}
		if *c.to, err = put("file-"+c.Name, c.Data); err != nil {
			return err
		}
	}
	if s.Policy != "" {
		var source []string
		if real, err := filepath.EvalSymlinks(work.Workspace); err == nil && work.Workspace != "" {
			source = []string{real}
		}
		s.Policy, err = confined(s.Policy, append([]string{w.ground()}, work.Private...), source,
			[]string{copied, prompt})
		if err != nil {
			return err
		}
	}
	work.Evaluation.Workspace = []string{copied}
	w.reserve(&work.Evaluation, i)
	evaluation, err := EvaluationFile(work.Evaluation)
	if err != nil {
		return err
	}
	if s.Evaluation, err = put("evaluation.yaml", evaluation); err != nil {
		return err
	}
	spec, err := s.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = put("spec.json", spec)
	return err
}

// run runs assay-run, which ends when this process dies or kill ends.
func (w *Worker) run(kill context.Context, dir string, work *Work) *Ended {
	r, hold, err := os.Pipe()
	if err != nil {
		return setupFault(err)
	}
	defer hold.Close()
	said := &tail{}
	cmd := exec.Command(w.Program, "run", "--spec", filepath.Join(dir, "spec.json"), "--spool-dir",
		filepath.Join(dir, "spool"),
		"-o", filepath.Join(dir, "run.tar.gz"), "--lifeline", "3")
	cmd.ExtraFiles, cmd.Stderr, cmd.Env = []*os.File{r}, said, environ(work.Env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C is for the suite
	cmd.WaitDelay = time.Second
	err = cmd.Start()
	r.Close()
	if err != nil {
		return setupFault(err)
	}
	stop := context.AfterFunc(kill, func() { hold.Close() })
	err = cmd.Wait()
	stop()
	e := &Ended{Said: said.String()}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal().String()
	} else if cmd.ProcessState != nil {
		e.ExitCode = new(cmd.ProcessState.ExitCode())
	} else {
		return setupFault(err)
	}
	return e
}

// hand hands the bundle over. A run whose recorder died is recovered.
func (w *Worker) hand(kill context.Context, dir string, work *Work, e *Ended) *Ended {
	if e.Class != "" {
		return e
	}
	bundle := filepath.Join(dir, "run.tar.gz")
	if _, err := os.Stat(bundle); err != nil {
		if err := w.recover(context.WithoutCancel(kill), dir); err != nil {
			e.Said += "\n" + err.Error()
		}
	}
	if _, err := os.Stat(bundle); err != nil {
		return e
	}
	if w.Local {
		kept := localBundle(w.Dir, work.Token)
		if err := os.Rename(bundle, kept); err != nil {
			return setupFault(err)
		}
		e.Bundle = kept
		return e
	}
	f, err := os.Open(bundle)
	if err == nil {
		err = errors.Join(w.Line.Store(context.WithoutCancel(kill), work.Token, f), f.Close())
	}
	if err != nil {
		return setupFault(fmt.Errorf("store the bundle: %w", err))
	}
	e.Bundle, e.Stored = work.Token, true
	return e
}

// environ is the environment of a run: PATH, HOME, the locale, and the variables with the names.
func environ(names []string) []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name != "PATH" && name != "HOME" && name != "LANG" && name != "LANGUAGE" &&
			!strings.HasPrefix(name, "LC_") &&
			!slices.Contains(names, name)
	})
}

// programDigest is the digest of the program that a command of sh begins with; empty if it is none.
func programDigest(command string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(command), " ")
	path, err := exec.LookPath(word)
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return ""
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// copyWorkspace makes the directory to, with the contents of a directory or a tar file.
func copyWorkspace(ctx context.Context, from, to string) error {
	if from == "" {
		return os.Mkdir(to, 0o755)
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return unpack(from, to)
	}
	return workspace.Copy(ctx, from, to)
}

// unpack makes the directory to from a tar file, whose names stay below it.
func unpack(name, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackOne(root, h, r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

func unpackOne(root *os.Root, h *tar.Header, r io.Reader) error {
	name := filepath.Clean(strings.TrimPrefix(h.Name, "/"))
	if name == "." {
		return nil
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	mode := h.FileInfo().Mode().Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return root.Chmod(name, mode)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Chmod(mode), f.Close())
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(filepath.Clean(h.Linkname), name)
	}
	return fmt.Errorf("%s is no regular file, directory or link; a workspace has nothing else", h.Name)
}

// tail keeps the end of what is written to it.
type tail struct{ data []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if over := len(t.data) - tailBytes; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.data), "\uFFFD") }
