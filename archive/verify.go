package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/gitpatch"
)

// maxProblems limits the problems in a report. Further ones are counted.
const maxProblems = 100

// Report is the result of [Verify].
type Report struct {
	Identity string `json:"identity"` // "sha256:..." of the manifest; empty if it cannot be read
	RunID    string `json:"run_id"`
	Members  int    `json:"members"` // manifest included
	Bytes    int64  `json:"bytes"`   // of all members, unpacked
	// Complete is true if the run's own recorder sealed the bundle: its outcome is not incomplete.
	Complete bool `json:"complete"`
	// Lines counts each layer's lines by the layer's path.
	Lines map[string]uint64 `json:"lines"`
	// Unchecked names members that this version does not know. Only their digests were checked.
	Unchecked []string `json:"unchecked,omitempty"`
	// Problems are in the order of the archive, at most 100. More counts further ones. [Verify] lists only the first
	// problem of a layer.
	Problems []Problem `json:"problems"`
	More     uint64    `json:"more_problems,omitempty"`
	// Unfinished names the layers whose lines after the last listed problem were counted, but not checked.
	Unfinished []string `json:"unfinished,omitempty"`

	seen      [len(classes)]bool // classes of the problems, in the order of classes
	manifest  *schema.Manifest   // nil if it is invalid
	documents map[string][]byte  // valid documents by path, without a large surface
}

// OK reports whether there are no problems.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// classes has the worst class first. Damage may be the reason why something is invalid.
var classes = [...]Class{Unreadable, Damaged, Invalid}

// Class returns the worst class of the report's problems; empty if there are none.
func (r *Report) Class() Class {
	if i := slices.Index(r.seen[:], true); i >= 0 {
		return classes[i]
	}
	return ""
}

func (r *Report) add(p *Problem) {
	r.seen[slices.Index(classes[:], p.Class)] = true
	if len(r.Problems) >= maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, *p)
}

// Verify checks a whole bundle: the format of the archive, every digest and size, every document and line against its
// schema, and everything that the members say about each other (see the codes in schema/SPEC.md). It uses bounded
// memory, all cores, and no network. The report lists the problems. The only error is the context's.
//
// An invalid bundle costs no more time than a valid one: Verify ends at a member that the manifest does not list, or
// lists with another size, and stops checking a layer at its first problem.
func Verify(ctx context.Context, path string) (*Report, error) { return verify(ctx, path, 1, nil) }

// VerifyAll is [Verify], but continues after a problem, up to 100 problems in each layer.
func VerifyAll(ctx context.Context, path string) (*Report, error) {
	return verify(ctx, path, maxProblems, nil)
}

func verify(ctx context.Context, path string, perLayer int, tap Tap) (*Report, error) {
	v := &verifier{
		all:     perLayer > 1,
		tap:     tap,
		report:  &Report{Lines: map[string]uint64{}, Problems: []Problem{}, documents: map[string][]byte{}},
		sizes:   map[string]int64{},
		streams: map[string]schema.MemberBytes{},
	}
	in, err := openInput(ctx, path)
	if err == nil {
		defer in.Close()
		v.lines = newLineVerifier(v.report, perLayer)
		err = v.archive(in)
		v.lines.close()
	}
	var p *Problem
	switch {
	case err == nil:
		v.documentsAgree()
	case errors.As(err, &p):
		v.report.add(p)
		// An invalid manifest may be a damaged one: the codec's checksum at the end shows it.
		if p.Class == Invalid && in != nil {
			if _, err := io.Copy(io.Discard, in); errors.As(err, &p) && p.Class == Damaged {
				v.report.add(p)
			}
		}
	default:
		return nil, fmt.Errorf("verify %s: %w", path, err)
	}
	return v.report, ctx.Err()
}

// Tap is called when a verification has read evaluation.json, which comes before the layers. The function that it
// returns is then called with each valid line of the lifecycle and the kernel layer, in order. An item is valid until
// that function returns. Its results count only if the report is OK.
type Tap func(*schema.Evaluation) func(*Item)

// verifier is one verification. Only a problem with the archive's format ends its archive method.
type verifier struct {
	report   *Report
	all      bool // continue after problems, see VerifyAll
	tap      Tap
	manifest schema.Manifest
	lines    *lineVerifier
	sizes    map[string]int64 // of the members in the archive
	held     int64            // bytes of the report's documents, at most maxDocument together
	streams  map[string]schema.MemberBytes
	kept     *keptContents // nil until workspace/changes.json is read
	buf      []byte        // of copy
}

