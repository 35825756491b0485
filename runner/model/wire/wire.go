package wire

import (
	"io"
	"math"
	"mime"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// API is what a request asks a provider for.
type API string

// The APIs. If two providers share one, the route tells them apart.
const (
	Messages        API = "messages"         // Anthropic
	Responses       API = "responses"        // OpenAI
	ChatCompletions API = "chat_completions" // OpenAI
	GenerateContent API = "generate_content" // Gemini
	CountTokens     API = "count_tokens"     // Anthropic, OpenAI and Gemini
	EmbedContent    API = "embed_content"    // Gemini
	Models          API = "models"           // the list of models
)

// Generates reports whether a model answers, which uses tokens.
func (a API) Generates() bool {
	switch a {
	case Messages, Responses, ChatCompletions, GenerateContent:
		return true
	}
	return false
}

// Usage is the number of tokens that a request used. Nil: the answer does not say.
type Usage struct {
	InputTokens              *int64 // including cached ones
	CacheReadInputTokens     *int64
	CacheCreationInputTokens *int64
	OutputTokens             *int64 // including reasoning
	ReasoningOutputTokens    *int64
}

// ToolCall is a call that the model proposes, or that the provider runs itself.
type ToolCall struct {
	ID   string // empty if the provider gives none
	Name string
	// Arguments is a JSON value: an object, or a string for a tool that takes text. If what came is not JSON, it is
	// nil and ArgumentsText has the text.
	Arguments        jsontext.Value
	ArgumentsText    string
	ProviderExecuted bool
	// Complete is false if the end of the call did not come.
	Complete bool
	// End is the number of bytes of the body up to the end of the call, or to the end of the body.
	End int64
}

// Answer is what a provider's answer says.
type Answer struct {
	ID, Model     string
	FinishReasons []string
	Usage         Usage
	// UsageRaw is the usage in the provider's form. In a stream, later members replace earlier ones. Nil for none.
	UsageRaw jsontext.Value
	Calls    []ToolCall
	// ErrorType is the provider's name for an error, in a document or an event.
	ErrorType string
	// Whole means that the end of the answer came.
	Whole bool
	// Unknown counts events, items and parts that are of an unknown kind or cannot be read.
	Unknown uint64
	// UnknownKinds lists the first unknown kinds, each once.
	UnknownKinds []string
}

// Limits on what is kept of a body.
const (
	maxDocument = 64 << 20 // bytes of a JSON document, or of one event
	maxCalls    = 4096     // of an answer
	maxKinds    = 8        // in Answer.UnknownKinds
	maxKind     = 64       // bytes of one
	maxText     = 512      // bytes of an id, a name or a similar word
)

// options are as lenient as a provider's client: invalid UTF-8 and duplicate names are the agent's concern.
var options = sync.OnceValue(func() json.Options {
	return json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
})

func decode(v []byte, to any) bool { return len(v) > 0 && json.Unmarshal(v, to, options()) == nil }

// IsStream reports whether a content type is a stream of events.
func IsStream(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "text/event-stream"
}

// Read reads an answer to its end, or to where it breaks off. body has no content encoding.
func Read(api API, contentType string, body io.Reader) *Answer {
	a := &answer{}
	d := a.decoder(api)
	if IsStream(contentType) {
		readEvents(body, a, d)
	} else {
		a.readDocument(body, d)
	}
	d.end()
	for i := range a.Calls {
		a.Calls[i].seal(a.at)
	}
	return &a.Answer
}

// answer is an Answer while it is read.
type answer struct {
	Answer
	at int64 // bytes of the body so far
}

// decoder reads the documents and events of one API.
type decoder interface {
	// document handles a whole answer.
	document(v jsontext.Value)
	// event handles an event of a stream; kind is its name, which may be empty.
	event(kind string, data []byte)
	// end handles the end of the body.
	end()
}

func (a *answer) decoder(api API) decoder {
	switch api {
	case Messages:
		return &anthropic{answer: a, blocks: map[int64]*pending{}}
	case ChatCompletions:
		return &chat{answer: a, calls: map[[2]int64]*pending{}}
	case Responses:
		return &responses{answer: a, items: map[int64]*pending{}, known: map[string]bool{}}
	case GenerateContent:
		return &gemini{answer: a}
	}
	return &other{answer: a}
}

// readDocument reads a JSON document, or the items of an array, which is how Gemini streams.
func (a *answer) readDocument(body io.Reader, d decoder) {
	counted := &counter{r: body}
	defer func() { a.at = counted.n }()
	in := jsontext.NewDecoder(io.LimitReader(counted, maxDocument), options())
	switch in.PeekKind() {
	case '[':
		_, _ = in.ReadToken()
		for in.PeekKind() != ']' {
			v, err := in.ReadValue()
			if err != nil {
				return
			}
			a.at = in.InputOffset()
			d.event("", v)
		}
		return
	case '{':
		if v, err := in.ReadValue(); err == nil {
			a.at = in.InputOffset()
			d.document(v)
			return
		}
	}
	if _, err := io.Copy(io.Discard, counted); err != nil || counted.n > 0 {
		a.unknown("")
	}
}

// counter counts the bytes read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// unknown counts something of an unknown kind. An empty kind means that it cannot be read.
func (a *answer) unknown(kind string) {
	a.Unknown++
	if kind == "" {
		kind = "unreadable"
	}
	kind = cut(kind, maxKind)
	for _, k := range a.UnknownKinds {
		if k == kind {
			return
		}
	}
	if len(a.UnknownKinds) < maxKinds {
		a.UnknownKinds = append(a.UnknownKinds, kind)
	}
}

// finish adds a reason why the model stopped.
func (a *answer) finish(reason string) {
	if reason != "" && len(a.FinishReasons) < maxCalls {
		a.FinishReasons = append(a.FinishReasons, cut(reason, maxText))
	}
}

// begin adds a tool call and returns its index, or -1 if there are too many.
func (a *answer) begin(c ToolCall) int {
	if len(a.Calls) >= maxCalls {
		a.unknown("too_many_tool_calls")
		return -1
	}
	c.ID, c.Name = cut(c.ID, maxText), cut(c.Name, maxText)
	a.Calls = append(a.Calls, c)
	return len(a.Calls) - 1
}

// seal sets the arguments from the text that came.
func (c *ToolCall) seal(end int64) {
	if c.End == 0 {
		c.End = end
	}
	if c.Arguments != nil || c.ArgumentsText == "" {
		return
	}
	if v := jsontext.Value(c.ArgumentsText); v.IsValid(options()) {
		c.Arguments, c.ArgumentsText = v, ""
	}
}

// pending is a tool call of a stream whose argument comes in pieces.
type pending struct {
	call   int  // index in Calls, or -1
	isText bool // the argument is text
	args   []byte
}

func (p *pending) add(piece string) {
	if len(p.args)+len(piece) <= maxDocument {
		p.args = append(p.args, piece...)
	}
}

// settle sets a call's argument from its pieces.
func (a *answer) settle(p *pending) {
	if p.call < 0 || len(p.args) == 0 {
		return
	}
	if c := &a.Calls[p.call]; p.isText {
		c.Arguments = quoted(string(p.args))
	} else {
		c.Arguments, c.ArgumentsText = nil, string(p.args)
	}
	p.args = nil
}

// quoted returns a text as JSON.
func quoted(s string) jsontext.Value {
	v, err := json.Marshal(s, options())
	if err != nil {
		return nil
	}
	return v
}

// complete records that the end of a call came.
func (a *answer) complete(i int) {
	if i >= 0 && !a.Calls[i].Complete {
		a.Calls[i].Complete, a.Calls[i].End = true, a.at
	}
}

// usage reads a usage object. Later members replace earlier ones.
func (a *answer) usage(v jsontext.Value) map[string]jsontext.Value {
	var now map[string]jsontext.Value
	if !decode(v, &now) || len(now) == 0 {
		return nil
	}
	all := now
	if a.UsageRaw != nil {
		all = map[string]jsontext.Value{}
		_ = decode(a.UsageRaw, &all)
		for k, v := range now {
			all[k] = v
		}
	}
	if raw, err := json.Marshal(all, json.Deterministic(true), options()); err == nil && len(raw) <= maxUsage {
		a.UsageRaw = raw
	}
	return all
}

// maxUsage limits a usage object, in bytes.
const maxUsage = 16 << 10

// count returns a number of tokens; nil unless v is a whole number of at least 0.
func count(v jsontext.Value) *int64 {
	if v.Kind() != '0' {
		return nil
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

// within is count for a member of the object v.
func within(v jsontext.Value, name string) *int64 {
	var o map[string]jsontext.Value
	if !decode(v, &o) {
		return nil
	}
	return count(o[name])
}

// sum adds the counts that are not nil. It returns nil if all are nil, or on overflow.
func sum(counts ...*int64) *int64 {
	var total *int64
	for _, n := range counts {
		switch {
		case n == nil:
		case total == nil:
			total = new(*n)
		case *n > math.MaxInt64-*total:
			return nil
		default:
			*total += *n
		}
	}
	return total
}

// cut limits the length of a word.
func cut(s string, most int) string {
	if len(s) > most {
		return s[:most]
	}
	return s
}

// failure returns the error in a document or an event in the providers' forms:
// {"error":{"type":…,"code":…,"status":…}}.
func failure(v jsontext.Value) string {
	var e struct {
		Type   jsontext.Value `json:"type"`
		Code   jsontext.Value `json:"code"`
		Status jsontext.Value `json:"status"`
	}
	if v.Kind() == '"' {
		return cut(text(v), maxText)
	}
	if v.Kind() != '{' || !decode(v, &e) {
		return ""
	}
	for _, w := range []jsontext.Value{e.Type, e.Status, e.Code} {
		if s := text(w); s != "" {
			return cut(s, maxText)
		}
	}
	return "error"
}

// text returns the text of a JSON string; empty for anything else.
func text(v jsontext.Value) string {
	var s string
	if v.Kind() != '"' || !decode(v, &s) {
		return ""
	}
	return s
}

// other reads answers of APIs that can only have an error to record.
type other struct{ *answer }

func (o *other) document(v jsontext.Value) {
	var doc struct {
		Error jsontext.Value `json:"error"`
	}
	o.Whole = true
	if decode(v, &doc) {
		o.ErrorType = failure(doc.Error)
	}
}

func (o *other) event(kind string, _ []byte) { o.unknown(kind) }
func (o *other) end()                        {}
