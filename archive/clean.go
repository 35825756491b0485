package archive

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// cleaner removes secrets from written members. It also updates what the members say about each other: digests of
// blobs, checkpoints, sizes of captures. It is used once.
type cleaner struct {
	memberReader
	r   *redact.Redactor
	out *scratch

	points    checkpoints                             // of the old members
	layers    map[string]map[uint64]schema.LayerTree  // of the new layers, by the old checkpoints' lines
	members   map[string]map[int64]schema.MemberBytes // of the new captures, by the old checkpoints' bytes
	integrity schema.Integrity                        // of the new members
	blobs     []string                                // pairs of old and new text about a blob, for turns
	grown     map[string]int64                        // growth of captures in bytes
	lost      map[string]uint64                       // number of lines of dropped layers
	dropped   []string                                // members from which a secret could not be removed
	patched   *patched                                // nil without a patch
	lostBlobs map[string]bool                         // old names of blobs that were changed or dropped
}

// memberReader reads written members, and notes which of them somebody has changed since.
type memberReader struct {
	ctx      context.Context
	tampered []Tampered
}

func newCleaner(ctx context.Context, r *redact.Redactor, out *scratch, runID string) *cleaner {
	return &cleaner{
		memberReader: memberReader{ctx: ctx}, r: r, out: out, layers: map[string]map[uint64]schema.LayerTree{},
		members: map[string]map[int64]schema.MemberBytes{},
		integrity: schema.Integrity{Schema: schema.IntegrityV0, RunID: runID,
			Checkpoint: schema.Checkpoint{Layers: map[string]schema.LayerTree{}}},
		grown: map[string]int64{}, lost: map[string]uint64{}, lostBlobs: map[string]bool{},
	}
}

