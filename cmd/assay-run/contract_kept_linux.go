package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/evaluation"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
	"github.com/assay-run/assay-run/schema/specfile"
)

// keptCheck judges the changes that a bundle keeps by a contract, in a copy of a clean workspace.
type keptCheck struct {
	*app
	spec    *specfile.Spec
	flags   *keptFlags
	file    string // the contract's path; empty for the bundle's contract
	quiet   bool
	session *checkSession

	in       *archive.Judged
	redactor *redact.Redactor
	changes  *schema.WorkspaceChanges
	room     string // the directory that holds copy
	copy     string
	away     sandbox.Away
	strict   *runner.StrictExecutor // nil until the copy is there
	left     []string               // what the run wrote on this host outside of the workspace
	lacking  []string               // what it wrote there and a check of the run read, but the checks here do not see
	carried  []string               // deliverables outside of the workspace that the checks here see
	missed   []string               // those that they do not see although the run left them as files
	doc      *schema.Contract
}

// checkKept is contract check with --bundle.
func checkKept(ctx context.Context, a *app, file string, spec *specfile.Spec, f *keptFlags, asJSON bool) (err error) {
	k := &keptCheck{app: a, spec: spec, flags: f, file: file, quiet: asJSON}
	if k.redactor, err = f.redact.open(); err != nil {
		return err
	}
	if err := addFiles(a.say, k.redactor, f.redact.files); err != nil {
		return err
	}
	tellShort(a.say, runner.Secrets(spec, k.redactor, append(f.redact.env, redact.DefaultEnv...)))
	if k.session, err = newCheckSession(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.session.close()) }()
	defer k.remove()
	output := f.output
	if output == "" {
		output = checkedName(f.bundle)
	}
	sealed, err := archive.Judge(ctx, f.bundle, output,
		archive.JudgeOptions{By: "assay-run " + version(), Redactor: k.redactor, Replace: f.force},
		func(in *archive.Judged) (*schema.Contract, error) { return k.judge(ctx, in) })
	switch {
	case ctx.Err() != nil:
		return console.ExitError{Code: 128 + int(syscall.SIGINT), Err: errors.New("interrupted")}
	case errors.Is(err, archive.ErrNotVerified):
		return problemExit(err, "assay-run verify %s lists every problem", f.bundle)
	case errors.Is(err, archive.ErrOutputExists):
		return console.WithHint(err, "choose another name with -o, or replace it with --force")
	case errors.Is(err, workspace.ErrOther):
		return console.WithHint(fmt.Errorf("%s: %w", f.workspace, err),
			"name a directory that is as the workspace was before the run, such as a copy that was made then")
	case err != nil:
		return err
	}
	if asJSON {
		err = a.printDocument(k.doc)
	} else {
		for _, why := range k.doc.Reasons {
			fmt.Fprintf(a.stdout, "note: %s\n", schema.OneLine(why))
		}
		_, err = fmt.Fprintf(a.stdout, "verdict: %s\n%s: identity %s, from %s\n", k.doc.Verdict,
			schema.OneLine(output), sealed.Identity, k.in.Identity)
	}
	if code := contract.ExitCode(0, k.doc.Verdict, false); err == nil && code != 0 {
		return console.ExitError{Code: code}
	}
	return err
}

// checkedName returns the default name of the new bundle: run.checked.tar.gz for run.tar.gz.
func checkedName(bundle string) string {
	dir, base := filepath.Split(bundle)
	name, ending, tar := strings.Cut(base, ".tar")
	if tar {
		ending = ".tar" + ending
	}
	return filepath.Join(dir, name+".checked"+ending)
}

// judge evaluates the contract, and puts its verdict into the bundle's result.
func (k *keptCheck) judge(ctx context.Context, in *archive.Judged) (*schema.Contract, error) {
	k.in = in
	k.redactor.Keep(in.Run.RunID)
	var err error
	if k.changes, err = in.Changes(); err != nil {
		return nil, console.WithHint(fmt.Errorf("%s: %w", k.flags.bundle, err),
			"record runs with --workspace-changes")
	}
	gate, err := k.open()
	if err != nil {
		return nil, err
	}
	defer gate.Release()
	if err := k.prepare(ctx); err != nil {
		return nil, err
	}
	if e := in.Evaluation; e != nil && e.Start != nil {
		gate.Protect(e.Evaluation.Restored(e.Workdir, e.Start), e.Evaluation.Absolute(e.Evaluation.Reward, e.Workdir))
	}
	if err := gate.Prepare(ctx); err != nil {
		return nil, err
	}
	if err := workspace.Apply(ctx, k.copy, k.changes, in.Open); err != nil {
		return nil, err
	}
	if err := k.carry(); err != nil {
		return nil, err
	}
	if k.doc, err = gate.Settle(ctx, k.notRun()); err != nil {
		return nil, err
	}
	k.doc.StrictChecks = true
	k.weigh(gate)
	contract.Rejudge(&in.Result, k.doc)
	return k.doc, nil
}

