package schema

import (
	"cmp"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ModelEvent is one line of layers/model.ndjson: a request that the run's model gateway received, and its answer.
type ModelEvent struct {
	Schema string `json:"schema"` // ModelEventV0
	RunID  string `json:"run_id"`
	Seq    uint64 `json:"seq"`
	ModelEventBody
}

// ModelEventBody is a [ModelEvent] without what the recorder stamps. What is not known is nil.
type ModelEventBody struct {
	// TNS is when the whole request had arrived, in nanoseconds since run_started.
	TNS    int64   `json:"t_ns"`
	Route  *string `json:"route"` // anthropic, openai or gemini
	API    *string `json:"api"`   // such as messages
	Method string  `json:"method"`
	Path   string  `json:"path"` // without a query
	// RequestModel is the model that the request names, ResponseModel the one that the answer names.
	RequestModel  *string `json:"request_model"`
	ResponseModel *string `json:"response_model"`
	ResponseID    *string `json:"response_id"`
	Status        *int    `json:"status"` // HTTP status that the agent got
	// ErrorType is the name of an error: the provider's own, or one of those below. ErrorSource says which. If the
	// provider gave its error no name, ErrorType is the HTTP status as text, or "error" for an error in an answer.
	ErrorType   *string `json:"error_type"`
	ErrorSource string  `json:"error_source,omitzero"` // one of ModelErrorBy…; empty: no error
	// Refused is why the gateway did not pass the request on, one of those below.
	Refused *string `json:"refused"`
	Stream  *bool   `json:"stream"`
	// RetryOf is the seq of the latest request before this one with the same content, which failed.
	RetryOf       *uint64           `json:"retry_of"`
	ExecID        *uint64           `json:"exec_id"` // of the process that asked
	FinishReasons []string          `json:"finish_reasons"`
	Usage         ModelUsage        `json:"usage"`
	UsageRaw      jsontext.Value    `json:"usage_raw,omitzero"` // in the provider's form
	ToolCalls     []ModelToolCall   `json:"tool_calls"`
	ToolResults   []ModelToolResult `json:"tool_results"` // those that no earlier request had
	Timings       ModelTimings      `json:"timings"`
	// Cost is in the currency of the price list.
	Cost     *float64  `json:"cost"`
	Request  ModelBody `json:"request"`
	Response ModelBody `json:"response"`
	// ResponseHeaders are those of the answer that a client acts upon, by their names in lower case: content-type,
	// retry-after, retry-after-ms and x-should-retry.
	ResponseHeaders map[string]string `json:"response_headers,omitzero"`
	// Replayed is where the answer comes from, in a run that replays a bundle. Nil: from the provider.
	Replayed *ModelReplayed `json:"replayed,omitzero"`
	// Unknown counts the parts of the answer that this build does not know, such as new kinds of events.
	// UnknownKinds names the first of them.
	Unknown      uint64   `json:"unknown,omitzero"`
	UnknownKinds []string `json:"unknown_kinds,omitzero"`
	// Text is what the model said, put together from the answer, as a JSON string. It may be the name of the bundle
	// member that holds the text, as in ModelBody. It is absent if the model said nothing, or if bodies are not kept.
	Text jsontext.Value `json:"text,omitzero"`
	// Odd lists the members of the answer that have another type than the provider's API says. Other members of the
	// answer are not affected.
	Odd []ModelOdd `json:"odd,omitzero"`
	// Partial names the members of this line that may lack something, because a part of the answer was odd or unknown:
	// usage, tool_calls, text, or answer for any of them.
	Partial []string `json:"partial,omitzero"`
	// Fetches is what the request made the provider load, read or run for the agent. An answer may show more.
	Fetches []ModelFetch `json:"fetches,omitzero"`
}

// ModelOdd is a member of an answer that has another type than the provider's API says.
type ModelOdd struct {
	Member string `json:"member"`       // such as usage.input_tokens
	Raw    string `json:"raw,omitzero"` // the start of the first such value; empty if bodies are not kept
	Count  uint64 `json:"count"`        // how often it was odd
}

// ModelFetch is something that a provider loads, reads or runs for the agent, which no sandbox and no kernel event
// shows.
type ModelFetch struct {
	Kind string `json:"kind"`          // media, stored, tool, mcp or unknown
	What string `json:"what"`          // such as image_url or web_search
	Host string `json:"host,omitzero"` // the host that the provider contacts; empty: itself, or not known
}

// Who named an error.
const (
	ModelErrorByProvider = "provider"
	ModelErrorByRecorder = "recorder"
)

// ModelReplayed is the line of the replayed bundle that gave the answer.
type ModelReplayed struct {
	Seq uint64 `json:"seq"`
	// Drift counts the places at which the request differs from the recorded one. Places are the first of them, as
	// JSON pointers.
	Drift  int      `json:"drift"`
	Places []string `json:"places,omitzero"`
	// Redacted is true if the recorded answer lacks the secrets that were removed from it.
	Redacted bool `json:"redacted,omitzero"`
}

// Error types of the recorder's own.
const (
	ModelErrorBroken      = "stream_broken"        // the provider's answer was cut short
	ModelErrorLeft        = "client_left"          // the agent disconnected before the end of the answer
	ModelErrorUnreachable = "provider_unreachable" // there was no connection
	ModelErrorNoAnswer    = "no_answer"            // the connection ended before request or answer was whole
	ModelErrorKey         = "key_in_answer"        // the gateway cut the answer because it contained the provider's key
	ModelErrorEncoding    = "encoding_unknown"     // the answer could not be decoded for the record
	ModelErrorUnreadable  = "answer_unreadable"    // the answer is neither JSON nor a stream of events
)

// Why a request is refused.
const (
	ModelRefusedCredential = "credential" // the request did not carry the run's token
	ModelRefusedPath       = "path"       // the path is not that of a model request
	ModelRefusedBackground = "background" // the answer would come after the run
	ModelRefusedWebSocket  = "websocket"
	ModelRefusedRequest    = "request"        // the request could not be parsed
	ModelRefusedTools      = "provider_tools" // it makes the provider load or run something, which the policy denies
	ModelRefusedBudget     = "budget"         // the run's budget is spent
	ModelRefusedMiss       = "replay_miss"    // the run replays a bundle that has no answer for it
	ModelRefusedUsage      = "usage_unknown"  // there is a token budget, and the answer would not say what it used
	ModelRefusedPrice      = "price_unknown"  // there is a cost budget, and the price list lacks the model
)

// ModelToolCall is a tool call in an answer.
type ModelToolCall struct {
	ID   *string `json:"id"`
	Name string  `json:"name"`
	// Namespace is what the provider names beside Name, such as the MCP server of a tool of Codex'.
	Namespace string `json:"namespace,omitempty"`
	// Index is the call's place in the answer, if it has no id. Doubt says why it is not sure which call a result or a
	// process belongs to: no_id.
	Index *int   `json:"index,omitzero"`
	Doubt string `json:"doubt,omitempty"`
	// Arguments is a JSON value. A string in it may name the bundle member that holds the text, as in ModelBody.
	// Arguments that are not JSON are in ArgumentsText. Both are absent if bodies are not kept.
	Arguments     jsontext.Value `json:"arguments,omitzero"`
	ArgumentsText string         `json:"arguments_text,omitempty"`
	// ProviderExecuted is true if the provider runs the tool itself.
	ProviderExecuted bool `json:"provider_executed"`
	Complete         bool `json:"complete"` // the answer has the end of the call
}

// ModelToolResult is a tool's result in a request.
type ModelToolResult struct {
	ID      *string `json:"id"` // of the tool call
	Name    string  `json:"name,omitempty"`
	IsError *bool   `json:"is_error"`
}

// ModelTimings are times in nanoseconds since run_started.
type ModelTimings struct {
	FirstByteNS *int64 `json:"first_byte_ns"` // of the answer's body
	EndNS       int64  `json:"end_ns"`        // of the answer
}

// ModelBody is the body of a request or an answer, decoded (content-encoding) and without secrets.
type ModelBody struct {
	// Bytes is its length as it was passed on.
	Bytes int64 `json:"bytes"`
	// SHA256 is the digest of the whole body, before texts were moved to other members. It is nil if there was no
	// body, or if it could not be decoded.
	SHA256 *string `json:"sha256"`
	// Body is JSON; if Text is true, it is a string. A string in it that begins with [BlobsDir] names the bundle
	// member that holds the text. It is absent if bodies are not kept, or if LeftOut is true.
	Body jsontext.Value `json:"body,omitzero"`
	Text bool           `json:"text,omitzero"`
	// Base names the parts of the request that an earlier line has, and that Body leaves out. Nil means none.
	Base *ModelBase `json:"base,omitzero"`
	// LeftOut is true if the body was too large to keep.
	LeftOut bool `json:"left_out,omitzero"`
}

// ModelBase says which parts of a JSON object are in the body of an earlier line.
type ModelBase struct {
	Seq uint64 `json:"seq"` // of that line
	// Members names the object members that are equal there.
	Members []string `json:"members,omitzero"`
	// Items lists, for members that are arrays, ranges of items that are equal there: the index of the first item,
	// which is the same in both arrays, and the number of items. Body has the other items, in order.
	Items map[string][][2]int `json:"items,omitzero"`
}

// orNull reads a value or null, which is nil.
func orNull[T any](d lineReader, value func() (T, error)) (*T, error) {
	if d.null() {
		return nil, nil
	}
	return pointer(value())
}

func (e *ModelEvent) read(d lineReader) error {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "schema":
			e.Schema, err = d.oneOf(ModelEventV0)
		case "run_id":
			e.RunID, err = d.runID()
		case "seq":
			e.Seq, err = d.count()
		case "t_ns":
			e.TNS, err = d.integer()
		case "route":
			e.Route, err = orNull(d, d.text)
		case "api":
			e.API, err = orNull(d, d.text)
		case "method":
			e.Method, err = d.text()
		case "path":
			e.Path, err = d.text()
		case "request_model":
			e.RequestModel, err = orNull(d, d.text)
		case "response_model":
			e.ResponseModel, err = orNull(d, d.text)
		case "response_id":
			e.ResponseID, err = orNull(d, d.text)
		case "status":
			e.Status, err = orNull(d, d.size)
		case "error_type":
			e.ErrorType, err = orNull(d, d.text)
		case "error_source":
			e.ErrorSource, err = d.oneOf(ModelErrorByProvider, ModelErrorByRecorder)
		case "refused":
			e.Refused, err = orNull(d, d.text)
		case "stream":
			e.Stream, err = orNull(d, d.boolean)
		case "retry_of":
			e.RetryOf, err = orNull(d, d.count)
		case "exec_id":
			e.ExecID, err = orNull(d, d.count)
		case "finish_reasons":
			e.FinishReasons, err = d.texts()
		case "usage":
			e.Usage, err = d.modelUsage()
		case "usage_raw":
			e.UsageRaw, err = d.rawMessage()
		case "tool_calls":
			e.ToolCalls, err = list(d, unbounded, d.modelToolCall)
		case "tool_results":
			e.ToolResults, err = list(d, unbounded, d.modelToolResult)
		case "timings":
			e.Timings, err = d.modelTimings()
		case "cost":
			e.Cost, err = orNull(d, d.duration)
		case "request":
			e.Request, err = d.modelBody()
		case "response":
			e.Response, err = d.modelBody()
		case "response_headers":
			e.ResponseHeaders, err = records(d, d.text)
		case "replayed":
			e.Replayed, err = pointer(d.modelReplayed())
		case "unknown":
			e.Unknown, err = d.count()
		case "unknown_kinds":
			e.UnknownKinds, err = d.texts()
		case "text":
			e.Text, err = d.rawMessage()
		case "odd":
			e.Odd, err = list(d, unbounded, d.modelOdd)
		case "partial":
			e.Partial, err = d.texts()
		case "fetches":
			e.Fetches, err = list(d, unbounded, d.modelFetch)
		default:
			err = d.skip()
		}
		return err
	})
	return cmp.Or(err, have.need("schema", "run_id", "seq", "t_ns", "route", "api", "method", "path", "request_model",
		"response_model", "response_id", "status", "error_type", "refused", "stream", "retry_of", "exec_id",
		"finish_reasons", "usage", "tool_calls", "tool_results", "timings", "cost", "request", "response"))
}