func (v *verifier) archive(in io.Reader) error {
	w := newWalker(in)
	if err := v.readManifest(w); err != nil {
		return err
	}
	for {
		path, size, err := w.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		entry, ok := v.manifest.Files[path]
		if p := unlisted(path, size, entry, ok); p != nil {
			if !v.all {
				return p
			}
			v.report.add(p)
			if !ok {
				continue
			}
		}
		if err := v.member(w, path, size, entry); err != nil {
			return err
		}
	}
	v.report.Members = len(w.seen)
	for _, path := range slices.Sorted(maps.Keys(v.manifest.Files)) {
		if !w.seen[path] {
			v.report.add(problem(CodeMissing, path, "the manifest lists the member, the archive does not have it"))
		}
	}
	return nil
}

// readAll reads a member of at most most bytes. Memory that a wrong size makes it allocate is never touched.
func readAll(r io.Reader, path string, size, most int64) ([]byte, error) {
	if size > most {
		return nil, problem(CodeLimit, path, "%d bytes, at most %d are allowed", size, most)
	}
	var b bytes.Buffer
	b.Grow(int(size) + bytes.MinRead)
	names := nameCounter{r: r, path: path}
	_, err := b.ReadFrom(&names)
	return b.Bytes(), err
}

// nameCounter reads a document up to an object with more than maxNames names. It looks at no more than brackets, colons
// and strings, so that what it refuses costs neither memory nor time; what is no JSON is for others to refuse.
type nameCounter struct {
	r               io.Reader
	path            string
	objects         []int // names so far of the objects and arrays that are open
	string, escaped bool  // inside of a string, behind its backslash
}

func (c *nameCounter) Read(b []byte) (n int, err error) {
	n, err = c.r.Read(b)
	for _, ch := range b[:n] {
		switch {
		case c.escaped:
			c.escaped = false
		case c.string:
			c.string, c.escaped = ch != '"', ch == '\\'
		case ch == '"':
			c.string = true
		case (ch == '{' || ch == '[') && len(c.objects) <= maxDepth:
			c.objects = append(c.objects, 0)
		case (ch == '}' || ch == ']') && len(c.objects) > 0:
			c.objects = c.objects[:len(c.objects)-1]
		case ch == ':' && len(c.objects) > 0:
			if c.objects[len(c.objects)-1]++; c.objects[len(c.objects)-1] > maxNames {
				return 0, problem(CodeLimit, c.path, "an object of more than %d names", maxNames)
			}
		}
	}
	return n, err
}

// unlisted returns a problem if the manifest does not list the member with this size.
func unlisted(path string, size int64, entry schema.ManifestFile, listed bool) *Problem {
	switch {
	case !listed:
		return problem(CodeExtra, path, "the member is not in the manifest")
	case size != entry.Bytes:
		return problem(CodeSize, path, "%d bytes, the manifest says %d", size, entry.Bytes)
	}
	return nil
}

// member checks one member against its manifest entry, and its content.
func (v *verifier) member(w *walker, path string, size int64, entry schema.ManifestFile) error {
	v.report.Bytes += size
	v.sizes[path] = size
	if name, ok := strings.CutPrefix(path, schema.BlobsDir); ok && entry.SHA256 != "sha256:"+name {
		v.report.add(problem(CodeBlobName, path, "the name is not the hex digest of the bytes, %s", entry.SHA256))
	}
	h := sha256.New()
	var fault string
	var err error
	switch {
	case isLayer(path):
		v.report.Lines[path], err = v.lines.layer(io.TeeReader(w, h), path, size)
		fault = v.lines.fault
	case path == schema.SurfacePath:
		err = v.surface(io.TeeReader(w, h), size)
	case path == schema.ChangesPath:
		err = v.changes(io.TeeReader(w, h), size)
	case path == schema.PatchPath && v.kept != nil:
		err = v.patch(io.TeeReader(w, h))
	case documentSchema(path) != "":
		err = v.document(io.TeeReader(w, h), path, size)
	case isStream(path):
		c := newBytesCheck(v.lines.points.members[path])
		if err = v.copy(io.MultiWriter(c, h), w); err == nil {
			v.streams[path], fault = c.state(), c.fault()
		}
	default:
		if !isCapture(path) {
			v.report.Unchecked = append(v.report.Unchecked, path)
		}
	}
	if err != nil {
		return err
	}
	whole, err := v.checkDigest(w, h, path, entry)
	switch {
	case !whole: // one problem is enough
		delete(v.streams, path)
		delete(v.lines.integrity, schema.LayerName(path))
	case fault != "":
		v.report.add(problem(CodeIntegrity, path, "it %s: a checkpoint in %s tells", fault, schema.EventsPath))
	}
	return err
}

// copy is io.Copy with one buffer for all members.
func (v *verifier) copy(dst io.Writer, src io.Reader) error {
	if v.buf == nil {
		v.buf = make([]byte, 32<<10)
	}
	_, err := io.CopyBuffer(dst, src, v.buf)
	return err
}