// open opens the gate of the contract. The copy of the workspace is made later.
func (k *keptCheck) open() (*contract.Gate, error) {
	room, err := os.MkdirTemp("", "assay-run-workspace-*")
	if err == nil {
		k.room, err = filepath.EvalSymlinks(room)
	}
	if err != nil {
		return nil, fmt.Errorf("make room for a copy of the workspace: %w", err)
	}
	k.copy = filepath.Join(k.room, "of")
	k.session.guard.Inherit(k.copy) // the guard then removes the room too
	opts := contract.PrepareOptions{Path: k.file, RunID: k.in.Run.RunID, Workdir: k.copy, Executor: k}
	opts.Options = contract.Options{Workdir: k.changes.Workspace, Output: k.in.Create,
		Pieces: func() *redact.Pieces { return k.redactor.Pieces(schema.ContractPath) }}
	if !k.quiet {
		opts.Options.Completed = func(_ contract.Phase, c schema.Check, r schema.CheckResult) {
			printCheck(k.stdout, c, r)
		}
	}
	if k.file == "" {
		name := "name the contract's file: assay-run contract check --bundle BUNDLE --workspace CLEAN FILE"
		if opts.Earlier = k.in.Contract; opts.Earlier == nil {
			return nil, console.WithHint(fmt.Errorf("%s: the run had no contract", k.flags.bundle), "%s", name)
		}
		if redactedContract(opts.Earlier) {
			return nil, console.WithHint(fmt.Errorf("%s: a secret was removed from the contract, so its checks cannot "+
				"be run", k.flags.bundle), "%s", name)
		}
	}
	return contract.Open(opts)
}

// redactedContract reports whether a secret was removed from a check's command or from the output
// that it expects.
func redactedContract(c *schema.Contract) bool {
	return slices.ContainsFunc(c.Contract.Checks, func(check schema.Check) bool {
		text := check.Command
		if check.OutputContains != nil {
			text += "\n" + *check.OutputContains
		}
		return strings.Contains(text, "<redacted:")
	})
}

// prepare makes the copy, and decides what the checks see outside of it.
func (k *keptCheck) prepare(ctx context.Context) error {
	skip := []string{}
	for _, name := range []string{k.flags.bundle, k.flags.output} {
		if at, err := filepath.Abs(name); err == nil && name != "" {
			skip = append(skip, at)
		}
	}
	if err := workspace.Copy(ctx, k.flags.workspace, k.copy, skip...); err != nil {
		return err
	}
	for _, dir := range k.homes() {
		real, err := filepath.EvalSymlinks(dir)
		if info, serr := os.Stat(real); err == nil && serr == nil && info.IsDir() && real != "/" {
			k.away.Empty = append(k.away.Empty, real)
		}
	}
	if err := k.survey(ctx); err != nil {
		return err
	}
	k.away.Shown = k.tools()
	if e := k.in.Evaluation; e != nil && e.Start != nil { // the agent did not see them
		for _, dir := range e.Start.Tests {
			_, err := os.Stat(dir)
			if err == nil && (schema.Below(dir, k.away.Empty...) || schema.Below(dir, sandbox.Temporary...)) {
				k.away.Shown = append(k.away.Shown, dir)
			}
		}
	}
	k.away.At = k.place()
	return nil
}

// maxLeft bounds how many paths survey looks for.
const maxLeft = 100_000

// survey looks for what the command wrote outside of its workspace: what of it is on this host, and what the checks do
// not see.
func (k *keptCheck) survey(ctx context.Context) error {
	began, err := time.Parse(time.RFC3339Nano, k.in.Run.StartedAt)
	if err != nil {
		return fmt.Errorf("started_at of the run: %w", err)
	}
	elsewhere := append([]string{"/dev", "/proc", "/sys", "/run", "/var/log", "/var/cache"}, sandbox.Temporary...)
	seen, here, read := map[string]bool{}, map[string]bool{}, map[string]bool{}
	err = k.in.Files(ctx, func(path string, how schema.Access, check bool) {
		if check {
			read[path] = read[path] || seen[path] && how&(schema.AccessRead|schema.AccessRun) != 0
			return
		}
		if how&(schema.AccessWrite|schema.AccessCreate) == 0 || seen[path] || len(seen) == maxLeft ||
			!filepath.IsAbs(path) || schema.Below(path, k.changes.Workspace) ||
			schema.Below(path, elsewhere...) && !schema.Below(path, k.away.Empty...) {
			return
		}
		seen[path] = true
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && !time.Unix(st.Ctim.Unix()).Before(began) {
			k.left = append(k.left, path)
			here[path] = !schema.Below(path, k.away.Empty...)
		}
	})
	for _, path := range slices.Sorted(maps.Keys(seen)) {
		if !here[path] && (read[path] || k.in.Contract == nil && k.asked(path)) {
			k.lacking = append(k.lacking, path)
		}
	}
	return err
}

