package tape

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// Request is an agent's request. Its body has no content encoding and no secrets.
type Request struct {
	Route, Path, Model string
	Stream             bool
	Body               []byte
}

// Answer is a recorded answer.
type Answer struct {
	Seq uint64 // of its line in the bundle
	// Status is 0 if there was no answer. Unreachable means that the provider could not be reached, or did not answer.
	Status      int
	Unreachable bool
	Headers     map[string]string
	Body        []byte
	// Broken means that the answer was cut off.
	Broken bool
	// Redacted means that secrets were removed from it.
	Redacted bool
	// Drift counts the places where the request differs from the recorded one. Places lists the first ones.
	Drift  int
	Places []string
}

// Miss is the error for a request that has no answer. Its text names the nearest recorded request.
type Miss struct{ why string }

func (m *Miss) Error() string { return m.why }

// maxPlaces limits Answer.Places.
const maxPlaces = 16

// Cassette has the answers of a run. Its methods are safe for concurrent use.
type Cassette struct {
	texts texts
	all   []*entry // in the order of the layer

	mu    sync.Mutex
	byKey map[key][]*entry
}

// key is equal for two requests that match.
type key struct {
	route, path, model string
	stream             bool
	tools, shape       [sha256.Size]byte
}

type entry struct {
	key
	line *schema.ModelEvent
	used bool
}

// ErrNoBodies is wrapped by Load's error for a bundle without requests and answers.
var ErrNoBodies = errors.New("it has no requests and answers (--model-bodies none)")

// ErrNothing is wrapped by Load's error for a bundle that answers no request.
var ErrNothing = errors.New("it has no answers of models")

// ErrTooLong is wrapped by Load's error for a bundle with more than MaxBytes of lines.
var ErrTooLong = errors.New("it has more than can be replayed")

// MaxBytes limits the lines of a bundle, and the texts of its members, in bytes. A run records at most as many bytes
// of texts.
const MaxBytes = 1 << 30

// Load reads the model layer of a verified bundle. members returns the texts of members by name.
func Load(lines iter.Seq2[[]byte, error], members func(names map[string]bool) (map[string]string, error)) (*Cassette,
	error) {
	return load(lines, members, MaxBytes)
}

// load is Load with a different limit.
func load(lines iter.Seq2[[]byte, error], members func(names map[string]bool) (map[string]string, error), room int) (
	*Cassette, error) {
	c := &Cassette{byKey: map[key][]*entry{}}
	names := map[string]bool{}
	bodies := map[uint64]jsontext.Value{} // complete bodies of requests
	var faults []error
	for line, err := range lines {
		if err != nil {
			return nil, err
		}
		if room -= len(line); room < 0 {
			return nil, fmt.Errorf("the model layer: %w", ErrTooLong)
		}
		e := new(schema.ModelEvent)
		if err := json.Unmarshal(line, e); err != nil {
			return nil, fmt.Errorf("a line of the model layer: %w", err)
		}
		if e.Refused != nil || e.Route == nil {
			continue
		}
		if err := playable(e); err != nil {
			faults = append(faults, err)
			continue
		}
		if m := e.Request.Base; m != nil {
			var err error
			if e.Request.Body, err = wholeOf(e.Request.Body, m, bodies[m.Seq]); err != nil {
				faults = append(faults, fmt.Errorf("line %d: %w", e.Seq, err))
				continue
			}
			if room -= len(e.Request.Body); room < 0 {
				return nil, fmt.Errorf("the model layer: %w", ErrTooLong)
			}
		}
		bodies[e.Seq] = e.Request.Body
		for _, b := range []schema.ModelBody{e.Request, e.Response} {
			named(b.Body, names)
		}
		c.all = append(c.all, &entry{line: e})
	}
	switch {
	case len(faults) > 0:
		if i := slices.IndexFunc(faults, func(err error) bool { return !errors.Is(err, ErrNoBodies) }); i < 0 {
			return nil, ErrNoBodies
		}
		return nil, errors.Join(faults[:min(len(faults), 8)]...)
	case len(c.all) == 0:
		return nil, ErrNothing
	}
	var err error
	if c.texts, err = members(names); err != nil {
		return nil, err
	}
	for _, e := range c.all {
		e.key = keyOf(&Request{Route: *e.line.Route, Path: e.line.Path, Model: str(e.line.RequestModel),
			Stream: e.line.Stream != nil && *e.line.Stream}, parsed(e.line.Request.Body), c.texts)
		c.byKey[e.key] = append(c.byKey[e.key], e)
	}
	return c, nil
}