func (v *verifier) checkDigest(w *walker, h hash.Hash, path string, entry schema.ManifestFile) (whole bool, err error) {
	if err := v.copy(h, w); err != nil {
		return false, err
	}
	if got := digest([sha256.Size]byte(h.Sum(nil))); got != entry.SHA256 {
		v.report.add(problem(CodeDigest, path, "its digest is %s, the manifest says %s", got, entry.SHA256))
		return false, nil
	}
	return true, nil
}

// document validates one JSON member and keeps it for documentsAgree.
func (v *verifier) document(r io.Reader, path string, size int64) error {
	doc, err := readAll(r, path, size, maxDocument-v.held)
	if p, ok := errors.AsType[*Problem](err); ok && p.Code == CodeLimit {
		v.report.add(p) // the other members can still be checked
		return nil
	}
	if err != nil {
		return err
	}
	if err := schema.Validate(documentSchema(path), doc); err != nil {
		v.report.add(problem(schemaCode(err), path, "%v", err))
		return nil
	}
	v.report.documents[path] = doc
	v.held += size
	if path == schema.EvaluationPath && v.tap != nil {
		e := &schema.Evaluation{}
		if err := json.Unmarshal(doc, e); err == nil { // documentsAgree reports an error
			v.lines.each = v.tap(e)
		}
	}
	return nil
}

// schemaRefused reports whether an error says that a document is invalid, rather than that it cannot be read.
func schemaRefused(err error) bool {
	return errors.Is(err, schema.ErrSyntax) || errors.Is(err, schema.ErrDuplicateKey) ||
		errors.Is(err, schema.ErrSchema)
}

// schemaCode returns the code for an error of package schema.
func schemaCode(err error) Code {
	switch {
	case errors.Is(err, schema.ErrDuplicateKey):
		return CodeDuplicateKey
	case errors.Is(err, schema.ErrSyntax):
		return CodeJSON
	}
	return CodeSchema
}

// readManifest reads and checks the manifest, which must be the first member.
func (v *verifier) readManifest(w *walker) error {
	path, size, err := w.next()
	if err == io.EOF {
		return problem(CodeManifestFirst, "", "the archive is empty")
	}
	if err != nil {
		return err
	}
	doc, err := manifestBytes(w, path, size)
	if err != nil {
		return err
	}
	v.report.Identity = digest(sha256.Sum256(doc))
	v.report.Bytes = size
	if v.manifest, err = parseManifest(doc); err != nil {
		return err
	}
	v.report.RunID, v.report.manifest = v.manifest.RunID, &v.manifest
	v.lines.runID = v.manifest.RunID
	for _, p := range slices.Concat(schema.Layers, documents) {
		if _, ok := v.manifest.Files[p]; !ok {
			v.report.add(problem(CodeRequired, p, "every bundle has this member, this one's manifest does not list it"))
		}
	}
	return nil
}

func manifestBytes(w *walker, path string, size int64) ([]byte, error) {
	if path != schema.ManifestPath {
		return nil, problem(CodeManifestFirst, path, "the first member is not %s", schema.ManifestPath)
	}
	return readAll(w, path, size, maxManifest)
}

// verifiedDocuments are the documents of a bundle. Missing and invalid ones have been reported, and are nil.
type verifiedDocuments struct {
	run         *schema.Run
	result      *schema.Result
	health      *schema.ObservationHealth
	correlation *schema.CorrelationReport
}

