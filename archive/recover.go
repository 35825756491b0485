package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// ErrPlanted is returned by [Recover], wrapped with the run id, if RecoverOptions.Output is empty and somebody changed
// run.json, so that the output in it may not be the run's.
var ErrPlanted = fmt.Errorf("%s was changed after the run began, or has a second name elsewhere (a hard link): "+
	"the output in it may not be the run's", schema.RunPath)

// Interrupted is the spool of a live run, or of one to recover.
type Interrupted struct {
	RunID     string   `json:"run_id"`
	Dir       string   `json:"dir"`    // the spool's directory
	Output    string   `json:"output"` // where its bundle is meant to go
	StartedAt string   `json:"started_at"`
	Command   []string `json:"command"`
	Alive     bool     `json:"alive"` // a process still records or recovers the run
	// Damage says why the spool cannot be recovered, empty if it can.
	Damage string `json:"damage,omitempty"`
}

// SpoolBeside is the name of a spool directory that is made beside a bundle, because the user's own cannot be written.
const SpoolBeside = ".assay-run"

// spoolNotes is the directory of the symbolic links to spools beside bundles, each with a run id as its name and the
// spool directory as its target. Spools can be in it, too.
func spoolNotes() string { return filepath.Join(os.TempDir(), SpoolBeside) }

