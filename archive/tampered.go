package archive

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// Tampered is something in a spool that somebody else changed.
type Tampered struct {
	Path string // the member; empty for the spool itself
	What string // what happened, as the end of a sentence that begins with the member
}

func (t Tampered) String() string {
	if t.Path == "" {
		return "the spool " + t.What
	}
	return t.Path + " " + t.What
}

// exitTampered is the exit status of assay-run if evidence was tampered with.
const exitTampered = 125

// CodeTampered is the code of the reason in observation-health.json and of the error in result.json if
// [Sealed.Tampered] is not empty.
const CodeTampered = "tampered"

const tamperedVerdict = "the evidence was tampered with during the run, so no verdict holds"

// TamperedRemedy says how to prevent tampering.
const TamperedRemedy = "run the agent as another user or in a sandbox, so that it cannot reach the recorder's files"

// markTampered adds what was found to the health, the contract and the result of a run.
func markTampered(sources []source, found []Tampered) error {
	var reasons []schema.Reason
	for _, t := range found {
		subject := "spool"
		if isLayer(t.Path) {
			subject = schema.LayerName(t.Path)
		}
		reasons = append(reasons,
			schema.Reason{Subject: subject, Code: CodeTampered, Message: t.String(), Remedy: TamperedRemedy})
	}
	err := amend(sources, schema.HealthPath, func(h *schema.ObservationHealth) {
		h.Reasons = slices.DeleteFunc(h.Reasons, func(r schema.Reason) bool { return r.Code == CodeTampered })
		h.Reasons = append(h.Reasons, reasons...)
		if kernelTampered(found) && h.KernelLayer == schema.Complete {
			h.KernelLayer, h.KernelState = schema.PartialRingbufDrops, schema.Partial
		}
	})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(sources, func(src source) bool { return src.path == schema.ContractPath }) {
		err := amend(sources, schema.ContractPath, func(c *schema.Contract) { c.Doubt(tamperedVerdict) })
		if err != nil {
			return err
		}
	}
	return amend(sources, schema.ResultPath, func(r *schema.Result) { DoubtResult(r, found) })
}

// DoubtResult changes a result as markTampered changes the one in the bundle.
func DoubtResult(r *schema.Result, found []Tampered) {
	if r.Contract != nil {
		verdict := schema.VerdictInconclusive
		r.Contract, r.ContractReasons = &verdict, append(r.ContractReasons, tamperedVerdict)
	}
	code, source := exitTampered, schema.SourceRunner
	if r.RunnerExitCode != nil {
		r.RunnerExitCode = &code
	}
	if r.KernelState == schema.Complete && kernelTampered(found) {
		r.KernelState = schema.Partial
	}
	r.ErrorSource = &source
	r.Error = &schema.ResultError{Code: CodeTampered, Message: tamperedMessage(found), Hint: TamperedRemedy}
}

func kernelTampered(found []Tampered) bool {
	return slices.ContainsFunc(found, func(t Tampered) bool { return t.Path == schema.KernelPath })
}

// tamperedMessage names the first finding and counts the others.
func tamperedMessage(found []Tampered) string {
	msg := "the evidence was tampered with during the run: " + found[0].String()
	if more := len(found) - 1; more > 0 {
		msg += fmt.Sprintf(", and %d more", more)
	}
	return msg
}

// amend changes a document among sources, which is then sealed from memory.
func amend[T any](sources []source, path string, change func(*T)) error {
	i := slices.IndexFunc(sources, func(src source) bool { return src.path == path })
	if i < 0 || sources[i].size > maxDocument {
		return fmt.Errorf("%s cannot be changed", path)
	}
	var was bytes.Buffer
	if err := sources[i].copyTo(&was); err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	d := new(T)
	if err := json.Unmarshal(was.Bytes(), d); err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	change(d)
	data, err := schema.Document(d)
	if err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	sources[i] = source{path: path, size: int64(len(data)), data: data}
	return nil
}

// genuine removes members that the recorder of this run cannot have made, such as a stream of a run without capture, or
// the output of a check that the lifecycle does not announce. A planted file that the recorder could have made is not
// detected, since only the recorder knew what it made.
func genuine(dir string, run schema.Run, sources []source, checked map[string]bool) (kept []source, found []Tampered) {
	var checks []string
	if c := readDocument[schema.Contract](dir, run, schema.ContractPath); c != nil {
		for _, check := range c.Contract.Checks {
			checks = append(checks, schema.CheckOutputPath(check.Name))
		}
	}
	for _, src := range sources {
		switch {
		case isStream(src.path) && !run.Capture:
			found = append(found, notMade(src.path))
		case isLayer(src.path) && !slices.Contains(run.Layers(), src.path):
			found = append(found, notMade(src.path))
		case isLayer(src.path), isDocument(src.path), slices.Contains(recorded, src.path),
			strings.HasPrefix(src.path, schema.BlobsDir),
			slices.Contains(checks, src.path) && (checked[src.path] || src.size == 0): // a full disk loses lines
			kept = append(kept, src)
		default:
			found = append(found, notMade(src.path))
		}
	}
	return kept, bounded(found)
}

// linked returns the files of a spool that have a second name (see otherNames). They are not evidence.
func linked(dir string) (found []Tampered) {
	_ = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // errors are reported elsewhere
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return nil
		}
		path := filepath.ToSlash(rel)
		what := "has a second name elsewhere (a hard link), by which it may have been planted"
		if path != schema.RunPath {
			what += "; it is not in the bundle"
		}
		if info, err := d.Info(); err == nil && otherNames(path, info) {
			found = append(found, Tampered{path, what})
		}
		return nil
	})
	return bounded(found)
}

// recorded are further members that a recorder may make.
var recorded = []string{
	schema.ContractPath, schema.PolicyFilePath, schema.SessionPath, schema.EvaluationPath, schema.StdoutPath,
	schema.StderrPath, schema.TerminalPath, schema.ChangesPath, schema.PatchPath,
}

func notMade(path string) Tampered {
	return Tampered{What: fmt.Sprintf("has a file %.100q that the recorder did not make; it is not in the bundle",
		path)}
}

func bounded(found []Tampered) []Tampered {
	if more := len(found) - maxTampered; more > 0 {
		found = append(found[:maxTampered],
			Tampered{What: fmt.Sprintf("has %d more files that the recorder did not make", more)})
	}
	return found
}

// maxTampered limits the number of findings that are listed.
const maxTampered = 32

func wasChanged(path string, at int64) Tampered {
	return Tampered{path, fmt.Sprintf("was changed after it was written, at byte %d or later", at)}
}