func (d lineReader) modelUsage() (u ModelUsage, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "input_tokens":
			u.InputTokens, err = orNull(d, d.natural)
		case "cache_read_input_tokens":
			u.CacheReadInputTokens, err = orNull(d, d.natural)
		case "cache_creation_input_tokens":
			u.CacheCreationInputTokens, err = orNull(d, d.natural)
		case "output_tokens":
			u.OutputTokens, err = orNull(d, d.natural)
		case "reasoning_output_tokens":
			u.ReasoningOutputTokens, err = orNull(d, d.natural)
		default:
			err = d.skip()
		}
		return err
	})
	return u, cmp.Or(err, have.need("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
		"output_tokens", "reasoning_output_tokens"))
}

func (d lineReader) modelToolCall() (c ModelToolCall, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "id":
			c.ID, err = orNull(d, d.text)
		case "name":
			c.Name, err = d.text()
		case "namespace":
			c.Namespace, err = d.text()
		case "index":
			c.Index, err = pointer(d.size())
		case "doubt":
			c.Doubt, err = d.text()
		case "arguments":
			c.Arguments, err = d.rawMessage()
		case "arguments_text":
			c.ArgumentsText, err = d.text()
		case "provider_executed":
			c.ProviderExecuted, err = d.boolean()
		case "complete":
			c.Complete, err = d.boolean()
		default:
			err = d.skip()
		}
		return err
	})
	return c, cmp.Or(err, have.need("id", "name", "provider_executed", "complete"))
}