// NoteSpool makes [SpoolDirs] name dir, a spool directory beside a bundle, wherever it is called.
func NoteSpool(dir, runID string) error {
	notes := spoolNotes()
	if notes == dir {
		return nil
	}
	if err := CheckSpoolParent(notes); err != nil {
		return err
	}
	if err := os.Mkdir(notes, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	err := os.Symlink(dir, filepath.Join(notes, runID))
	if errors.Is(err, os.ErrNotExist) { // another run has just removed the directory
		err = errors.Join(os.MkdirAll(notes, 0o700), os.Symlink(dir, filepath.Join(notes, runID)))
	}
	return err
}

// ForgetSpool removes the note of a run whose spool is sealed, and dir if no other run has a spool in it.
func ForgetSpool(dir, runID string) {
	if _, err := os.Lstat(filepath.Join(dir, runID)); errors.Is(err, os.ErrNotExist) {
		if link := filepath.Join(spoolNotes(), runID); isLink(link) {
			os.Remove(link)
		}
	}
	os.Remove(dir) // it stays while it holds a spool
	os.Remove(spoolNotes())
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}

// SpoolDirs returns the directories in which runs of this user can have their spools: the default one; those beside
// bundles, for runs that could not write there, of this working directory and of others by their notes; and the one
// for temporary files. It leaves out what other users could have made.
func SpoolDirs() ([]string, error) {
	var dirs []string
	own, err := DefaultSpoolDir()
	if err == nil {
		dirs = append(dirs, own)
	}
	add := func(dir string) {
		if _, serr := os.Stat(dir); serr == nil && CheckSpoolParent(dir) == nil && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	if here, werr := filepath.Abs(SpoolBeside); werr == nil {
		add(here)
	}
	notes := spoolNotes()
	add(notes)
	if slices.Contains(dirs, notes) {
		entries, _ := os.ReadDir(notes)
		for _, e := range entries {
			dir, lerr := os.Readlink(filepath.Join(notes, e.Name()))
			if lerr == nil && filepath.IsAbs(dir) && filepath.Base(dir) == SpoolBeside {
				add(dir)
			}
		}
	}
	if len(dirs) > 0 {
		err = nil
	}
	return dirs, err
}

// ListSpools lists the spools in dir, sorted by run id, and removes the rest of spools that were sealed or never
// begun. A missing dir is empty.
func ListSpools(dir string) ([]Interrupted, error) {
	sweep(dir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list spools: %w", err)
	}
	list := []Interrupted{}
	for _, e := range entries {
		if !e.IsDir() || !safeRunID(e.Name()) {
			continue
		}
		in := Interrupted{RunID: e.Name(), Dir: filepath.Join(dir, e.Name())}
		name := filepath.Join(in.Dir, schema.RunPath)
		if err := foreign(in.Dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			in.Damage = err.Error()
			list = append(list, in)
			continue
		}
		f, err := openRegular(name, os.O_RDONLY)
		if errors.Is(err, os.ErrNotExist) {
			if _, err := os.Stat(in.Dir); err != nil {
				continue // sealed meanwhile
			}
		}
		if err != nil {
			in.Damage = err.Error()
			list = append(list, in)
			continue
		}
		in.Alive = isLocked(name)
		run, err := readRun(f)
		f.Close()
		if err == nil && run.RunID != in.RunID {
			err = fmt.Errorf("it is of run %s", run.RunID)
		}
		if err != nil {
			in.Damage = fmt.Sprintf("%s: %v", name, err)
		}
		in.Output, in.StartedAt, in.Command = run.Output, run.StartedAt, run.Command
		list = append(list, in)
	}
	return list, nil
}

// RecoverOptions say how to recover.
type RecoverOptions struct {
	// Output is the path of the bundle. Empty means the run's output, or a name beside it if that is the bundle of
	// another run.
	Output string
	// Keep keeps the spool, for [ResumeSpool].
	Keep bool
	// Found says that the spool was found where a command could have made it, and not in a directory that the user
	// named or that is the default one. Then the bundle replaces only that of an earlier recovery, has the name of a
	// bundle, and no result is written.
	Found bool
	// Trial returns what follows the recorded trial of a run; nil if the run is of none. A nil func is for runs that
	// are never of a trial.
	Trial func(*schema.Run) Trial
}

// Trial completes what the recorder of a trial had not written when it was killed.
type Trial interface {
	// See gets each line of the kernel layer, in order. It must not keep the event.
	See(*schema.KernelEvent)
	// Recovered completes the evaluation, which is nil if the recorder had not written it, and returns labels of the
	// run. It is called once, after the last line.
	Recovered(*schema.Evaluation) (labels map[string]string)
}

// Recover seals the spool of an interrupted run in dir. It cuts an incomplete last line of a layer, makes missing
// documents, and marks the run as incomplete unless only its sealing was interrupted. Sealed.Notes says what it found.
// If it is killed, it can be called again. The error is [ErrAlive] if the run is recorded or recovered by another
// process, and [ErrNoSpool] if there is no spool. On an error the spool is not changed.
func Recover(ctx context.Context, dir, runID string, opt RecoverOptions) (_ Sealed, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("recover run %s: %w", runID, err)
		}
	}()
	spool, lock, run, sum, err := takeSpool(dir, runID)
	if err != nil {
		return Sealed{}, err
	}
	defer lock.Close()
	scans, points, err := scanLayers(spool, run)
	if err != nil {
		return Sealed{}, err
	}
	var trial Trial
	if opt.Trial != nil {
		trial = opt.Trial(&run)
	}
	planted := linked(spool)
	if slices.ContainsFunc(points.runs, func(d string) bool { return d != sum }) {
		planted = append(planted, Tampered{schema.RunPath, "was changed after the run began"})
	}
	if slices.ContainsFunc(planted, func(t Tampered) bool { return t.Path == schema.RunPath }) {
		if opt.Output == "" {
			return Sealed{}, ErrPlanted
		}
		run.ResultOutput = ""
	}
	var moved string
	if opt.Output != "" {
		if run.Output, err = filepath.Abs(opt.Output); err != nil {
			return Sealed{}, err
		}
	} else if beside := besideOther(run.Output, runID); beside != run.Output {
		moved = fmt.Sprintf("%s is the bundle of another run and stays: the recovered bundle is %s", run.Output, beside)
		run.Output = beside
	}
	sizes := map[string]int64{}
	for p, s := range scans {
		sizes[p] = s.size
	}
	sources, err := spoolSources(spool, sizes)
	if err != nil {
		return Sealed{}, err
	}
	sources, unmade := genuine(spool, run, sources, points.checked)
	if trial != nil {
		if sources, err = completeTrial(trial, spool, &run, sources, scans); err != nil {
			return Sealed{}, err
		}
	}
	sources, notes, err := complete(spool, run, sources, scans)
	if err != nil {
		return Sealed{}, err
	}
	integrity, found, err := recoveredIntegrity(run, sources, scans, points)
	if err != nil {
		return Sealed{}, err
	}
	sources, found = append(sources, integrity), slices.Concat(found, planted, unmade)
	// Without a checkpoint that covers run.json, somebody may have changed the outputs in it: the bundle replaces only
	// that of an earlier recovery, and the result replaces no file.
	if len(points.runs) == 0 && run.ResultOutput != "" {
		if _, err := os.Lstat(run.ResultOutput); !errors.Is(err, fs.ErrNotExist) {
			run.ResultOutput = ""
		}
	}
	replace := opt.Output != "" || len(points.runs) > 0 || isBundleOf(run.Output, runID)
	if opt.Found && opt.Output == "" {
		replace, run.ResultOutput = isBundleOf(run.Output, runID), ""
		if !strings.HasSuffix(run.Output, ".tar.gz") && !strings.HasSuffix(run.Output, ".tar.zst") {
			return Sealed{}, fmt.Errorf("%w: its bundle would be %s", ErrPlanted, run.Output)
		}
	}
	out, err := OpenOutput(run.Output, replace)
	if err != nil {
		return Sealed{}, err
	}
	defer out.Close()
	sources, removed, cleaned, err := removeCredentials(ctx, run, sources)
	if err != nil {
		return Sealed{}, err
	}
	if cleaned != nil {
		defer cleaned.Close()
	}
	if len(found) > 0 {
		if err := markTampered(sources, found); err != nil {
			return Sealed{}, err
		}
	}
	if run.Compat == CompatV0 {
		room, err := newScratch(filepath.Dir(run.Output))
		if err != nil {
			return Sealed{}, err
		}
		defer room.Close()
		v0, err := projectV0(ctx, sources, room)
		if err != nil {
			return Sealed{}, err
		}
		sources, notes = v0.members, append(notes, v0.notes...)
	}
	sealed, err := writeBundle(ctx, run, out, sources, nil)
	if err != nil {
		return Sealed{}, err
	}
	if moved != "" {
		notes = append(notes, moved)
	}
	sealed.Notes, sealed.Tampered, sealed.Removed, sealed.ResultOutput = notes, found, removed, run.ResultOutput
	sealed.Unchecked = len(points.runs) == 0
	if opt.Keep {
		return sealed, nil
	}
	return sealed, removeSpool(spool)
}

