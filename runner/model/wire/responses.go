package wire

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// responses reads answers of POST /v1/responses.
type responses struct {
	*answer
	items map[int64]*pending // of a stream, by output index
	known map[string]bool    // ids of the calls so far
}

// response is a document, or the response in a stream's event.
type response struct {
	ID                string           `json:"id"`
	Object            string           `json:"object"`
	Model             string           `json:"model"`
	Status            string           `json:"status"`
	Output            []jsontext.Value `json:"output"`
	Usage             jsontext.Value   `json:"usage"`
	Error             jsontext.Value   `json:"error"`
	IncompleteDetails struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

// item is an output item.
type item struct {
	Type      string         `json:"type"`
	ID        string         `json:"id"`
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
	Input     string         `json:"input"`
	Action    jsontext.Value `json:"action"`
	Operation jsontext.Value `json:"operation"`
}

func (r *responses) document(v jsontext.Value) {
	var doc response
	if !decode(v, &doc) {
		r.unknown("")
		return
	}
	r.Whole = true
	r.response(&doc)
	r.output(doc.Output)
}

// response reads everything in a response except its output.
func (r *responses) response(doc *response) {
	if doc.ID != "" {
		r.ID = cut(doc.ID, maxText)
	}
	if doc.Model != "" {
		r.Model = cut(doc.Model, maxText)
	}
	if all := r.usage(doc.Usage); all != nil {
		r.Usage = Usage{
			InputTokens: count(all["input_tokens"]), OutputTokens: count(all["output_tokens"]),
			CacheReadInputTokens:  within(all["input_tokens_details"], "cached_tokens"),
			ReasoningOutputTokens: within(all["output_tokens_details"], "reasoning_tokens"),
		}
	}
	if k := doc.Error.Kind(); k == '{' || k == '"' {
		r.ErrorType = errorCode(doc.Error)
	}
	switch doc.Status {
	case "completed", "failed", "cancelled":
		r.FinishReasons = []string{doc.Status}
	case "incomplete":
		r.FinishReasons = []string{cut(doc.IncompleteDetails.Reason, maxText)}
		if r.FinishReasons[0] == "" {
			r.FinishReasons[0] = doc.Status
		}
	}
}

// errorCode returns the error code of a response, which has a code in place of a type.
func errorCode(v jsontext.Value) string {
	var e struct {
		Code jsontext.Value `json:"code"`
		Type jsontext.Value `json:"type"`
	}
	if decode(v, &e) {
		if t := text(e.Type); t != "" && t != "error" {
			return cut(t, maxText)
		}
		if c := text(e.Code); c != "" {
			return cut(c, maxText)
		}
	}
	return failure(v)
}

// output reads complete items. Items that the stream has already shown are not counted again.
func (r *responses) output(items []jsontext.Value) {
	for _, v := range items {
		var it item
		if !decode(v, &it) {
			r.unknown("")
			continue
		}
		c, is := r.call(&it)
		if is && !r.known[c.ID] {
			r.complete(r.start(c))
		}
	}
}

// start adds a call.
func (r *responses) start(c ToolCall) int {
	i := r.begin(c)
	if i >= 0 && c.ID != "" {
		r.known[c.ID] = true
	}
	return i
}

// call returns the tool call of an item, and whether the item is one.
func (r *responses) call(it *item) (c ToolCall, is bool) {
	c = ToolCall{ID: it.CallID, Name: it.Name}
	if c.ID == "" {
		c.ID = it.ID
	}
	c.ID = cut(c.ID, maxText)
	switch it.Type {
	case "function_call", "mcp_call":
		c.ArgumentsText = text(it.Arguments)
		if it.Arguments.Kind() == '{' {
			c.Arguments = it.Arguments.Clone()
		}
		c.ProviderExecuted = it.Type == "mcp_call"
		return c, true
	case "custom_tool_call":
		c.Arguments = quoted(it.Input)
		return c, true
	case "local_shell_call", "shell_call", "computer_call", "web_search_call":
		c.Arguments = it.Action.Clone()
	case "apply_patch_call":
		c.Arguments = it.Operation.Clone()
	case "file_search_call", "code_interpreter_call", "image_generation_call":
	case "tool_search_call":
		c.Arguments = it.Arguments.Clone()
	case "message", "reasoning", "mcp_list_tools", "mcp_approval_request", "compaction", "function_call_output",
		"tool_search_output", "shell_call_output", "apply_patch_call_output", "compaction_summary":
		return c, false
	default:
		r.unknown(it.Type)
		return c, false
	}
	c.Name = strings.TrimSuffix(it.Type, "_call")
	switch it.Type {
	case "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call":
		c.ProviderExecuted = true
	}
	return c, true
}

// event reads an event.
func (r *responses) event(kind string, data []byte) {
	if string(data) == done {
		return
	}
	var e struct {
		Type      string         `json:"type"`
		Index     int64          `json:"output_index"`
		Item      jsontext.Value `json:"item"`
		Response  jsontext.Value `json:"response"`
		Delta     jsontext.Value `json:"delta"`
		Arguments jsontext.Value `json:"arguments"`
		Input     jsontext.Value `json:"input"`
		Error     jsontext.Value `json:"error"`
	}
	if !decode(data, &e) {
		r.unknown("")
		return
	}
	if e.Type == "" {
		e.Type = kind
	}
	switch e.Type {
	case "response.created", "response.queued", "response.in_progress", "response.completed", "response.failed",
		"response.incomplete":
		r.state(e.Type, e.Response)
	case "response.output_item.added":
		r.added(e.Index, e.Item)
	case "response.output_item.done":
		r.done(e.Index, e.Item)
	case "response.function_call_arguments.delta", "response.mcp_call_arguments.delta",
		"response.custom_tool_call_input.delta":
		if p := r.items[e.Index]; p != nil {
			p.add(text(e.Delta))
		}
	case "response.function_call_arguments.done", "response.mcp_call_arguments.done":
		if p := r.items[e.Index]; p != nil && e.Arguments.Kind() == '"' {
			p.args = []byte(text(e.Arguments))
		}
	case "response.custom_tool_call_input.done":
		if p := r.items[e.Index]; p != nil && e.Input.Kind() == '"' {
			p.args = []byte(text(e.Input))
		}
	case "error":
		if r.ErrorType = "error"; e.Error.Kind() == '{' {
			r.ErrorType = errorCode(e.Error)
		} else if c := errorCode(data); c != "" {
			r.ErrorType = c
		}
	default:
		if !knownResponseEvent(e.Type) {
			r.unknown(e.Type)
		}
	}
}

// state reads an event that carries the response.
func (r *responses) state(kind string, v jsontext.Value) {
	var doc response
	if !decode(v, &doc) {
		r.unknown("")
		return
	}
	r.response(&doc)
	switch kind {
	case "response.completed", "response.failed", "response.incomplete":
		r.Whole = true
		r.output(doc.Output)
	}
}

// added reads an item whose content is still to come.
func (r *responses) added(index int64, v jsontext.Value) {
	var it item
	if !decode(v, &it) {
		r.unknown("")
		return
	}
	c, is := r.call(&it)
	if !is {
		return
	}
	if len(r.items) >= maxCalls {
		r.unknown("too_many_items")
		return
	}
	r.items[index] = &pending{call: r.start(c), isText: it.Type == "custom_tool_call"}
}

// done reads a complete item, which may have been added before.
func (r *responses) done(index int64, v jsontext.Value) {
	p := r.items[index]
	if p == nil {
		r.output([]jsontext.Value{v})
		return
	}
	delete(r.items, index)
	var it item
	if p.call < 0 || !decode(v, &it) {
		return
	}
	if c, is := r.call(&it); is {
		c.Name = cut(c.Name, maxText)
		r.Calls[p.call] = c
		if c.ID != "" {
			r.known[c.ID] = true
		}
		if c.Arguments == nil && c.ArgumentsText == "" {
			r.settle(p)
		}
	}
	r.complete(p.call)
}

func (r *responses) end() {
	for _, p := range r.items {
		r.settle(p)
	}
}

// knownResponseEvent reports whether an event of this kind has nothing to keep.
func knownResponseEvent(kind string) bool {
	for _, p := range []string{
		"response.content_part.", "response.output_text.", "response.refusal.", "response.reasoning.",
		"response.reasoning_text.", "response.reasoning_summary.", "response.reasoning_summary_part.",
		"response.reasoning_summary_text.", "response.web_search_call.", "response.file_search_call.",
		"response.code_interpreter_call.", "response.code_interpreter_call_code.", "response.image_generation_call.",
		"response.mcp_call.", "response.mcp_list_tools.", "response.audio.",
	} {
		if strings.HasPrefix(kind, p) {
			return true
		}
	}
	return kind == "keepalive"
}
