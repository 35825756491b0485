package archive

import (
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// facts are the documents of a bundle; those that are missing or invalid are
// nil, and the rules about them have been reported already.
type facts struct {
	run         *schema.Run
	result      *schema.Result
	health      *schema.ObservationHealth
	correlation *schema.CorrelationReport
}

// documentsAgree checks what the artifacts say about each other.
func (v *verifier) documentsAgree() {
	f := facts{
		run:         decodeDocument[schema.Run](v, schema.RunPath),
		result:      decodeDocument[schema.Result](v, schema.ResultPath),
		health:      decodeDocument[schema.ObservationHealth](v, schema.HealthPath),
		correlation: decodeDocument[schema.CorrelationReport](v, schema.CorrelationPath),
	}
	for _, path := range []string{schema.PolicyFilePath, schema.SessionPath} {
		decodeDocument[struct{}](v, path)
	}
	if f.run != nil {
		v.command(f.run)
	}
	if f.health != nil {
		v.health(f)
		v.counts(f.health)
		v.redaction(f)
	}
	if doc := decodeDocument[schema.Integrity](v, schema.IntegrityPath); doc != nil {
		v.integrity(doc)
	}
	v.lifecycle(f)
	if f.result != nil {
		v.report.Complete = f.result.Outcome != schema.OutcomeIncomplete
		v.result(f.result)
	}
	v.contract(decodeDocument[schema.Contract](v, schema.ContractPath), f.result)
}

// command checks that command_raw says what command does.
func (v *verifier) command(r *schema.Run) {
	for i, raw := range r.CommandRaw {
		if i >= len(r.Command) || utf8.Valid(raw) || readable(string(raw)) != readable(r.Command[i]) {
			v.report.add(problem(CodeSchema, schema.RunPath, "command_raw has an argument %d that is not in command", i))
		}
	}
}

// readable is s with one U+FFFD for each run of them, or of bytes that are not UTF-8.
func readable(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	for strings.Contains(s, "\ufffd\ufffd") {
		s = strings.ReplaceAll(s, "\ufffd\ufffd", "\ufffd")
	}
	return s
}

// decodeDocument decodes a valid document and checks whose it is.
func decodeDocument[T any](v *verifier, path string) *T {
	data, ok := v.documents[path]
	if !ok {
		return nil
	}
	var head struct {
		RunID string `json:"run_id"`
	}
	d := new(T)
	if err := json.Unmarshal(data, d); err != nil {
		v.report.add(problem(CodeSchema, path, "%v", err))
		return nil
	}
	json.Unmarshal(data, &head)
	if head.RunID != v.manifest.RunID && (head.RunID != "" || isDocument(path)) {
		v.report.add(problem(CodeRunID, path, "run_id is %.128q, the manifest says %q", head.RunID, v.manifest.RunID))
	}
	return d
}

func (v *verifier) count(path string) uint64 { return v.report.Lines[path] }

// surface checks capability-surface.json, which may be large, as it is read.
func (v *verifier) surface(r io.Reader, size int64) error {
	path := schema.SurfacePath
	if size > maxDocument {
		v.report.add(problem(CodeLimit, path, "%d bytes, at most %d are allowed", size, maxDocument))
		return nil
	}
	runID, err := schema.ReadSurface(r, nil)
	var p *Problem
	var unsorted *schema.UnsortedError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &unsorted):
		v.report.add(problem(CodeSurface, path, "%v", err))
	case err != nil && schemaRefused(err):
		v.report.add(problem(schemaCode(err), path, "%v", err))
		return nil
	case err != nil:
		return err
	}
	if runID != v.manifest.RunID {
		v.report.add(problem(CodeRunID, path, "run_id is %.128q, the manifest says %q", runID, v.manifest.RunID))
	}
	return nil
}

// integrity holds the layers and streams against integrity.json.
func (v *verifier) integrity(doc *schema.Integrity) {
	bad := func(format string, args ...any) {
		v.report.add(problem(CodeIntegrity, schema.IntegrityPath, format, args...))
	}
	for _, path := range schema.Layers {
		name := schema.LayerName(path)
		is, listed := v.lines.integrity[name]
		says, ok := doc.Layers[name]
		switch {
		case !listed: // missing, as was reported
		case !ok:
			bad("layers has no %s", name)
		case is.Lines != says.Lines:
			bad("it lists %[2]d lines of %[1]s, but the layer has %[3]d", path, says.Lines, is.Lines)
		case is.Root != says.Root:
			bad("the lines of %s are not those that the recorder wrote: their root is %s, not %s", path, is.Root, says.Root)
		}
	}
	for name := range doc.Layers {
		if _, ok := v.lines.integrity[name]; !ok && !slices.ContainsFunc(schema.Layers, func(p string) bool { return schema.LayerName(p) == name }) {
			bad("layers has %.100q, which is not a layer", name)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(v.streams)) {
		if says, ok := doc.Members[path]; !ok || says != v.streams[path] {
			bad("the bytes of %s are not those that the recorder wrote", path)
		}
	}
	for path := range doc.Members {
		if !isStream(path) || v.manifest.Files[path].Path == "" {
			bad("members has %.100q, which is not a member below stdio/", path)
		}
	}
}