// clean returns the members without secrets, and what was removed. It returns the documents in memory.
func (c *cleaner) clean(sources []source) ([]source, schema.Removal, error) {
	total, rules, fields := c.r.Counts()
	fail := func(err error) ([]source, schema.Removal, error) {
		return nil, schema.Removal{}, fmt.Errorf("take secrets out of %w", err)
	}
	i := slices.IndexFunc(sources, func(src source) bool { return src.path == schema.EventsPath })
	decoder := schema.NewLineDecoder(schema.EventsPath)
	err := c.lines(sources[i], func(line []byte, _ bool) error {
		if l, err := decoder.Decode(line); err == nil {
			c.points.add(l.Event)
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	var done []source
	have := map[string]bool{}
	// Members are cleaned before those that describe them.
	for _, kind := range []struct {
		is    func(string) bool
		clean func(source) (source, error)
	}{
		{func(p string) bool { return !isLayer(p) && documentSchema(p) == "" }, c.capture},
		{func(p string) bool { return isLayer(p) && p != schema.EventsPath }, c.layer},
		{func(p string) bool { return p == schema.EventsPath }, c.layer},
		{func(p string) bool { return documentSchema(p) != "" && p != schema.IntegrityPath }, c.document},
	} {
		for _, src := range sources {
			if !kind.is(src.path) {
				continue
			}
			clean, err := kind.clean(src)
			if err != nil {
				return fail(err)
			}
			if clean.path != "" && !have[clean.path] { // two blobs may have become equal
				done = append(done, clean)
				have[clean.path] = true
			}
		}
	}
	if err := c.account(done); err != nil {
		return fail(err)
	}
	doc, err := schema.Document(c.integrity)
	if err != nil {
		return fail(err)
	}
	done = append(done, source{path: schema.IntegrityPath, size: int64(len(doc)), data: doc})
	slices.Sort(c.dropped)
	return done, c.since(total, rules, fields), nil
}

// since returns what was removed since the counts had these values.
func (c *cleaner) since(total uint64, rules, fields map[string]uint64) schema.Removal {
	now, byRule, byField := c.r.Counts()
	less := func(m, before map[string]uint64) map[string]uint64 {
		for k, n := range before {
			m[k] -= n
		}
		maps.DeleteFunc(m, func(_ string, n uint64) bool { return n == 0 })
		return m
	}
	return schema.Removal{RedactedCount: now - total, ByRule: less(byRule, rules), ByField: less(byField, fields),
		Dropped: c.dropped}
}

// read calls f with a reader of a member, and notes if the member was changed.
func (m *memberReader) read(src source, f func(io.Reader) error) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	in, err := src.open()
	if err != nil {
		return err
	}
	defer in.Close()
	seen := newLedger()
	r := io.Reader(io.LimitReader(in, src.size))
	if src.wrote != nil {
		r = io.TeeReader(r, seen)
	}
	if err := f(r); err != nil {
		return fmt.Errorf("%s: %w", src.path, err)
	}
	if src.wrote == nil {
		return nil
	}
	if at := src.wrote.differs(seen); at >= 0 && !slices.ContainsFunc(m.tampered, func(t Tampered) bool {
		return t.Path == src.path
	}) {
		m.tampered = append(m.tampered, wasChanged(src.path, at))
	}
	return nil
}

// lines calls f with each line of a layer. A line without a newline, or longer than MaxLine, comes in parts, for which
// whole is false.
func (m *memberReader) lines(src source, f func(line []byte, whole bool) error) error {
	return m.read(src, func(r io.Reader) error {
		in := bufio.NewReaderSize(r, MaxLine+1)
		for {
			line, err := in.ReadSlice('\n')
			if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
				return err
			}
			if len(line) > 0 {
				if ferr := f(bytes.TrimSuffix(line, []byte{'\n'}), err == nil); ferr != nil {
					return ferr
				}
			}
			if err == io.EOF {
				return nil
			}
		}
	})
}

// capture cleans bytes that have no schema.
func (c *cleaner) capture(src source) (source, error) {
	if src.path == schema.PatchPath {
		return c.patch(src)
	}
	var due []int64
	for _, m := range c.points.members[src.path] {
		due = append(due, m.Bytes)
	}
	slices.Sort(due)
	state := newBytesCheck(nil)
	clean, err := c.out.member(src.path, func(w io.Writer) error {
		to := c.writer(src.path, nopClose{io.MultiWriter(w, state)})
		marks := map[int64]schema.MemberBytes{0: state.state()}
		err := c.read(src, func(r io.Reader) error {
			at := int64(0)
			for _, next := range due {
				n, err := io.CopyN(to, r, next-at)
				if at += n; err == io.EOF {
					break
				} else if err != nil {
					return err
				}
				marks[at] = state.state()
			}
			_, err := io.Copy(to, r)
			return err
		})
		c.members[src.path] = marks
		return errors.Join(err, to.Close())
	})
	if err != nil {
		return source{}, err
	}
	held, err := holds(c.ctx, c.r, clean)
	if err != nil {
		return source{}, err
	}
	if held {
		c.dropped = append(c.dropped, src.path)
		c.lostBlobs[strings.TrimPrefix(src.path, schema.BlobsDir)] = true
		delete(c.members, src.path)
		return source{}, nil
	}
	c.grown[src.path] = clean.size - src.size
	if isStream(src.path) {
		if c.integrity.Members == nil {
			c.integrity.Members = map[string]schema.MemberBytes{}
		}
		c.integrity.Members[src.path] = state.state()
	}
	if name, ok := strings.CutPrefix(src.path, schema.BlobsDir); ok {
		now := strings.TrimPrefix(state.state().SHA256, "sha256:")
		if now != name {
			c.lostBlobs[name] = true
			clean.path = schema.BlobsDir + now
			const about = `"bytes":%d,"sha256":"sha256:%s"`
			c.blobs = append(c.blobs, fmt.Sprintf(about, src.size, name), fmt.Sprintf(about, clean.size, now), name,
				now)
		}
	}
	return clean, nil
}

type nopClose struct{ io.Writer }

func (nopClose) Close() error { return nil }

// writer removes the secrets from a capture on its way to w.
func (c *cleaner) writer(path string, w io.WriteCloser) io.WriteCloser {
	if path == schema.TerminalPath {
		return &castWriter{r: c.r, text: c.r.Pieces(path), w: w}
	}
	return c.r.Writer(path, w)
}

// holds reports whether a member contains a known secret.
func holds(ctx context.Context, r *redact.Redactor, src source) (bool, error) {
	longest := r.Longest()
	switch {
	case longest == 0:
		return false, nil // no secret is known
	case src.path == schema.PatchPath:
		return holdsPatched(ctx, r, src)
	}
	in, err := src.open()
	if err != nil {
		return false, err
	}
	defer in.Close()
	buf := make([]byte, 0, max(256<<10, 4*longest))
	for left := src.size; ; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := io.ReadFull(in, buf[len(buf):int64(len(buf))+min(left, int64(cap(buf)-len(buf)))])
		buf, left = buf[:len(buf)+n], left-int64(n)
		if r.Finds(buf) {
			return true, nil
		}
		if left == 0 || err != nil {
			return false, ignoreEnd(err)
		}
		keep := max(0, longest-1) // a secret may continue in the next part
		buf = buf[:copy(buf, buf[max(0, len(buf)-keep):])]
	}
}