// playable returns why an answer cannot be replayed, or nil.
func playable(e *schema.ModelEvent) error {
	for _, b := range []struct {
		what string
		schema.ModelBody
	}{{"request", e.Request}, {"answer", e.Response}} {
		switch {
		case b.Bytes == 0 || b.Body != nil || b.what == "answer" && unanswered(e):
		case b.LeftOut:
			return fmt.Errorf("line %d: its %s was too much to keep", e.Seq, b.what)
		case b.SHA256 != nil:
			return fmt.Errorf("line %d: %w", e.Seq, ErrNoBodies)
		default:
			return fmt.Errorf("line %d: its %s could not be decoded when it was recorded", e.Seq, b.what)
		}
	}
	return nil
}

// named adds the names of members in a body to names.
func named(body jsontext.Value, names map[string]bool) {
	for in := jsontext.NewDecoder(bytes.NewReader(body)); in.PeekKind() != 0; {
		tok, err := in.ReadToken()
		if err != nil {
			return
		}
		if tok.Kind() == '"' && strings.HasPrefix(tok.String(), schema.BlobsDir) {
			names[tok.String()] = true
		}
	}
}

func keyOf(r *Request, doc any, known texts) key {
	shape, tools := sha256.New(), sha256.New()
	for _, f := range shapeOf(doc) {
		fmt.Fprintf(shape, "%s\x00", f.what)
	}
	for _, t := range toolsOf(doc, known) {
		fmt.Fprintf(tools, "%s\x00", t)
	}
	return key{route: r.Route, path: unversionedPath(r.Path), model: r.Model, stream: r.Stream,
		tools: [sha256.Size]byte(tools.Sum(nil)), shape: [sha256.Size]byte(shape.Sum(nil))}
}

// unversionedPath returns a path without the API version, which agents may leave out.
func unversionedPath(path string) string {
	parts := strings.Split(path, "/")
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool {
		return p == "v1" || p == "v1beta" || p == "v1alpha"
	}), "/")
}