// completeTrial completes the evaluation and the labels of a trial's run. Without its sessions, an evaluation would
// take the verifier for the agent.
func completeTrial(t Trial, dir string, run *schema.Run, sources []source,
	scans map[string]*layerScan) ([]source, error) {
	var k schema.KernelEvent
	err := eachLine(layerFile(dir, schema.KernelPath), scans[schema.KernelPath].size, func(line []byte) {
		if schema.DecodeKernelEvent(line, &k) == nil {
			t.See(&k)
		}
	})
	if err != nil {
		return nil, err
	}
	e := readDocument[schema.Evaluation](dir, *run, schema.EvaluationPath)
	labels := maps.Clone(run.Labels)
	maps.Copy(labels, t.Recovered(e))
	run.Labels = labels
	sources = slices.DeleteFunc(sources, func(src source) bool { return src.path == schema.EvaluationPath })
	if e == nil {
		return sources, nil
	}
	data, err := schema.Document(e)
	return append(sources, source{path: schema.EvaluationPath, size: int64(len(data)), data: data}), err
}

// besideOther returns the path of a recovered bundle: the output, or a name beside it if that is another run's bundle.
func besideOther(output, runID string) string {
	in, err := Open(output)
	if err != nil || in.RunID() == runID {
		return output
	}
	dir, base := filepath.Split(output)
	for _, end := range []string{".tar.gz", ".tar.zst", ".tgz", ".tzst", ".tar"} {
		if name, ok := strings.CutSuffix(base, end); ok {
			return filepath.Join(dir, name+"-"+runID+end)
		}
	}
	return output + "-" + runID
}

// isBundleOf reports whether a file is a bundle of that run.
func isBundleOf(output, runID string) bool {
	in, err := Open(output)
	return err == nil && in.RunID() == runID
}