// ignoreEnd returns nil for io.EOF and io.ErrUnexpectedEOF: somebody may have cut the member.
func ignoreEnd(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// document cleans a JSON member. If it would be invalid without its secrets, it is dropped, or it is an error if every
// bundle needs the member.
func (c *cleaner) document(src source) (source, error) {
	data := src.data
	if data == nil {
		var b bytes.Buffer
		if err := src.copyTo(&b); err != nil {
			return source{}, fmt.Errorf("%s: %w", src.path, err)
		}
		data = b.Bytes()
	}
	if src.path == schema.ChangesPath {
		data = c.changes(data)
	}
	clean := c.r.JSON(src.path, data)
	var err error
	if src.path == schema.SurfacePath {
		clean, err = c.surface(data)
	}
	if err != nil {
		return source{}, fmt.Errorf("%s: %w", src.path, err)
	}
	if !bytes.Equal(clean, data) && schema.Validate(documentSchema(src.path), data) == nil {
		if err := schema.Validate(documentSchema(src.path), clean); err != nil {
			if isDocument(src.path) {
				return source{}, fmt.Errorf("%s: it is not valid without a secret: %w", src.path, err)
			}
			c.dropped = append(c.dropped, src.path)
			return source{}, nil
		}
	}
	return source{path: src.path, size: int64(len(clean)), data: clean}, nil
}

// surface cleans the names of a surface, which are sorted sets.
func (c *cleaner) surface(data []byte) ([]byte, error) {
	var s schema.CapabilitySurface
	lists := emptySurface(&s)
	changed := false
	var err error
	s.RunID, err = schema.ReadSurface(bytes.NewReader(data), func(list, name string) {
		clean := c.r.Name(schema.SurfacePath, name)
		changed = changed || clean != name
		*lists[list] = append(*lists[list], clean)
	})
	if err != nil || !changed {
		return data, nil // if it is invalid, verify says so
	}
	for _, list := range lists {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return schema.Document(s)
}

// account updates the documents with the new sizes of captures, and with what was dropped.
func (c *cleaner) account(done []source) error {
	gone := func(path string) bool { return slices.Contains(c.dropped, path) }
	changed := func(path string) bool { return c.grown[path] != 0 || gone(path) }
	streams := map[string]func(*schema.Stdio) *schema.Stream{
		schema.StdoutPath:   func(s *schema.Stdio) *schema.Stream { return s.Stdout },
		schema.StderrPath:   func(s *schema.Stdio) *schema.Stream { return s.Stderr },
		schema.TerminalPath: func(s *schema.Stdio) *schema.Stream { return s.Terminal },
	}
	if changed(schema.StdoutPath) || changed(schema.StderrPath) || gone(schema.TerminalPath) {
		err := amend(done, schema.ResultPath, func(r *schema.Result) {
			for path, of := range streams {
				switch s := of(&r.Stdio); {
				case s == nil:
				case gone(path):
					s.Captured, s.RedactedBytes, s.Truncated = 0, 0, s.Bytes > 0
				case path != schema.TerminalPath: // its counts are those of the output, not of the recording
					s.Captured, s.RedactedBytes = s.Captured+c.grown[path], s.RedactedBytes+c.grown[path]
				}
			}
		})
		if err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(done, func(src source) bool {
		return src.path == schema.ContractPath && changedBelow(c, schema.ChecksDir)
	}) {
		return nil
	}
	return amend(done, schema.ContractPath, func(contract *schema.Contract) {
		for _, list := range [][]schema.CheckResult{contract.Results, contract.Baseline} {
			for i := range list {
				switch r := &list[i]; {
				case r.OutputPath == "":
				case gone(r.OutputPath):
					r.OutputPath, r.OutputKept, r.OutputRedacted, r.OutputError = "", 0, 0,
						"a secret could not be removed from it"
				default:
					r.OutputKept, r.OutputRedacted = r.OutputKept+c.grown[r.OutputPath],
						r.OutputRedacted+c.grown[r.OutputPath]
				}
			}
		}
	})
}

func changedBelow(c *cleaner, dir string) bool {
	below := func(path string) bool { return strings.HasPrefix(path, dir) }
	for path, n := range c.grown {
		if n != 0 && below(path) {
			return true
		}
	}
	return slices.ContainsFunc(c.dropped, below)
}

// tell records in the health what was removed.
func (c *cleaner) tell(sources []source, removal schema.Removal, receipt func(*schema.Redaction)) error {
	return amend(sources, schema.HealthPath, func(h *schema.ObservationHealth) {
		if h.Redaction == nil {
			h.Redaction = &schema.Redaction{Mode: schema.RedactionDisabled, ByRule: map[string]uint64{},
				ByField: map[string]uint64{}}
		}
		h.Redaction.Removals = append(h.Redaction.Removals, removal)
		receipt(h.Redaction)
		for _, path := range c.dropped {
			subject := "bundle"
			if isLayer(path) {
				subject = schema.LayerName(path)
				n := c.lost[path]
				counts := h.Layers[subject]
				counts.Written, counts.Dropped = counts.Written-min(counts.Written, n), counts.Dropped+n
				h.Layers[subject] = counts
			}
			if path == schema.KernelPath && h.KernelLayer == schema.Complete {
				h.KernelLayer, h.KernelState = schema.PartialRingbufDrops, schema.Partial
			}
			h.Reasons = append(h.Reasons, schema.Reason{
				Subject: subject, Code: CodeSecretDropped,
				Message: path + " was left out: assay-run could not remove a secret from it",
				Remedy: "name the secret with --secret-env or --secret-file, so that it is redacted " +
					"before it is written",
			})
		}
	})
}

// CodeSecretDropped is the code of the reason in observation-health.json for a member that was left out because a
// secret could not be removed from it.
const CodeSecretDropped = "secret_dropped"

// layer cleans the lines of a layer. If a line would be invalid without its secrets, the whole layer is emptied.
func (c *cleaner) layer(src source) (source, error) {
	decoder := schema.NewLineDecoder(src.path)
	due := map[uint64]bool{}
	for _, t := range c.points.layers[src.path] {
		due[t.Lines] = true
	}
	var grown tree
	marks := map[uint64]schema.LayerTree{0: grown.state()}
	c.layers[src.path] = marks
	blobs := strings.NewReplacer(c.blobs...)
	lines, spoiled := uint64(0), false
	clean, err := c.out.member(src.path, func(w io.Writer) error {
		return c.lines(src, func(line []byte, whole bool) error {
			before := line
			switch {
			case src.path == schema.EventsPath:
				line = c.checkpoint(line)
			case src.path == schema.TurnsPath, src.path == schema.ModelPath:
				if len(c.blobs) > 0 {
					line = []byte(blobs.Replace(string(line)))
				}
				line = c.values(src.path, line)
			}
			after := c.r.JSON(src.path, line)
			if len(after) >= MaxLine {
				after = redact.Shorten(after)
			}
			if !bytes.Equal(after, line) {
				if _, err := decoder.Decode(after); err != nil {
					_, was := decoder.Decode(before)
					spoiled = spoiled || was == nil
				}
			}
			if _, err := w.Write(after); err != nil || !whole {
				return err
			}
			lines++
			if grown.add(tlog.RecordHash(after)); due[lines] || src.path == schema.EventsPath {
				marks[lines] = grown.state()
			}
			_, err := w.Write([]byte{'\n'})
			return err
		})
	})
	if err != nil {
		return source{}, err
	}
	if spoiled {
		c.dropped = append(c.dropped, src.path)
		c.lost[src.path], grown = lines, tree{}
		c.layers[src.path] = nil
		clean = source{path: src.path}
	}
	c.integrity.Layers[schema.LayerName(src.path)] = grown.state()
	return clean, nil
}

// values removes secrets, also numbers, from the parameters and the output of a tool in a turn.
func (c *cleaner) values(path string, line []byte) []byte {
	var out []byte
	copied := 0
	d := jsontext.NewDecoder(bytes.NewBuffer(line))
	if _, err := d.ReadToken(); err != nil {
		return line
	}
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return line
		}
		name := key.String()
		v, err := d.ReadValue()
		if err != nil {
			return line
		}
		if name != "parameters" && name != "output" {
			continue
		}
		end := int(d.InputOffset())
		if clean := c.r.Value(path, v); !bytes.Equal(clean, v) {
			out = append(append(out, line[copied:end-len(v)]...), clean...)
			copied = end
		}
	}
	return append(out, line[copied:]...)
}

// checkpoint updates a checkpoint line for the new members.
func (c *cleaner) checkpoint(line []byte) []byte {
	if !bytes.Contains(line, []byte(`"`+schema.CheckpointMade+`"`)) {
		return line
	}
	var e schema.Event
	if json.Unmarshal(line, &e) != nil || e.Type != schema.CheckpointMade || e.Checkpoint == nil {
		return line
	}
	for _, p := range schema.AllLayers {
		name := schema.LayerName(p)
		t, told := e.Checkpoint.Layers[name]
		if now, ok := c.layers[p][t.Lines]; told && ok {
			e.Checkpoint.Layers[name] = now
		} else if told && c.layers[p] == nil { // it was emptied
			delete(e.Checkpoint.Layers, name)
		}
	}
	for p, m := range e.Checkpoint.Members {
		if now, ok := c.members[p][m.Bytes]; ok {
			e.Checkpoint.Members[p] = now
		} else if c.members[p] == nil {
			delete(e.Checkpoint.Members, p)
		}
	}
	out, err := schema.Line(e)
	if err != nil {
		return line // cannot happen
	}
	return bytes.TrimSuffix(out, []byte{'\n'})
}

// castWriter removes secrets from a terminal recording, also those that are split over several events.
type castWriter struct {
	r    *redact.Redactor
	text *redact.Pieces
	w    io.WriteCloser
	rest []byte // an unfinished line
}

func (c *castWriter) Write(b []byte) (int, error) {
	c.rest = append(c.rest, b...)
	for {
		end := bytes.IndexByte(c.rest, '\n')
		if end < 0 {
			return len(b), nil
		}
		if err := c.line(c.rest[:end]); err != nil {
			return 0, err
		}
		c.rest = c.rest[end+1:]
	}
}

// castEvent is a line of an asciicast 3: the time since the last event, the kind, and the data.
type castEvent [3]any

func (c *castWriter) line(line []byte) error {
	var raw []jsontext.Value
	var kind, data string
	if json.Unmarshal(line, &raw) != nil || len(raw) != 3 || json.Unmarshal(raw[1], &kind) != nil ||
		json.Unmarshal(raw[2], &data) != nil {
		return c.put(c.r.JSON(schema.TerminalPath, line))
	}
	if kind != "o" {
		if err := c.end(); err != nil {
			return err
		}
		return c.put(c.r.JSON(schema.TerminalPath, line))
	}
	return c.event(raw[0], string(c.text.Next([]byte(data))))
}

func (c *castWriter) event(interval jsontext.Value, data string) error {
	line, err := schema.Line(castEvent{interval, "o", data})
	if err != nil {
		return err
	}
	return c.put(bytes.TrimSuffix(line, []byte{'\n'}))
}

// end writes the text that was held back because a secret might continue.
func (c *castWriter) end() error {
	rest := c.text.End()
	c.text = c.r.Pieces(schema.TerminalPath)
	if len(rest) == 0 {
		return nil
	}
	return c.event(jsontext.Value("0.000000"), string(rest))
}

func (c *castWriter) put(line []byte) error {
	_, err := c.w.Write(append(bytes.Clone(line), '\n'))
	return err
}

func (c *castWriter) Close() error {
	if err := c.end(); err != nil {
		return err
	}
	if len(c.rest) > 0 { // incomplete
		if _, err := c.w.Write(c.r.Text(schema.TerminalPath, c.rest)); err != nil {
			return err
		}
	}
	return c.w.Close()
}

// learn reads all members before any is cleaned: a secret that one member reveals is removed from the others, too.
func (c *cleaner) learn(sources []source, passes int) error {
	before := c.r.Known()
	for _, src := range sources {
		var err error
		switch {
		case src.path == schema.PatchPath:
			err = c.search(src)
			c.patched = nil
		case isLayer(src.path):
			err = c.lines(src, func(line []byte, _ bool) error { c.r.JSON(src.path, line); return nil })
		case documentSchema(src.path) == "":
			to := c.writer(src.path, nopClose{io.Discard})
			err = errors.Join(c.read(src, func(r io.Reader) error { _, err := io.Copy(to, r); return err }), to.Close())
		default:
			_, err = c.document(src)
		}
		if err != nil {
			return err
		}
	}
	c.dropped = nil
	if c.r.Known() > before && passes > 1 {
		return c.learn(sources, passes-1)
	}
	return nil
}

// search finds the sections of a patch that hold a secret.
func (c *cleaner) search(src source) error {
	c.patched = &patched{secret: map[string]bool{}}
	return c.read(src, func(r io.Reader) error {
		return eachPatched(r, false, func(name string, content, _ []byte) error {
			if c.secret([]byte(name)) || c.secret(content) {
				c.patched.secret[name] = true
			}
			return c.ctx.Err()
		})
	})
}

// patch leaves out the sections that hold a secret: a part of a content cannot be replaced.
func (c *cleaner) patch(src source) (source, error) {
	if err := c.search(src); err != nil {
		return source{}, err
	}
	clean, err := c.out.member(src.path, func(w io.Writer) error {
		return c.read(src, func(r io.Reader) error {
			return eachPatched(r, true, func(name string, _, raw []byte) error {
				if c.patched.secret[name] {
					return nil
				}
				c.patched.have = append(c.patched.have, name)
				_, err := w.Write(raw)
				return err
			})
		})
	})
	c.patched.bytes = clean.size
	return clean, err
}

// secret reports whether a content holds a secret, and learns the secret.
func (c *cleaner) secret(content []byte) bool {
	return !bytes.Equal(c.r.Text(schema.PatchPath, content), content)
}

// changes removes from workspace/changes.json what is no longer kept.
func (c *cleaner) changes(data []byte) []byte {
	doc, err := schema.ReadWorkspaceChanges(bytes.NewReader(data), nil)
	if err != nil {
		return data // if it is invalid, verify says so
	}
	have := map[string]bool{}
	if c.patched != nil {
		for _, name := range c.patched.have {
			have[name] = true
		}
		doc.PatchBytes = c.patched.bytes
	}
	changed := c.patched != nil && len(c.patched.secret) > 0
	for _, list := range [][]schema.WorkspaceChange{doc.Changes, doc.Artifacts} {
		for i := range list {
			ch := &list[i]
			named := c.secret([]byte(ch.Name()))
			for _, f := range []*schema.WorkspaceFile{ch.Before, ch.After} {
				if f != nil && f.LinkTarget() != "" && c.secret([]byte(f.LinkTarget())) {
					named, f.TargetRaw = true, nil
				}
			}
			lost := ch.InPatch && c.patched != nil && !have[ch.Name()] ||
				ch.Blob != "" && c.lostBlobs[strings.TrimPrefix(ch.Blob, "sha256:")]
			if !named && !lost {
				continue
			}
			changed = true
			if ch.PathRaw = nil; lost && ch.After != nil {
				doc.KeptBytes -= min(doc.KeptBytes, ch.After.Bytes)
			}
			for _, f := range []*schema.WorkspaceFile{ch.Before, ch.After} { // a digest could tell which secret
				if f != nil {
					f.Digest, f.GitBlob = nil, nil
				}
			}
			ch.InPatch, ch.Blob, ch.Extents, ch.NotKept = false, "", nil, schema.NotKeptRedacted
		}
	}
	if !changed {
		return data
	}
	clean, err := doc.Encode()
	if err != nil {
		return data // cannot happen
	}
	return clean
}

// RedactOptions say how [Redact] makes a bundle.
type RedactOptions struct {
	// By names the program, for the receipt.
	By string
	// Rules names the rules that were given, for the receipt.
	Rules []string
	// Replace allows a file at the output's path.
	Replace bool
}

// Redact removes from a bundle what r finds in it, and writes the rest as a new bundle to output. What
// its members say about each other stays true; its health names the old identity and says what was
// removed. The old bundle is not changed, and its signatures do not cover the new one. On an error
// nothing is left at the output. r is to keep the run's id (redact.Redactor.Keep).
func Redact(ctx context.Context, bundle, output string, r *redact.Redactor, opt RedactOptions) (_ Sealed, err error) {
	var removal schema.Removal
	sealed, err := rewrite(ctx, bundle, output, opt.Replace, func(old *unpacked) (clean []source, err error) {
		c := newCleaner(ctx, r, old.room, old.runID)
		if err := c.learn(old.sources, learnPasses); err != nil {
			return nil, err
		}
		if clean, removal, err = c.clean(old.sources); err != nil {
			return nil, fmt.Errorf("%s: %w", bundle, err)
		}
		removal.From, removal.By, removal.Rules = old.identity, opt.By, opt.Rules
		return clean, c.tell(clean, removal, func(*schema.Redaction) {})
	})
	if err == nil {
		sealed.Removed = &removal
	}
	return sealed, err
}

// learnPasses bounds the number of searches, each with the secrets that the last one found.
const learnPasses = 4

// holdsPatched reports whether a known secret is in a patch, unpacked.
func holdsPatched(ctx context.Context, r *redact.Redactor, src source) (held bool, err error) {
	in, err := src.open()
	if err != nil {
		return false, err
	}
	defer in.Close()
	err = eachPatched(io.LimitReader(in, src.size), false, func(name string, content, _ []byte) error {
		held = held || r.Finds([]byte(name)) || r.Finds(content)
		return ctx.Err()
	})
	return held, err
}
