package wire

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// responses reads answers of POST /v1/responses.
type responses struct {
	*answer
	items map[int64]*pending  // of a stream, by output index
	last  int64               // output index of the item that started last
	known map[string]bool     // ids of the calls so far
	unids int                 // calls so far without an id
	texts map[[2]int64][]byte // what the model said in a stream, by output and content index
	told  bool                // the whole text has come
}

func (r *responses) document(v jsontext.Value) {
	doc, ok := objectOf("response", v, r.odd)
	if !ok {
		return
	}
	r.Whole = true
	r.response(doc)
	r.output(doc.list("output"))
	r.speak(doc)
}

// response reads everything in a response except its output.
func (r *responses) response(doc object) {
	if id := doc.text("id"); id != "" {
		r.ID = cut(id, maxText)
	}
	if model := doc.text("model"); model != "" {
		r.Model = cut(model, maxText)
	}
	if all := r.usage(doc.raw("usage")); all.members != nil {
		r.Usage = Usage{
			InputTokens: all.tokens("input_tokens"), OutputTokens: all.tokens("output_tokens"),
			CacheReadInputTokens:     all.object("input_tokens_details").tokens("cached_tokens"),
			CacheCreationInputTokens: all.object("input_tokens_details").tokens("cache_write_tokens"),
			ReasoningOutputTokens:    all.object("output_tokens_details").tokens("reasoning_tokens"),
		}
	}
	if doc.has("error") {
		r.failed(errorCode(doc.raw("error")))
	}
	switch status := doc.text("status"); status {
	case "completed", "failed", "cancelled":
		r.FinishReasons = []string{status}
	case "incomplete":
		r.FinishReasons = []string{cmp.Or(cut(doc.object("incomplete_details").text("reason"), maxText), status)}
	}
}

// errorCode returns the error code of a response, which has a code in place of a type.
func errorCode(v jsontext.Value) string { return failure(v, "type", "code", "status") }

// output reads complete items. Items that the stream has already shown are not counted again.
func (r *responses) output(items []jsontext.Value) {
	unids := 0
	for _, v := range items {
		it, ok := objectOf("output[]", v, r.odd)
		if !ok {
			continue
		}
		c, is := r.call(it)
		if !is || c.ID != "" && r.known[c.ID] {
			continue
		}
		if c.ID == "" {
			if unids++; unids <= r.unids {
				continue
			}
		}
		r.complete(r.start(c))
	}
}

// speak takes the text of a response's output, if it has one.
func (r *responses) speak(doc object) {
	var all []byte
	for _, it := range doc.objects("output") {
		all = append(all, itemText(it)...)
	}
	if len(all) > 0 {
		r.said, r.told = all[:min(len(all), maxDocument)], true
	}
}

// itemText returns the text of an output item.
func itemText(it object) (all []byte) {
	if it.text("type") != "message" {
		return nil
	}
	for _, p := range it.objects("content") {
		if p.text("type") == "output_text" {
			all = append(all, p.text("text")...)
		}
	}
	return all
}

// start adds a call.
func (r *responses) start(c ToolCall) int {
	i := r.begin(c)
	if c.ID == "" {
		r.unids++
	} else if i >= 0 {
		r.known[c.ID] = true
	}
	return i
}

// call returns the tool call of an item, and whether the item is one.
func (r *responses) call(it object) (c ToolCall, is bool) {
	kind := it.text("type")
	switch kind {
	case "message", "reasoning", "mcp_list_tools", "mcp_approval_request", "compaction", "function_call_output",
		"tool_search_output", "shell_call_output", "apply_patch_call_output", "compaction_summary":
		return c, false
	}
	c = ToolCall{ID: cut(cmp.Or(it.text("call_id"), it.text("id")), maxText), Name: it.text("name"),
		Namespace: cmp.Or(it.text("namespace"), it.text("server_label"))}
	switch kind {
	case "function_call", "mcp_call":
		if v := it.raw("arguments"); v.Kind() == '{' {
			c.Arguments = v.Clone()
		} else {
			c.ArgumentsText = it.text("arguments")
		}
		c.ProviderExecuted = kind == "mcp_call"
		return c, true
	case "custom_tool_call":
		c.Arguments = quoted(it.text("input"))
		return c, true
	case "local_shell_call", "shell_call", "computer_call", "web_search_call":
		c.Arguments = it.raw("action").Clone()
	case "apply_patch_call":
		c.Arguments = it.raw("operation").Clone()
	case "file_search_call", "code_interpreter_call", "image_generation_call":
	case "tool_search_call":
		c.Arguments = it.raw("arguments").Clone()
	default:
		r.unknown(kind)
		return c, false
	}
	c.Name = strings.TrimSuffix(kind, "_call")
	switch kind {
	case "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call":
		c.ProviderExecuted = true
	}
	return c, true
}