func (d lineReader) modelOdd() (o ModelOdd, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "member":
			o.Member, err = d.text()
		case "raw":
			o.Raw, err = d.text()
		case "count":
			o.Count, err = d.count()
		default:
			err = d.skip()
		}
		return err
	})
	return o, cmp.Or(err, have.need("member", "count"))
}

func (d lineReader) modelFetch() (f ModelFetch, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "kind":
			f.Kind, err = d.text()
		case "what":
			f.What, err = d.text()
		case "host":
			f.Host, err = d.text()
		default:
			err = d.skip()
		}
		return err
	})
	return f, cmp.Or(err, have.need("kind", "what"))
}

func (d lineReader) modelToolResult() (r ModelToolResult, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "id":
			r.ID, err = orNull(d, d.text)
		case "name":
			r.Name, err = d.text()
		case "is_error":
			r.IsError, err = orNull(d, d.boolean)
		default:
			err = d.skip()
		}
		return err
	})
	return r, cmp.Or(err, have.need("id", "is_error"))
}

func (d lineReader) modelTimings() (t ModelTimings, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "first_byte_ns":
			t.FirstByteNS, err = orNull(d, d.integer)
		case "end_ns":
			t.EndNS, err = d.integer()
		default:
			err = d.skip()
		}
		return err
	})
	return t, cmp.Or(err, have.need("first_byte_ns", "end_ns"))
}

func (d lineReader) modelReplayed() (r ModelReplayed, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "seq":
			r.Seq, err = d.count()
		case "drift":
			r.Drift, err = d.size()
		case "places":
			r.Places, err = d.texts()
		case "redacted":
			r.Redacted, err = d.boolean()
		default:
			err = d.skip()
		}
		return err
	})
	return r, cmp.Or(err, have.need("seq", "drift"))
}

func (d lineReader) modelBody() (b ModelBody, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "bytes":
			b.Bytes, err = d.natural()
		case "sha256":
			b.SHA256, err = orNull(d, d.digest)
		case "body":
			b.Body, err = d.rawMessage()
		case "text":
			b.Text, err = d.boolean()
		case "base":
			b.Base, err = d.modelBase()
		case "left_out":
			b.LeftOut, err = d.boolean()
		default:
			err = d.skip()
		}
		return err
	})
	return b, cmp.Or(err, have.need("bytes", "sha256"))
}

func (d lineReader) modelBase() (*ModelBase, error) {
	raw, err := d.rawMessage()
	if err != nil {
		return nil, err
	}
	b := new(ModelBase)
	if err := json.Unmarshal(raw, b); err != nil {
		return nil, fmt.Errorf("base: %w", err)
	}
	return b, nil
}