// recoveredIntegrity makes integrity.json for a spool, and returns what contradicts its checkpoints.
func recoveredIntegrity(run schema.Run, sources []source, scans map[string]*layerScan, points checkpoints) (_ source,
	found []Tampered, err error) {
	doc := schema.Integrity{Schema: schema.IntegrityV0, RunID: run.RunID,
		Checkpoint: schema.Checkpoint{Layers: map[string]schema.LayerTree{}}}
	for _, p := range run.Layers() {
		doc.Layers[schema.LayerName(p)] = scans[p].tree
		if scans[p].fault != "" {
			found = append(found, Tampered{p, scans[p].fault})
		}
	}
	streams := map[string]bool{}
	for _, src := range sources {
		if !isStream(src.path) {
			continue
		}
		streams[src.path] = true
		c := newBytesCheck(points.members[src.path])
		if err := src.copyTo(c); err != nil {
			return source{}, nil, err
		}
		if doc.Members == nil {
			doc.Members = map[string]schema.MemberBytes{}
		}
		doc.Members[src.path] = c.state()
		if fault := c.fault(); fault != "" {
			found = append(found, Tampered{src.path, fault})
		}
	}
	for _, p := range slices.Sorted(maps.Keys(points.members)) {
		if !streams[p] {
			found = append(found, Tampered{p, newBytesCheck(points.members[p]).fault()})
		}
	}
	data, err := schema.Document(doc)
	return source{path: schema.IntegrityPath, size: int64(len(data)), data: data}, found, err
}

// complete adds what a bundle needs and a spool may lack: empty layers, run.json without the output paths, and
// documents that an interrupted run did not write. The notes say what was cut or made.
func complete(dir string, run schema.Run, sources []source, scans map[string]*layerScan) (_ []source, notes []string,
	err error) {
	have := map[string]bool{}
	for _, src := range sources {
		have[src.path] = true
	}
	for _, p := range run.Layers() {
		if !have[p] {
			sources = append(sources, source{path: p})
		}
	}
	made, notes, err := madeDocuments(dir, run, have, scans)
	if err != nil {
		return nil, nil, err
	}
	sources = slices.DeleteFunc(sources, func(src source) bool { _, ok := made[src.path]; return ok })
	run.Output, run.ResultOutput = "", ""
	made[schema.RunPath] = run
	for path, v := range made {
		data, ready := v.([]byte)
		if !ready {
			if data, err = schema.Document(v); err != nil {
				return nil, nil, fmt.Errorf("make %s: %w", path, err)
			}
		}
		sources = append(sources, source{path: path, size: int64(len(data)), data: data})
	}
	return sources, notes, nil
}

// madeDocuments makes missing documents, and corrects those that wrongly say that the run ended. If scans is nil, the
// recorder itself seals the spool, and only missing documents are made.
func madeDocuments(dir string, run schema.Run, have map[string]bool, scans map[string]*layerScan) (made map[string]any,
	notes []string, err error) {
	made = map[string]any{}
	missing := slices.ContainsFunc(documents, func(p string) bool { return p != schema.RunPath && !have[p] })
	if scans == nil && !missing {
		return made, nil, nil
	}
	if scans == nil {
		if scans, _, err = scanLayers(dir, run); err != nil {
			return nil, nil, err
		}
	}
	for _, p := range run.Layers() {
		notes = append(notes, scans[p].notes...)
	}
	r := rebuild{run: run, scans: scans, result: readDocument[schema.Result](dir, run, schema.ResultPath),
		health: readDocument[schema.ObservationHealth](dir, run, schema.HealthPath)}
	surface := hasSurface(dir, run)
	correlation := readDocument[schema.CorrelationReport](dir, run, schema.CorrelationPath)
	if r.result != nil && r.health != nil && surface && correlation != nil && r.ended() {
		return made, notes, nil
	}
	notes = append(notes, "the run is sealed as incomplete")
	var about []schema.Reason // about the surface
	if !surface {
		if made[schema.SurfacePath], about, err = surfaceOf(dir, run.RunID, scans); err != nil {
			return nil, nil, err
		}
	}
	if correlation == nil {
		correlation = &schema.CorrelationReport{Bindings: []schema.Binding{}, Ambiguities: []string{"run_interrupted"}}
	}
	correlation.Schema, correlation.RunID, correlation.Status = schema.CorrelationReportV0, run.RunID, schema.Partial
	made[schema.CorrelationPath] = correlation
	made[schema.HealthPath] = r.incompleteHealth(notes, about)
	made[schema.ResultPath] = r.incompleteResult(dir, have)
	return made, notes, nil
}