// carry gives the checks the deliverables that the run wrote outside of its workspace, at their paths.
func (k *keptCheck) carry() error {
	k.away.Carried = map[string]string{}
	room, home := filepath.Join(k.room, "carried"), filepath.Join(k.room, "home")
	if err := errors.Join(os.Mkdir(room, 0o755), os.Mkdir(home, 0o755)); err != nil {
		return err
	}
	k.away.Home = home
	for _, a := range k.changes.Artifacts {
		name := a.Name()
		if a.After == nil || schema.Below(name, k.changes.Workspace) || !k.asked(name) {
			continue
		}
		if a.NotKept != "" {
			k.missed = append(k.missed, name)
			continue
		}
		at := name
		if !schema.Below(name, k.away.Empty...) && !schema.Below(name, sandbox.Temporary...) {
			for at = filepath.Dir(at); ; at = filepath.Dir(at) {
				if real, err := filepath.EvalSymlinks(at); err == nil {
					at = real
					break
				}
			}
			if at == "/" || strings.ContainsAny(at+room, `:,\`) { // overlayfs separates its arguments by them
				k.missed = append(k.missed, name)
				continue
			}
		}
		err := workspace.Carry(room, a, k.in.Open)
		for _, dir := range k.in.Run.Homes { // each check has another home
			if rest, in := strings.CutPrefix(name, dir+"/"); in && err == nil {
				a.SetName(rest)
				err = workspace.Carry(home, a, k.in.Open)
			}
		}
		if err != nil {
			return fmt.Errorf("carry the deliverable %s: %w", name, err)
		}
		k.away.Carried[at] = filepath.Join(room, at)
		there := func(path string) bool { return path == name }
		k.lacking, k.left = slices.DeleteFunc(k.lacking, there), slices.DeleteFunc(k.left, there)
		k.carried = append(k.carried, name)
	}
	maps.DeleteFunc(k.away.Carried, func(at, _ string) bool { // another one has it, too
		return slices.ContainsFunc(slices.Collect(maps.Keys(k.away.Carried)), func(above string) bool {
			return above != at && schema.Below(at, above)
		})
	})
	return nil
}

// asked reports whether the run's evaluation file names a path as a deliverable.
func (k *keptCheck) asked(path string) bool {
	e := k.in.Evaluation
	return e != nil && evaluation.Deliverable(e, path)
}

// lacks says of a contract that failed what its checks read of the run in place, and not here. If that was a
// deliverable, they cannot tell, unless they failed there, too. An agent gains nothing by writing elsewhere, nor by
// making its deliverable a link.
func (k *keptCheck) lacks() {
	if k.doc.Verdict != schema.VerdictFailed || len(k.lacking) == 0 {
		return
	}
	why := "the checks did not see what the run wrote outside of its workspace, and its own checks read: "
	if k.in.Contract == nil {
		why = "the checks did not see what the run wrote outside of its workspace: "
	}
	asked := slices.DeleteFunc(slices.Clone(k.lacking), func(path string) bool {
		return !slices.Contains(k.missed, path) ||
			k.in.Contract != nil && k.in.Contract.Verdict == schema.VerdictFailed
	})
	sabotaged := slices.ContainsFunc(k.doc.ProtectedChanges, func(c schema.ProtectedChange) bool {
		return c.Verdict() == schema.VerdictFailed
	})
	if len(asked) > 0 && !sabotaged {
		k.doc.Doubt(why + firstOf(asked) + ", which it was asked for")
		return
	}
	k.doc.Reasons = append(k.doc.Reasons, why+firstOf(k.lacking))
}

// tools returns the directories in a home that PATH leads to, such as ~/.cargo, and that the run
// did not change according to the kernel layer. The checks see them.
func (k *keptCheck) tools() []string {
	if k.in.Health.KernelState != schema.Complete {
		return nil
	}
	var found []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || !filepath.IsAbs(dir) {
			continue
		}
		for _, home := range k.away.Empty {
			rest, in := strings.CutPrefix(real, home+"/")
			top, _, _ := strings.Cut(rest, "/")
			tool := filepath.Join(home, top)
			if in && !slices.Contains(found, tool) && !slices.ContainsFunc(k.left, func(path string) bool {
				return schema.Below(path, tool)
			}) && !schema.Below(k.changes.Workspace, tool) {
				found = append(found, tool)
			}
		}
	}
	return found
}

// homes returns the home directories of the agent and of this user.
func (k *keptCheck) homes() []string {
	var homes []string
	if home, err := os.UserHomeDir(); err == nil {
		homes = append(homes, home)
	}
	for _, dir := range k.in.Run.Homes {
		if filepath.IsAbs(dir) {
			homes = append(homes, dir)
		}
	}
	return homes
}

// place returns where the checks see the workspace: at its old path, or "" if no directory can be
// put there.
func (k *keptCheck) place() string {
	at := k.changes.Workspace
	if real, err := filepath.EvalSymlinks(at); err == nil {
		if info, err := os.Stat(real); err == nil && info.IsDir() && real != "/" {
			return real
		}
		return ""
	}
	if slices.ContainsFunc(append(slices.Clone(k.away.Empty), sandbox.Temporary...), func(dir string) bool {
		return at != dir && schema.Below(at, dir)
	}) {
		return at
	}
	return ""
}

// Run runs a check in the copy.
func (k *keptCheck) Run(ctx context.Context, check schema.Check, index int, out io.Writer) (contract.ExitStatus,
	error) {
	if k.strict == nil {
		spec := *k.spec
		spec.Workdir, spec.Contract = k.copy, cmp.Or(k.file, k.in.Run.Contract)
		var err error
		if k.strict, err = runner.NewStrictExecutor(&spec, k.session.Session, k.session.guard, &k.away); err != nil {
			return contract.ExitStatus{}, err
		}
	}
	return k.strict.Run(ctx, check, index, out)
}

// notRun returns why no check runs, or "" if they do.
func (k *keptCheck) notRun() string {
	switch k.in.Result.Outcome {
	case schema.OutcomeCancelled:
		return "the run was cancelled"
	case schema.OutcomeIncomplete:
		return "the recorder ended before the run"
	}
	return ""
}

// weigh lowers the verdict by what the checks cannot know.
func (k *keptCheck) weigh(gate *contract.Gate) {
	protected := func(name string) bool { return gate.Protects(filepath.Join(k.copy, name)) }
	if lost := workspace.NotKept(k.changes, protected); len(lost) > 0 {
		k.doc.Doubt("the bundle does not keep all that the run left in the workspace: " + firstOf(lost))
	}
	if slices.ContainsFunc(k.in.Health.Reasons, func(r schema.Reason) bool { return r.Code == archive.CodeTampered }) {
		k.doc.Doubt("the evidence was tampered with during the run, so no verdict holds")
	}
	if earlier := k.in.Contract; earlier != nil {
		for _, c := range earlier.ProtectedChanges { // a patch does not make paths immutable
			if c.Verdict() == schema.VerdictFailed && protected(c.Path) {
				k.doc.ProtectedChanges = append(k.doc.ProtectedChanges, c)
				k.doc.Reasons = append(k.doc.Reasons, c.Path+" was made immutable by the command: that fails the "+
					"contract, whatever the checks say")
			}
		}
		k.doc.Verdict = k.doc.Weighed(k.doc.Verdict)
	}
	k.leftBehind()
	k.lacks()
	if len(k.carried) > 0 {
		k.doc.Reasons = append(k.doc.Reasons,
			"the checks saw deliverables outside of the workspace: "+firstOf(k.carried))
	}
	k.doc.Reasons = append(k.doc.Reasons, "the checks ran on the changes that the bundle "+k.in.Identity+
		" keeps, in a copy of a clean workspace")
	if k.away.At == "" {
		k.doc.Reasons = append(k.doc.Reasons,
			k.changes.Workspace+" is no directory here, so the workspace had another path")
	}
}

// leftBehind warns about files that the command wrote elsewhere on this host, such as installed programs, since the
// checks could read them.
func (k *keptCheck) leftBehind() {
	left := slices.DeleteFunc(slices.Clone(k.left), func(path string) bool {
		return schema.Below(path,
			k.away.Empty...)
	})
	why := "the checks could read what the run left on this host outside of its workspace: " + firstOf(left)
	switch {
	case len(left) == 0:
	case k.doc.Verdict == schema.VerdictPassed:
		k.doc.Doubt(why + "; judge it on another host")
	default:
		k.doc.Reasons = append(k.doc.Reasons, why)
	}
	if k.in.Health.KernelState != schema.Complete {
		k.doc.Reasons = append(k.doc.Reasons, "the kernel layer is not complete, so the checks may have read what the "+
			"run left on this host outside of its workspace")
	}
}

// firstOf names the first few of a list, and says how many more there are.
func firstOf(list []string) string {
	const named = 5
	slices.Sort(list)
	text := strings.Join(list[:min(named, len(list))], ", ")
	if more := len(list) - named; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// remove removes the copy.
func (k *keptCheck) remove() {
	if k.strict != nil {
		k.strict.Close()
	}
	if k.room == "" {
		return
	}
	if err := workspace.Remove(k.room); err != nil {
		k.say.Warning("the copy of the workspace is left in %s: %v", k.room, err)
	}
}
