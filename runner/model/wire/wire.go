package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"mime"
	"strings"
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
	// Namespace is what the provider names beside Name, such as the MCP server of a tool of Codex'. Empty: none.
	Namespace string
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
	// Text is what the model said to the user: texts that are neither thoughts nor refusals, put together. If the
	// model gave several answers, it is the first.
	Text string
	// ErrorType is the provider's name for an error, in a document or an event. It is "error" if the error in an
	// answer has no name.
	ErrorType string
	// Whole means that the end of the answer came. An error ends an answer.
	Whole bool
	// Unreadable means that the body is neither a JSON document nor a stream of events, nor the start of one.
	Unreadable bool
	// Odd lists the members of another type than the API says, each once.
	Odd []Odd
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

// Read reads an answer to its end, or to where it breaks off. body has no content encoding. As clients do, it goes by
// what the body is: a document or a stream is read as what it is under any content type.
func Read(api API, contentType string, body io.Reader) *Answer {
	a := &answer{}
	d := a.decoder(api)
	in := &counter{r: body}
	start := bufio.NewReaderSize(in, 64<<10)
	skipped := skipMark(start)
	switch first := firstByte(start); {
	case first == '{' || first == '[':
		rest := a.readDocument(start, skipped, d)
		if rest == nil || !IsStream(contentType) {
			break
		}
		readEvents(rest, a, d)
	case IsStream(contentType) || hasField(start):
		a.at = int64(skipped)
		readEvents(start, a, d)
	default:
		_, _ = io.Copy(io.Discard, start)
		if a.at = in.n; first != 0 {
			a.Unreadable = true
			a.unknown("")
		}
	}
	d.end()
	a.Text = string(a.said)
	for i := range a.Calls {
		a.Calls[i].seal(a.at)
	}
	return &a.Answer
}

// skipMark skips a byte order mark, as clients do, and returns its length.
func skipMark(in *bufio.Reader) int {
	const mark = "\xef\xbb\xbf"
	if b, _ := in.Peek(len(mark)); string(b) != mark {
		return 0
	}
	n, _ := in.Discard(len(mark))
	return n
}

// firstByte returns the first byte that is not white space, among as many as are buffered; 0 for none.
func firstByte(in *bufio.Reader) byte {
	for n := 1; ; n++ {
		b, err := in.Peek(n)
		if err != nil {
			return 0
		}
		if c := b[n-1]; !strings.ContainsRune(" \t\r\n", rune(c)) {
			return c
		}
	}
}

// hasField reports whether a body begins as a stream of events does: with a field or a comment.
func hasField(in *bufio.Reader) bool {
	b, _ := in.Peek(64)
	b = bytes.TrimLeft(b, "\r\n")
	for _, name := range []string{"data:", "event:", "id:", "retry:", ":"} {
		if bytes.HasPrefix(b, []byte(name)) {
			return true
		}
	}
	return false
}

// ReadError returns the provider's name for the error in an answer whose HTTP status is one; empty if the answer has
// no name for it. body has no content encoding.
func ReadError(api API, contentType string, body io.Reader) (name string) {
	a := Read(api, contentType, body)
	if a.ErrorType == unnamed {
		return ""
	}
	return a.ErrorType
}

// answer is an Answer while it is read.
type answer struct {
	Answer
	at   int64  // bytes of the body so far
	said []byte // Text so far
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
		return &chat{answer: a, calls: map[[2]int64]*pending{}, last: map[int64]int64{}}
	case Responses:
		return &responses{answer: a, items: map[int64]*pending{}, known: map[string]bool{},
			texts: map[[2]int64][]byte{}}
	case GenerateContent:
		return &gemini{answer: a}
	}
	return &other{answer: a}
}