// hasSurface reports whether the spool holds a surface of the run that verify accepts.
func hasSurface(dir string, run schema.Run) bool {
	f, err := openRegular(layerFile(dir, schema.SurfacePath), os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || otherNames(schema.SurfacePath, info) {
		return false
	}
	runID, err := schema.ReadSurface(io.LimitReader(f, maxDocument), nil)
	return err == nil && runID == run.RunID
}

// readDocument reads a document of the spool. It returns nil if the document is missing, incomplete, invalid, or of
// another run.
func readDocument[T any](dir string, run schema.Run, path string) *T {
	if info, err := os.Lstat(layerFile(dir, path)); err != nil || otherNames(path, info) {
		return nil
	}
	data, err := os.ReadFile(layerFile(dir, path))
	if err != nil || schema.Validate(documentSchema(path), data) != nil {
		return nil
	}
	var head struct {
		RunID string `json:"run_id"`
	}
	d := new(T)
	if json.Unmarshal(data, d) != nil || json.Unmarshal(data, &head) != nil || head.RunID != run.RunID {
		return nil
	}
	return d
}

// rebuild makes documents from what is in a spool.
type rebuild struct {
	run    schema.Run
	scans  map[string]*layerScan
	result *schema.Result            // nil if never written
	health *schema.ObservationHealth // nil if never written
}

// ended reports whether the run ended and all of it is in the spool, so that only the sealing was
// interrupted.
func (r *rebuild) ended() bool {
	if r.scans[schema.EventsPath].last.Type != schema.RunFinished {
		return false
	}
	for _, p := range r.run.Layers() {
		c, ok := r.health.Layers[schema.LayerName(p)]
		if !ok || c.Written != r.scans[p].lines || r.scans[p].torn > 0 || r.scans[p].bad > 0 {
			return false
		}
	}
	return true
}

func (r *rebuild) incompleteResult(dir string, have map[string]bool) *schema.Result {
	res := r.result
	if res == nil {
		res = &schema.Result{LimitsHit: []string{}, Limits: r.run.Limits, Stdio: schema.Stdio{Mode: schema.StdioNone}}
		for _, s := range []struct {
			path, mode string
			stream     **schema.Stream
		}{{schema.StdoutPath, "pipe", &res.Stdio.Stdout}, {schema.StderrPath, "pipe", &res.Stdio.Stderr},
			{schema.TerminalPath, "terminal", &res.Stdio.Terminal}} {
			if info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(s.path))); err == nil && have[s.path] {
				res.Stdio.Mode = s.mode
				*s.stream = &schema.Stream{Bytes: info.Size(), Captured: info.Size()}
			}
		}
	}
	if c := readDocument[schema.Contract](dir, r.run, schema.ContractPath); c != nil {
		res.Contract, res.Checks, res.ContractReasons = &c.Verdict, c.Summaries(), c.Reasons
	} else {
		res.Contract, res.Checks, res.ContractReasons = nil, nil, nil
	}
	res.StartedAt = r.run.StartedAt
	res.Labels = r.run.Labels
	source := schema.SourceRunner
	res.Schema, res.RunID, res.Outcome, res.ErrorSource = schema.ResultV0, r.run.RunID, schema.OutcomeIncomplete,
		&source
	res.RunnerExitCode = nil
	res.Error = &schema.ResultError{
		Code:    "interrupted",
		Message: "the recorder ended before the run was sealed; the bundle has what it wrote before that",
	}
	if last := r.scans[schema.EventsPath].last; last.Type == schema.RunFinished {
		res.ExitCode = pointer(last.ExitCode)
		if pointer(last.Signal) != nil {
			res.Signal = &last.SignalName
		}
	}
	return res
}

func pointer[T any](n *schema.Nullable[T]) *T {
	if n == nil || !n.Valid {
		return nil
	}
	return &n.Value
}