// documentsAgree checks what the members say about each other.
func (v *verifier) documentsAgree() {
	f := verifiedDocuments{
		run:         decodeDocument[schema.Run](v, schema.RunPath),
		result:      decodeDocument[schema.Result](v, schema.ResultPath),
		health:      decodeDocument[schema.ObservationHealth](v, schema.HealthPath),
		correlation: decodeDocument[schema.CorrelationReport](v, schema.CorrelationPath),
	}
	for _, path := range []string{schema.PolicyFilePath, schema.SessionPath, schema.EvaluationPath} {
		decodeDocument[struct{}](v, path)
	}
	if f.run != nil {
		v.command(f.run)
		v.model(f.run)
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

// command checks that command_raw agrees with command.
func (v *verifier) command(r *schema.Run) {
	for i, raw := range r.CommandRaw {
		if i >= len(r.Command) || utf8.Valid(raw) || schema.Readable(string(raw)) != r.Command[i] {
			v.report.add(problem(CodeSchema, schema.RunPath, "command_raw has an argument %d that is not in command",
				i))
		}
	}
}

// model checks that there is a model layer if, and only if, the run had a model gateway.
func (v *verifier) model(r *schema.Run) {
	switch _, ok := v.manifest.Files[schema.ModelPath]; {
	case r.Model != nil && !ok:
		v.report.add(problem(CodeRequired, schema.ModelPath,
			"the run had a model gateway, and the manifest does not list this layer"))
	case r.Model == nil && ok:
		v.report.add(problem(CodeSchema, schema.ModelPath, "%s says nothing of a model gateway", schema.RunPath))
	}
}

// compared are the options for documents that Validate has found valid: it has compared the names of each object.
var compared = jsontext.AllowDuplicateNames(true)

// decodeDocument decodes a valid document and checks its run_id.
func decodeDocument[T any](v *verifier, path string) *T {
	data, ok := v.report.documents[path]
	if !ok {
		return nil
	}
	var head struct {
		RunID string `json:"run_id"`
	}
	d := new(T)
	if err := json.Unmarshal(data, d, compared); err != nil {
		v.report.add(problem(CodeSchema, path, "%v", err))
		return nil
	}
	json.Unmarshal(data, &head, compared)
	if head.RunID != v.manifest.RunID && (head.RunID != "" || isDocument(path)) {
		v.report.add(problem(CodeRunID, path, "run_id is %.128q, the manifest says %q", head.RunID, v.manifest.RunID))
	}
	return d
}

func (v *verifier) count(path string) uint64 { return v.report.Lines[path] }

// surface checks capability-surface.json while it is read, since it may be large.
func (v *verifier) surface(r io.Reader, size int64) error {
	path := schema.SurfacePath
	if size > maxDocument {
		v.report.add(problem(CodeLimit, path, "%d bytes, at most %d are allowed", size, maxDocument))
		return nil
	}
	var kept bytes.Buffer
	if size <= smallSurface {
		r = io.TeeReader(r, &kept)
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
	if size <= smallSurface {
		v.report.documents[path] = kept.Bytes()
	}
	return nil
}

// smallSurface limits the surfaces that are kept while they are checked, so that a small bundle is read once.
const smallSurface = 1 << 20

// integrity compares the layers and streams with integrity.json.
func (v *verifier) integrity(doc *schema.Integrity) {
	bad := func(format string, args ...any) {
		v.report.add(problem(CodeIntegrity, schema.IntegrityPath, format, args...))
	}
	for _, path := range schema.AllLayers {
		name := schema.LayerName(path)
		is, listed := v.lines.integrity[name]
		says, ok := doc.Layers[name]
		switch {
		case !listed: // missing, which was reported
		case !ok:
			bad("layers has no %s", name)
		case is.Lines != says.Lines:
			bad("it lists %[2]d lines of %[1]s, but the layer has %[3]d", path, says.Lines, is.Lines)
		case is.Root != says.Root:
			bad("the lines of %s are not those that the recorder wrote: their root is %s, not %s", path, is.Root,
				says.Root)
		}
	}
	for name := range doc.Layers {
		if _, ok := v.lines.integrity[name]; !ok && !slices.ContainsFunc(schema.AllLayers, func(p string) bool {
			return schema.LayerName(p) == name
		}) {
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

// health checks the rules of observation health.
func (v *verifier) health(f verifiedDocuments) {
	h := f.health
	rule := func(broken bool, format string, args ...any) {
		if broken {
			v.report.add(problem(CodeHealth, schema.HealthPath, format, args...))
		}
	}
	absent := h.KernelLayer == schema.Absent
	complete := h.KernelLayer == schema.Complete
	rule(h.RingbufDrops > 0 && h.KernelLayer != schema.PartialRingbufDrops, "%d ringbuf drops, and kernel_layer is %s",
		h.RingbufDrops, h.KernelLayer)
	rule(h.KernelState != "" && h.KernelState != schema.KernelState(h.KernelLayer),
		"kernel_state is %s, and kernel_layer is %s", h.KernelState, h.KernelLayer)
	rule(h.Platform != "linux" && !absent, "kernel_layer is %s on %s", h.KernelLayer, h.Platform)
	rule(absent && h.NetworkProtocolCoverage != schema.Absent,
		"kernel_layer is absent, and network_protocol_coverage is %s", h.NetworkProtocolCoverage)
	rule(absent && h.NetworkEndpointClaimScope != schema.NotApplicable,
		"kernel_layer is absent, and network_endpoint_claim_scope is %s", h.NetworkEndpointClaimScope)
	rule(absent && v.count(schema.KernelPath) > 0, "kernel_layer is absent, and the layer has %d lines",
		v.count(schema.KernelPath))
	rule(h.PolicyLayer == schema.Absent && v.count(schema.PolicyPath) > 0,
		"policy_layer is absent, and the layer has %d lines", v.count(schema.PolicyPath))
	rule(h.SDKLayer == schema.Absent && v.count(schema.SDKPath) > 0, "sdk_layer is absent, and the layer has %d lines",
		v.count(schema.SDKPath))
	if f.run != nil {
		rule(f.run.Platform != h.Platform, "platform is %s, %s says %s", h.Platform, schema.RunPath, f.run.Platform)
		rule(f.run.AgentShim == "none" && h.SDKLayer != schema.Absent, "the agent shim is none, and sdk_layer is %s",
			h.SDKLayer)
	}
	if f.result != nil {
		rule(f.result.Outcome == schema.OutcomeIncomplete &&
			complete, "the run is incomplete, and kernel_layer is complete")
	}
	if c := f.correlation; c != nil {
		rule(h.CgroupCorrelation != schema.Clean &&
			c.Status == schema.Clean, "cgroup_correlation is %s, and %s says clean", h.CgroupCorrelation,
			schema.CorrelationPath)
		rule(len(c.Ambiguities) > 0 && c.Status == schema.Clean, "%s is clean, and has %d ambiguities",
			schema.CorrelationPath, len(c.Ambiguities))
	}
	if !complete {
		return
	}
	for _, k := range h.Hooks {
		rule(k.Fault != "", "kernel_layer is complete, and the hook %.100q was %.100s", k.Name,
			strings.ReplaceAll(k.Fault, "_", " "))
		rule(max(k.Dropped, k.FailedReads, k.RecursionMisses) > 0,
			"kernel_layer is complete, and the hook %.100q lost something", k.Name)
	}
	if c, ok := h.Layers[schema.LayerName(schema.KernelPath)]; ok {
		rule(c.Dropped > 0, "kernel_layer is complete, and %d of its events were dropped", c.Dropped)
	}
	if k := h.Kernel; k != nil {
		rule(max(k.Dropped, k.Malformed) > 0,
			"kernel_layer is complete, and %d of its events were dropped, %d malformed", k.Dropped, k.Malformed)
		rule(k.Forks != k.Exits, "kernel_layer is complete, and %d forks are not matched by %d exits", k.Forks, k.Exits)
		rule(k.LeftCgroup > 0, "kernel_layer is complete, and %d processes left the cgroup", k.LeftCgroup)
	}
}

// layers returns the layers that the bundle should have.
func (v *verifier) layers() []string {
	if _, ok := v.manifest.Files[schema.ModelPath]; ok {
		return schema.AllLayers
	}
	return schema.Layers
}

// counts checks that the counts of lines and events add up.
func (v *verifier) counts(h *schema.ObservationHealth) {
	equal := func(what string, a *big.Int, is string, b *big.Int) {
		if a.Cmp(b) != 0 {
			v.report.add(problem(CodeCounts, schema.HealthPath, "%s is %d, %s is %d", what, a, is, b))
		}
	}
	if h.Layers != nil {
		for _, path := range v.layers() {
			name := schema.LayerName(path)
			c, ok := h.Layers[name]
			if !ok {
				v.report.add(problem(CodeCounts, schema.HealthPath, "layers has no account of %s", name))
				continue
			}
			equal(name+".seen", sum(c.Seen), "written + coalesced + filtered + dropped",
				sum(c.Written, c.Coalesced, c.Filtered, c.Dropped))
			equal(name+".written", sum(c.Written), "the number of its lines", sum(v.count(path)))
		}
		for name := range h.Layers {
			if !slices.ContainsFunc(v.layers(), func(p string) bool { return schema.LayerName(p) == name }) {
				v.report.add(problem(CodeCounts, schema.HealthPath, "layers accounts for %.100q, which is not a layer",
					name))
			}
		}
	}
	var emitted []uint64
	for _, hook := range h.Hooks {
		equal("seen of hook "+hook.Name, sum(hook.Seen), "filtered + coalesced + emitted + dropped",
			sum(hook.Filtered, hook.Coalesced, hook.Emitted, hook.Dropped))
		emitted = append(emitted, hook.Emitted)
	}
	k := h.Kernel
	if k == nil {
		return
	}
	equal("kernel.emitted", sum(k.Emitted), "the sum over the hooks", sum(emitted...))
	equal("kernel.received", sum(k.Received), "kernel.emitted", sum(k.Emitted))
	equal("kernel.received", sum(k.Received), "decoded + malformed", sum(k.Decoded, k.Malformed))
	equal("kernel.decoded + drained + added", sum(k.Decoded, k.Drained, k.Added),
		"written + filtered + dropped + parts + self_test",
		sum(k.Written, k.Filtered, k.Dropped, k.Parts, k.SelfTest))
	equal("kernel.written", sum(k.Written), "the number of the layer's lines", sum(v.count(schema.KernelPath)))
}

// sum adds counts without overflow, which could hide a wrong count.
func sum(counts ...uint64) *big.Int {
	total := new(big.Int)
	for _, n := range counts {
		total.Add(total, new(big.Int).SetUint64(n))
	}
	return total
}

// lifecycle checks how events.ndjson ends, and that result.json agrees.
func (v *verifier) lifecycle(f verifiedDocuments) {
	if f.result == nil || slices.Contains(v.report.Unfinished, schema.EventsPath) {
		return
	}
	bad := func(code Code, member, format string, args ...any) {
		v.report.add(problem(code, member, format, args...))
	}
	last, ended, err := v.lines.end()
	if err != nil {
		return // reported with its line
	}
	if !ended {
		if f.result.Outcome != schema.OutcomeIncomplete {
			p := problem(CodeLifecycle, schema.EventsPath, "the last line is not %s, and the outcome is %s",
				schema.RunFinished, f.result.Outcome)
			p.Line = v.count(schema.EventsPath)
			v.report.add(p)
		}
		return
	}
	if !sameJSON(last.ExitCode, f.result.ExitCode) {
		bad(CodeResult, schema.ResultPath, "exit_code is not the %s of %s", last.ExitCode, schema.RunFinished)
	}
	name := last.Signal
	if name.Kind() == '0' && f.result.Signal != nil {
		name = last.SignalName // which the v0 form lacks
	}
	if name != nil && !sameJSON(name, f.result.Signal) {
		bad(CodeResult, schema.ResultPath, "signal is not the %s of %s", last.Signal, schema.RunFinished)
	}
}

// runEnd is the content of run_finished.
type runEnd struct {
	Type       string         `json:"type"`
	ExitCode   jsontext.Value `json:"exit_code"`
	Signal     jsontext.Value `json:"signal"`
	SignalName jsontext.Value `json:"signal_name"`
}

// sameJSON reports whether a value in a lifecycle line equals one in a document.
func sameJSON[T comparable](raw jsontext.Value, p *T) bool {
	var q *T
	if err := json.Unmarshal(raw, &q); err != nil {
		return false // another type
	}
	return p == nil && q == nil || p != nil && q != nil && *p == *q
}

// badStream reports whether a stream's counts contradict each other.
func badStream(s *schema.Stream) bool {
	kept := s.Captured - s.RedactedBytes
	return kept < 0 || kept > s.Bytes || s.Truncated != (kept < s.Bytes)
}

// result checks result.json and compares it with the captured streams.
func (v *verifier) result(r *schema.Result) {
	bad := func(format string, args ...any) {
		v.report.add(problem(CodeResult, schema.ResultPath, format, args...))
	}
	switch {
	case r.ExitCode != nil && r.Signal != nil:
		bad("there is both an exit_code and a signal")
	case r.Outcome == schema.OutcomeExited && r.ExitCode == nil:
		bad("outcome is exited, and exit_code is null")
	case r.Outcome == schema.OutcomeSignaled && r.Signal == nil:
		bad("outcome is signaled, and signal is null")
	}
	if (r.Outcome == schema.OutcomeIncomplete || r.Outcome == schema.OutcomeInfraError) && r.ErrorSource == nil {
		bad("outcome is %s, and error_source is null", r.Outcome)
	}
	for _, s := range []struct {
		path   string
		stream *schema.Stream
	}{{schema.StdoutPath, r.Stdio.Stdout}, {schema.StderrPath, r.Stdio.Stderr}} {
		size, kept := v.sizes[s.path]
		if _, listed := v.manifest.Files[s.path]; listed && !kept {
			continue // missing, which was reported
		}
		switch {
		case s.stream == nil && kept && size > 0:
			bad("%s is in the bundle, and the stream is null", s.path)
		case s.stream != nil && size != s.stream.Captured:
			bad("%d bytes of %s were captured, the bundle has %d", s.stream.Captured, s.path, size)
		case s.stream != nil && badStream(s.stream):
			bad("%s: captured %d of %d bytes, %d more by redaction, truncated %t", s.path, s.stream.Captured,
				s.stream.Bytes, s.stream.RedactedBytes, s.stream.Truncated)
		}
	}
}

// contract checks contract.json, and compares it with result.json and the outputs of its checks.
func (v *verifier) contract(c *schema.Contract, r *schema.Result) {
	bad := func(format string, args ...any) {
		v.report.add(problem(CodeContract, schema.ContractPath, format, args...))
	}
	if _, listed := v.manifest.Files[schema.ContractPath]; !listed {
		if r != nil && r.Contract != nil {
			bad("it is missing, and %s has the verdict %s", schema.ResultPath, *r.Contract)
		}
		for path := range v.sizes {
			if strings.HasPrefix(path, schema.ChecksDir) {
				bad("it is missing, and there is %s", path)
				break
			}
		}
		return
	}
	if c == nil {
		return // invalid, which was reported
	}
	if c.RunID == "" {
		bad("run_id is empty: it is the report of a contract that was checked without a run")
	}
	if r != nil {
		v.contractResult(c, r, bad)
	}
	v.contractResults(c, bad)
}

// contractResult compares the verdict with result.json.
func (v *verifier) contractResult(c *schema.Contract, r *schema.Result, bad func(string, ...any)) {
	switch {
	case r.Contract == nil:
		bad("its verdict is %s, %s has none", c.Verdict, schema.ResultPath)
	case *r.Contract != c.Verdict:
		bad("its verdict is %s, that of %s is %s", c.Verdict, schema.ResultPath, *r.Contract)
	case c.Verdict != schema.VerdictPassed && r.Outcome == schema.OutcomeExited && r.RunnerExitCode != nil &&
		*r.RunnerExitCode == 0:
		bad("its verdict is %s, and the run's exit code is 0", c.Verdict)
	case c.Verdict == schema.VerdictPassed && r.Outcome == schema.OutcomeExited && r.ErrorSource != nil &&
		*r.ErrorSource == schema.SourceContract:
		bad("its verdict is %s, and %s blames the contract", c.Verdict, schema.ResultPath)
	}
}

// contractResults checks that each result follows from its facts, and the verdict from the results.
func (v *verifier) contractResults(c *schema.Contract, bad func(string, ...any)) {
	if len(c.Results) != len(c.Contract.Checks) || c.Baseline != nil && len(c.Baseline) != len(c.Contract.Checks) {
		bad("%d checks have %d results and %d baseline results", len(c.Contract.Checks), len(c.Results),
			len(c.Baseline))
		return
	}
	outputs := map[string]bool{}
	verdict := schema.VerdictPassed
	for i, check := range c.Contract.Checks {
		res := c.Results[i]
		checkAgrees("result", check, res, bad)
		outputs[schema.CheckOutputPath(check.Name)] = true
		v.checkOutput(check, res, bad)
		switch {
		case res.Ran && !res.Passed:
			verdict = schema.VerdictFailed
		case !res.Ran && verdict == schema.VerdictPassed:
			verdict = schema.VerdictInconclusive
		}
		if c.Baseline != nil {
			checkAgrees("baseline result", check, c.Baseline[i], bad)
			if g := res.GatesNothing; g == nil || *g != c.Baseline[i].Passed {
				bad("gates_nothing of check %.100q is not whether it passed before the run", check.Name)
			}
		}
	}
	verdict = c.Weighed(verdict)
	if c.Verdict != verdict {
		bad("its verdict is %s, its results make it %s", c.Verdict, verdict)
	}
	for path := range v.sizes {
		if strings.HasPrefix(path, schema.ChecksDir) && !outputs[path] {
			bad("%s is the output of no check", path)
		}
	}
}

func checkAgrees(what string, check schema.Check, res schema.CheckResult, bad func(string, ...any)) {
	exited := !check.ExpectExitZero || res.ExitCode != nil && *res.ExitCode == 0
	found := check.OutputContains == nil || res.OutputMatched != nil && *res.OutputMatched
	switch {
	case res.Name != check.Name:
		bad("the %s of check %.100q is named %.100q", what, check.Name, res.Name)
	case res.ExitCode != nil && res.Signal != nil, res.Ran != (res.ExitCode != nil || res.Signal != nil):
		bad("the %s of check %.100q does not say how it ended", what, check.Name)
	case res.Passed != (res.Ran && !res.TimedOut && exited && found):
		bad("the %s of check %.100q says passed %t, which does not follow from how it ended", what, check.Name,
			res.Passed)
	}
}

// checkOutput compares a check's result with the member that has its output. An interrupted check may have left an
// output without a result.
func (v *verifier) checkOutput(check schema.Check, res schema.CheckResult, bad func(string, ...any)) {
	path := schema.CheckOutputPath(check.Name)
	size, kept := v.sizes[path]
	if _, listed := v.manifest.Files[path]; listed && !kept {
		return // missing, which was reported
	}
	switch {
	case res.OutputPath != "" && res.OutputPath != path:
		bad("the output of check %.100q should be in %[3]s, but its result names %[2]s", check.Name, res.OutputPath,
			path)
	case res.OutputPath != "" && !kept:
		bad("%s is not in the bundle", path)
	case res.OutputPath != "" && size != res.OutputKept, res.OutputPath == "" && res.Ran && kept:
		bad("%s has %d bytes, the result of its check says %d", path, size, res.OutputKept)
	case res.OutputKept-res.OutputRedacted > res.OutputBytes:
		bad("%d bytes of the output of check %.100q were kept, it wrote %d", res.OutputKept, check.Name,
			res.OutputBytes)
	}
}

// redaction checks that the receipt's counts add up, and that members it calls dropped are not in the bundle.
func (v *verifier) redaction(f verifiedDocuments) {
	r := f.health.Redaction
	if r == nil {
		return
	}
	adds := func(what string, total uint64, parts map[string]uint64, by string) {
		if n := sum(slices.Collect(maps.Values(parts))...); n.Cmp(sum(total)) != 0 {
			v.report.add(problem(CodeCounts, schema.HealthPath, "%s is %d, and its %s adds up to %d", what, total, by,
				n))
		}
	}
	adds("redacted_count", r.RedactedCount, r.ByRule, "by_rule")
	adds("redacted_count", r.RedactedCount, r.ByField, "by_field")
	if f.run != nil && f.run.Redaction == schema.RedactionDisabled && r.Mode == schema.RedactionEnabled {
		v.report.add(problem(CodeHealth, schema.HealthPath, "redaction is enabled, and %s says that it was disabled",
			schema.RunPath))
	}
	for _, removal := range r.Removals {
		adds("redacted_count of a removal", removal.RedactedCount, removal.ByRule, "by_rule")
		adds("redacted_count of a removal", removal.RedactedCount, removal.ByField, "by_field")
		for _, path := range removal.Dropped {
			if _, there := v.sizes[path]; there && (!isLayer(path) || v.count(path) > 0) {
				v.report.add(problem(CodeHealth, schema.HealthPath,
					"%.200q was dropped since it held a secret, and is in the bundle", path))
			}
		}
	}
}

// changes checks workspace/changes.json while it is read.
func (v *verifier) changes(r io.Reader, size int64) error {
	path := schema.ChangesPath
	if size > maxDocument {
		v.report.add(problem(CodeLimit, path, "%d bytes, at most %d are allowed", size, maxDocument))
		return nil
	}
	kept := &keptContents{}
	seen := map[string]bool{}
	doc, err := schema.ReadWorkspaceChanges(r, func(c *schema.WorkspaceChange) error {
		name := c.Name()
		if c.NotKept != schema.NotKeptRedacted && seen[name] {
			v.report.add(problem(CodeWorkspace, path, "it lists %.200q twice", c.Path))
		}
		seen[name] = true
		list, err := gitpatch.Expect(c)
		if err != nil {
			v.report.add(problem(CodeWorkspace, path, "%v", err))
		}
		for _, s := range list {
			kept.sections = append(kept.sections, expectedSection{s, c.After})
		}
		v.blob(c)
		return nil
	})
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case err != nil && schemaRefused(err):
		v.report.add(problem(schemaCode(err), path, "%v", err))
		return nil
	case err != nil:
		return err
	}
	if doc.RunID != v.manifest.RunID {
		v.report.add(problem(CodeRunID, path, "run_id is %.128q, the manifest says %q", doc.RunID, v.manifest.RunID))
	}
	if kept.bytes = doc.PatchBytes; kept.bytes > v.manifest.Files[schema.PatchPath].Bytes {
		v.report.add(problem(CodeWorkspace, path, "patch_bytes is %d, the patch has %d", kept.bytes,
			v.manifest.Files[schema.PatchPath].Bytes))
		return nil
	}
	v.kept = kept
	return nil
}

// blob checks that the bundle has the blob that a change names.
func (v *verifier) blob(c *schema.WorkspaceChange) {
	if c.Blob == "" {
		return
	}
	bytes := c.After.Bytes
	if len(c.Extents) > 0 {
		bytes = 0
		for _, e := range c.Extents {
			bytes += e.Bytes
		}
	} else if c.After.Digest == nil || *c.After.Digest != c.Blob {
		v.report.add(problem(CodeWorkspace, schema.ChangesPath, "%.200q: its blob is of another content", c.Path))
	}
	entry, ok := v.manifest.Files[schema.BlobsDir+strings.TrimPrefix(c.Blob, "sha256:")]
	if !ok || entry.Bytes != bytes {
		v.report.add(problem(CodeWorkspace, schema.ChangesPath,
			"%.200q: its blob is not in the bundle, or has another size", c.Path))
	}
}

// patch checks that workspace/changes.patch has the contents that changes.json lists, and no others.
func (v *verifier) patch(r io.Reader) error {
	bad := func(format string, args ...any) error {
		v.report.add(problem(CodeWorkspace, schema.PatchPath, format, args...))
		return nil
	}
	in := gitpatch.NewReader(io.LimitReader(r, v.kept.bytes))
	for i := 0; ; i++ {
		s, err := in.Next()
		switch {
		case err == io.EOF && i < len(v.kept.sections):
			return bad("it has %d sections, %s tells of %d", i, schema.ChangesPath, len(v.kept.sections))
		case err == io.EOF:
			return nil
		case errors.Is(err, gitpatch.ErrForm):
			return bad("section %d: %v", i+1, err)
		case err != nil:
			return err
		case i >= len(v.kept.sections) || !s.Equal(&v.kept.sections[i].Section):
			return bad("section %d, for %.200q, is not the one that %s tells of", i+1, s.Name, schema.ChangesPath)
		case !s.HasContent:
			continue
		}
		h := sha256.New()
		_, err = io.Copy(h, in)
		want := v.kept.sections[i].after
		switch got := digest([sha256.Size]byte(h.Sum(nil))); {
		case errors.Is(err, gitpatch.ErrForm):
			return bad("section %d: %v", i+1, err)
		case err != nil:
			return err
		case want.Kind == schema.KindOfFile && (want.Digest == nil || got != *want.Digest),
			want.Kind == schema.KindOfLink && got != digest(sha256.Sum256([]byte(want.LinkTarget()))):
			return bad("section %d, for %.200q, has another content than %s tells of", i+1, s.Name, schema.ChangesPath)
		}
	}
}