// readDocument reads a JSON document, or the items of an array, which is how Gemini streams. skipped is the number of
// bytes before body. It returns what follows the document; nil if the document broke off.
func (a *answer) readDocument(body io.Reader, skipped int, d decoder) (rest io.Reader) {
	in := jsontext.NewDecoder(io.LimitReader(body, maxDocument), options())
	moved := func() { a.at = int64(skipped) + in.InputOffset() }
	if in.PeekKind() == '[' {
		_, _ = in.ReadToken()
		for in.PeekKind() != ']' {
			v, err := in.ReadValue()
			if err != nil {
				a.broke(in, err)
				return nil
			}
			moved()
			d.event("", v)
		}
		return nil
	}
	v, err := in.ReadValue()
	if err != nil {
		a.broke(in, err)
		return nil
	}
	moved()
	d.document(v)
	return io.MultiReader(bytes.NewReader(in.UnreadBuffer()), body)
}

// broke records that a document cannot be read to its end. A document that was cut off is readable as far as it came.
func (a *answer) broke(in *jsontext.Decoder, err error) {
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		a.Unreadable = true
	}
	a.at = max(a.at, in.InputOffset())
	a.unknown("")
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
	c.ID, c.Name, c.Namespace = cut(c.ID, maxText), cut(c.Name, maxText), cut(c.Namespace, maxText)
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
	speaks bool // it is no call, but what the model says
	args   []byte
}

// piece returns a part of an argument. A value that is no text is odd, and becomes part of the argument as it is.
func piece(o object, member string) string {
	if v := o.raw(member); v.Kind() != '"' && v != nil {
		o.report(o.name(member), v)
		return string(v)
	}
	return o.text(member)
}

// unreadable handles an event whose data is no object.
func (a *answer) unreadable(kind string, data []byte) {
	if kind == unnamed {
		a.failed(unnamed)
	}
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

// usage reads a usage object. Later members replace earlier ones, except by null, which says nothing.
func (a *answer) usage(v jsontext.Value) object {
	now, ok := objectOf("usage", v, a.odd)
	if !ok || len(now.members) == 0 {
		return object{}
	}
	all := now.members
	if a.UsageRaw != nil {
		all = map[string]jsontext.Value{}
		_ = decode(a.UsageRaw, &all)
		for k, v := range now.members {
			if v.Kind() != 'n' || all[k] == nil {
				all[k] = v
			}
		}
	}
	if raw, err := json.Marshal(all, json.Deterministic(true), options()); err == nil && len(raw) <= maxUsage {
		a.UsageRaw = raw
	}
	return object{at: "usage", members: all, odd: a.odd}
}

// maxUsage limits a usage object, in bytes.
const maxUsage = 16 << 10

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

// unnamed is the name of an error that has none.
const unnamed = "error"

// failure returns the name of an error in the providers' forms: {"error":{"type":…,"code":…,"status":…}}. The members
// are looked up in the given order.
func failure(v jsontext.Value, members ...string) string {
	e, _ := objectOf("error", v, nil)
	for _, m := range members {
		if s := e.text(m); s != "" && s != unnamed {
			return cut(s, maxText)
		}
	}
	return unnamed
}

// failed records an error, which ends the answer.
func (a *answer) failed(name string) { a.ErrorType, a.Whole = name, true }

// say adds to the text. It never splits a character.
func (a *answer) say(s string) {
	if len(a.said)+len(s) <= maxDocument {
		a.said = append(a.said, s...)
	}
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
	o.Whole = true
	if doc, ok := objectOf("", v, nil); ok && doc.has("error") {
		o.failed(failure(doc.raw("error"), "type", "status", "code"))
	}
}

func (o *other) event(kind string, _ []byte) { o.unknown(kind) }
func (o *other) end()                        {}

// odd records a member of another type than the API says.
func (a *answer) odd(member string, v jsontext.Value) {
	for i := range a.Odd {
		if a.Odd[i].Member == member {
			a.Odd[i].Count++
			return
		}
	}
	if len(a.Odd) < maxOdd {
		a.Odd = append(a.Odd, Odd{member, cut(string(v), maxRaw), 1})
	}
}