const uncheckedWords = "the recorder had made no checkpoint, so nothing shows whether its files were changed"

func (r *rebuild) incompleteHealth(notes []string, about []schema.Reason) *schema.ObservationHealth {
	h := r.health
	if h == nil {
		h = &schema.ObservationHealth{
			NetworkProtocolCoverage: schema.Unknown, NetworkEndpointClaimScope: schema.Unknown,
			Notes: []string{}, Hooks: []schema.Hook{}, Coverage: []schema.Coverage{},
		}
	}
	h.Schema, h.RunID, h.Platform = schema.ObservationHealthV0, r.run.RunID, r.run.Platform
	h.SetKernelLayer(schema.PartialRingbufDrops)
	if r.scans[schema.KernelPath].lines == 0 && h.RingbufDrops == 0 || h.Platform != "linux" {
		h.SetKernelLayer(schema.Absent)
		h.NetworkProtocolCoverage, h.NetworkEndpointClaimScope = schema.Absent, schema.NotApplicable
		if !slices.ContainsFunc(h.Notes, func(n string) bool { return strings.HasPrefix(n, "contract_only_mode:") }) {
			h.Notes = append(h.Notes, "contract_only_mode: no kernel events were recorded")
		}
	}
	if h.Redaction == nil {
		h.Redaction = recoveredReceipt(r.run)
	}
	h.PolicyLayer, h.SDKLayer = schema.Absent, schema.Absent
	if r.scans[schema.PolicyPath].lines > 0 {
		h.PolicyLayer = schema.Present
	}
	if r.scans[schema.SDKPath].lines > 0 {
		h.SDKLayer = schema.SelfReported
	}
	if r.run.Model != nil {
		h.ModelLayer, h.ModelPath, h.ModelFlow = schema.Partial, schema.Unknown, nil
	}
	h.CgroupCorrelation = schema.Partial
	h.Kernel = nil // its counts are not final
	h.Layers = map[string]schema.LayerCounts{}
	for _, p := range r.run.Layers() {
		s := r.scans[p]
		c := schema.LayerCounts{Written: s.lines}
		if s.torn > 0 {
			c.Dropped = 1
		}
		c.Seen = c.Written + c.Dropped
		h.Layers[schema.LayerName(p)] = c
	}
	reason := schema.Reason{
		Subject: "run", Code: "interrupted",
		Message: "the recorder ended before the run was sealed: what was not yet written is lost and not counted",
	}
	h.Reasons = slices.DeleteFunc(h.Reasons, func(x schema.Reason) bool {
		return x.Code == reason.Code || x.Code == "spool_unchecked" || x.Code == "spool_damaged"
	})
	h.Reasons = append(h.Reasons, reason)
	if a := r.run.Applied; a != nil && a.Mode.Value != "observe" {
		h.Reasons = append(h.Reasons, schema.Reason{
			Subject: "sandbox", Code: "changes_not_returned",
			Message: "the run was interrupted before assay-run could write these back: git's settings of branches, " +
				"remotes and submodules, and a login that the agent renewed",
		})
	}
	if !r.scans[schema.EventsPath].checkpoints {
		h.Reasons = append(h.Reasons, schema.Reason{Subject: "spool", Code: "spool_unchecked", Message: uncheckedWords})
	}
	for _, n := range notes[:len(notes)-1] {
		h.Reasons = append(h.Reasons, schema.Reason{Subject: "spool", Code: "spool_damaged", Message: n})
	}
	return h
}

// Alive reports whether a process records or recovers the spool in dir.
func Alive(dir string) bool { return isLocked(filepath.Join(dir, schema.RunPath)) }

// Discard removes the spool of an interrupted run in dir, with all its evidence. The error is [ErrAlive] for a live
// run, whose spool stays, and [ErrNoSpool] if there is none.
func Discard(dir, runID string) error {
	spool, lock, err := lockSpool(dir, runID)
	if err == nil {
		defer lock.Close()
		err = removeSpool(spool)
	}
	if err != nil {
		return fmt.Errorf("discard run %s: %w", runID, err)
	}
	return nil
}