// event reads an event.
func (r *responses) event(kind string, data []byte) {
	if isDone(data) {
		return
	}
	e, ok := objectOf("event", data, r.odd)
	if !ok {
		r.unreadable(kind, data)
		return
	}
	if t := e.text("type"); t != "" {
		kind = t
	}
	switch kind {
	case "response.created", "response.queued", "response.in_progress", "response.completed", "response.failed",
		"response.incomplete":
		r.state(kind, e.object("response"))
	case "response.output_item.added":
		r.added(e)
	case "response.output_item.done":
		r.done(e)
	case "response.function_call_arguments.delta", "response.mcp_call_arguments.delta",
		"response.custom_tool_call_input.delta":
		if p := r.items[r.at(e)]; p != nil {
			p.add(piece(e, "delta"))
		}
	case "response.function_call_arguments.done", "response.mcp_call_arguments.done":
		if p := r.items[r.at(e)]; p != nil && e.has("arguments") {
			p.args = []byte(piece(e, "arguments"))
		}
	case "response.custom_tool_call_input.done":
		if p := r.items[r.at(e)]; p != nil && e.has("input") {
			p.args = []byte(piece(e, "input"))
		}
	case "response.output_text.delta":
		if at := r.part(e); len(r.texts) < maxCalls && len(r.texts[at]) < maxDocument {
			r.texts[at] = append(r.texts[at], e.text("delta")...)
		}
	case "response.output_text.done":
		if at := r.part(e); e.has("text") && len(r.texts) < maxCalls {
			r.texts[at] = []byte(e.text("text"))
		}
	case "error":
		if e.has("error") {
			r.failed(errorCode(e.raw("error")))
		} else {
			r.failed(errorCode(data))
		}
	default:
		switch {
		case e.has("error"): // of a server that does not name its events
			r.failed(errorCode(e.raw("error")))
		case !knownResponseEvent(kind):
			r.unknown(kind)
		}
	}
}

// at returns the index of the item that an event belongs to: the last one, if the event does not say.
func (r *responses) at(e object) int64 {
	if at := e.index("output_index"); at != nil {
		return *at
	}
	return r.last
}

// part returns the place of the text that an event belongs to.
func (r *responses) part(e object) [2]int64 {
	at := [2]int64{r.at(e), 0}
	if n := e.index("content_index"); n != nil {
		at[1] = *n
	}
	return at
}

// state reads an event that carries the response.
func (r *responses) state(kind string, doc object) {
	r.response(doc)
	switch kind {
	case "response.completed", "response.failed", "response.incomplete":
		r.Whole = true
		r.output(doc.list("output"))
		r.speak(doc)
	}
}

// added reads an item whose content is still to come.
func (r *responses) added(e object) {
	if at := e.index("output_index"); at != nil {
		r.last = *at
	} else {
		for r.last = 0; r.items[r.last] != nil; r.last++ {
		}
	}
	it := e.object("item")
	c, is := r.call(it)
	if !is {
		return
	}
	if len(r.items) >= maxCalls {
		r.unknown("too_many_items")
		return
	}
	r.items[r.last] = &pending{call: r.start(c), isText: it.text("type") == "custom_tool_call"}
}

// done reads a complete item, which may have been added before.
func (r *responses) done(e object) {
	index := r.at(e)
	p := r.items[index]
	first := [2]int64{index, 0}
	if text := itemText(e.object("item")); len(text) > 0 && len(r.texts[first]) == 0 && len(r.texts) < maxCalls {
		r.texts[first] = text
	}
	if p == nil {
		if c, is := r.call(e.object("item")); is && !(c.ID != "" && r.known[c.ID]) {
			r.complete(r.start(c))
		}
		return
	}
	delete(r.items, index)
	if p.call < 0 {
		return
	}
	if c, is := r.call(e.object("item")); is {
		before := r.Calls[p.call]
		c.ID, c.Name = cmp.Or(c.ID, before.ID), cut(cmp.Or(c.Name, before.Name), maxText)
		c.Namespace = cut(cmp.Or(c.Namespace, before.Namespace), maxText)
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
	if r.told {
		return
	}
	inOrder := func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) }
	for _, at := range slices.SortedFunc(maps.Keys(r.texts), inOrder) {
		r.say(string(r.texts[at]))
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