// Take returns the answer to a request, and uses it up. If there is none, the error is a [Miss]. With strict, only a
// recorded request that is equal in every way matches.
func (c *Cassette) Take(r *Request, strict bool) (*Answer, error) {
	doc := parsed(r.Body)
	k := keyOf(r, doc, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	var alike []*entry
	for _, e := range c.byKey[k] {
		if !e.used {
			alike = append(alike, e)
		}
	}
	if len(alike) == 0 {
		return nil, &Miss{c.nearest(r, k, doc)}
	}
	e, places, drift := c.pick(alike, doc, strict)
	if strict && drift > 0 {
		return nil, &Miss{fmt.Sprintf("the request differs from line %d of the bundle, first at %s", e.line.Seq,
			place(places[0]))}
	}
	a, err := c.answer(e.line)
	if err != nil {
		return nil, err
	}
	a.Drift, a.Places, e.used = drift, places, true
	return a, nil
}

// pick returns the entry whose request is nearest to doc: with strict an equal one, else one with the same user
// texts, else the first. It also returns the first places where that differs, and their number.
func (c *Cassette) pick(alike []*entry, doc any, strict bool) (best *entry, places []string, drift int) {
	best = alike[0]
	if said := saidBy(doc, nil); len(alike) > 1 {
		fits := func(e *entry) bool {
			recorded := parsed(e.line.Request.Body)
			if strict {
				_, n := c.differences(recorded, doc)
				return n == 0
			}
			return slices.Equal(said, saidBy(recorded, c.texts))
		}
		if i := slices.IndexFunc(alike, fits); i >= 0 {
			best = alike[i]
		}
	}
	places, drift = c.differences(parsed(best.line.Request.Body), doc)
	return best, places, drift
}

// differences returns the first places where two requests differ, and their number.
func (c *Cassette) differences(recorded, doc any) (places []string, n int) {
	differ("", recorded, doc, c.texts, func(at jsontext.Pointer) {
		if n++; len(places) < maxPlaces {
			places = append(places, string(at))
		}
	})
	return places, n
}

// unanswered reports whether the gateway answered because the provider did not.
func unanswered(e *schema.ModelEvent) bool {
	what := str(e.ErrorType)
	return e.ErrorSource != schema.ModelErrorByProvider &&
		(what == schema.ModelErrorUnreachable || what == schema.ModelErrorNoAnswer)
}

// answer returns the recorded answer of a line.
func (c *Cassette) answer(e *schema.ModelEvent) (*Answer, error) {
	a := &Answer{Seq: e.Seq, Headers: e.ResponseHeaders}
	if e.Status != nil {
		a.Status = *e.Status
	}
	failure := str(e.ErrorType)
	if e.ErrorSource == schema.ModelErrorByProvider { // whatever it is called
		failure = ""
	}
	if unanswered(e) {
		a.Unreachable = true
		return a, nil
	}
	switch failure {
	case schema.ModelErrorBroken, schema.ModelErrorLeft, schema.ModelErrorKey:
		a.Broken = true
	}
	var err error
	if e.Response.Text {
		var name string
		err = json.Unmarshal(e.Response.Body, &name)
		a.Body = []byte(c.texts.of(name))
	} else if e.Response.Body != nil {
		a.Body, err = whole(e.Response.Body, c.texts)
	}
	if err != nil {
		return nil, fmt.Errorf("line %d of the bundle: its answer: %w", e.Seq, err)
	}
	a.Redacted = redact.Untag(string(a.Body)) != string(a.Body)
	return a, nil
}

// nearest describes the recorded request nearest to one without an answer, and where they first differ.
func (c *Cassette) nearest(r *Request, k key, doc any) string {
	if used := c.byKey[k]; len(used) > 0 {
		return fmt.Sprintf("such a request came %s in the recorded run, and here once more",
			schema.Count(len(used), "time", "times"))
	}
	shape := shapeOf(doc)
	var best *entry
	var most int
	for _, e := range c.all {
		score := 0
		for _, same := range []struct {
			is     bool
			weight int
		}{
			{e.route == k.route, 1 << 30}, {e.path == k.path, 1 << 29}, {e.model == k.model, 1 << 12},
			{e.stream == k.stream, 1 << 12}, {e.tools == k.tools, 1 << 12}, {!e.used, 1},
		} {
			if same.is {
				score += same.weight
			}
		}
		if e.route == k.route && e.path == k.path {
			score += min(1<<20, 16*common(shape, shapeOf(parsed(e.line.Request.Body))))
		}
		if best == nil || score > most {
			best, most = e, score
		}
	}
	return fmt.Sprintf("no request of the bundle matches; line %d comes nearest: %s", best.line.Seq,
		c.difference(best, r, k, doc, shape))
}

// common counts the features that two shapes have in common at their start.
func common(a, b []feature) int {
	for i := range min(len(a), len(b)) {
		if a[i].what != b[i].what {
			return i
		}
	}
	return min(len(a), len(b))
}

// difference describes where a recorded request differs from r.
func (c *Cassette) difference(e *entry, r *Request, k key, doc any, shape []feature) string {
	recorded := parsed(e.line.Request.Body)
	switch {
	case e.route != k.route || e.path != k.path:
		return fmt.Sprintf("it asked %.200s of %s, and this one asks %.200s of %s", e.path, e.route, k.path, k.route)
	case e.model != k.model:
		return fmt.Sprintf("its model is %.200q, and here %.200q", e.model, k.model)
	case e.stream != k.stream:
		return fmt.Sprintf("its stream is %v, and here %v", e.stream, k.stream)
	case e.tools != k.tools:
		return toolDifference(toolsOf(recorded, c.texts), toolsOf(doc, nil))
	}
	was := shapeOf(recorded)
	i := common(was, shape)
	has := func(s []feature) (at, what string) {
		if i < len(s) {
			return string(s[i].at), s[i].what
		}
		return "", "nothing"
	}
	at, then := has(was)
	here, now := has(shape)
	if here != "" {
		at = here
	}
	return fmt.Sprintf("at %s it has %.200s, and this one has %.200s", place(at), then, now)
}

func place(pointer string) string {
	if pointer == "" {
		return "the whole"
	}
	return pointer
}

func toolDifference(was, now []string) string {
	missing := func(from, in []string) (name string) {
		for _, t := range from {
			if !slices.Contains(in, t) {
				return toolName(t)
			}
		}
		return ""
	}
	gone, added := missing(was, now), missing(now, was)
	switch {
	case gone == added && gone != "":
		return fmt.Sprintf("the schema of the tool %.200q is another", gone)
	case gone == "":
		return fmt.Sprintf("this one also declares the tool %.200q", added)
	}
	return fmt.Sprintf("it declares the tool %.200q, and this one does not", gone)
}

// Routes returns the routes of the recorded requests, sorted.
func (c *Cassette) Routes() []string {
	var all []string
	for _, e := range c.all {
		all = append(all, e.route)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Unused counts the answers that have not been used.
func (c *Cassette) Unused() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.all {
		if !e.used {
			n++
		}
	}
	return n
}

func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
