package wire

import "github.com/go-json-experiment/json/jsontext"

// chat reads answers of POST /v1/chat/completions.
type chat struct {
	*answer
	calls map[[2]int64]*pending // by choice and index
	last  map[int64]int64       // index of the call that started last, by choice
	whole int                   // this many of Calls are complete
}

func (c *chat) document(v jsontext.Value) {
	if c.chunk("", v) {
		c.Whole = true
		c.completeAll()
	}
}

func (c *chat) event(kind string, data []byte) {
	if isDone(data) {
		c.Whole = true
		c.completeAll()
		return
	}
	c.chunk(kind, data)
}

// chunk reads a document or a chunk, and reports whether it was one.
func (c *chat) chunk(kind string, v jsontext.Value) bool {
	doc, ok := objectOf("chunk", v, c.odd)
	if !ok {
		c.unreadable(kind, v)
		return false
	}
	if doc.has("error") || kind == unnamed {
		c.failed(failure(doc.raw("error"), "type", "status", "code"))
		return true
	}
	if id := doc.text("id"); id != "" {
		c.ID = cut(id, maxText)
	}
	if model := doc.text("model"); model != "" {
		c.Model = cut(model, maxText)
	}
	if all := c.usage(doc.raw("usage")); all.members != nil {
		c.Usage = Usage{
			InputTokens: all.tokens("prompt_tokens"), OutputTokens: all.tokens("completion_tokens"),
			CacheReadInputTokens:     all.object("prompt_tokens_details").tokens("cached_tokens"),
			CacheCreationInputTokens: all.object("prompt_tokens_details").tokens("cache_write_tokens"),
			ReasoningOutputTokens:    all.object("completion_tokens_details").tokens("reasoning_tokens"),
		}
	}
	for i, ch := range doc.objects("choices") {
		at := int64(i)
		if n := ch.index("index"); n != nil {
			at = *n
		}
		for _, m := range []object{ch.object("message"), ch.object("delta")} {
			c.message(at, m)
		}
		if r := ch.text("finish_reason"); r != "" {
			c.finish(r)
			c.Whole = true
			c.completeAll()
		}
	}
	return true
}

// message reads a message or a delta.
func (c *chat) message(choice int64, m object) {
	if choice == 0 {
		switch content := m.raw("content"); content.Kind() {
		case '"':
			c.say(text(content))
		case 0:
		default:
			c.odd(m.name("content"), content)
			if content.Kind() == '[' {
				for _, p := range m.objects("content") {
					c.say(p.text("text"))
				}
			}
		}
	}
	for i, call := range m.objects("tool_calls") {
		index := call.index("index")
		if _, isDelta := m.members["tool_calls"]; index == nil && isDelta && len(m.objects("tool_calls")) > 1 {
			index = new(int64(i))
		}
		switch {
		case call.has("custom"):
			f := call.object("custom")
			c.call(choice, index, call.text("id"), f.text("name"), piece(f, "input"), true)
		case call.has("function"):
			f := call.object("function")
			c.call(choice, index, call.text("id"), f.text("name"), piece(f, "arguments"), false)
		default:
			c.unknown(call.text("type"))
		}
	}
	if m.has("function_call") {
		f := m.object("function_call")
		c.call(choice, new(int64(-1)), "", f.text("name"), piece(f, "arguments"), false)
	}
}

// call starts a call or adds to one. Without an index, a piece that names a tool starts a call, and another belongs to
// the last one. So does a piece that names a tool where the arguments so far are complete: some servers number all
// calls 0 and give them no ids. isText means that the tool's argument is text.
func (c *chat) call(choice int64, index *int64, id, name, args string, isText bool) {
	id = cut(id, maxText)
	if index == nil {
		at, begun := c.last[choice]
		if p := c.calls[[2]int64{choice, at}]; begun && name != "" && p != nil && !c.continues(p, id, name) {
			at++
		}
		index = &at
	}
	c.last[choice] = *index
	key := [2]int64{choice, *index}
	p := c.calls[key]
	if p == nil || !c.continues(p, id, name) {
		if len(c.calls) >= maxCalls {
			c.unknown("too_many_tool_calls")
			return
		}
		if p != nil {
			c.settle(p)
		}
		p = &pending{call: c.begin(ToolCall{ID: id, Name: name}), isText: isText}
		c.calls[key] = p
	}
	if p.call < 0 {
		return
	}
	p.add(args)
	call := &c.Calls[p.call]
	if call.ID == "" {
		call.ID = id
	}
	if call.Name == "" {
		call.Name = cut(name, maxText)
	}
}

// continues reports whether a piece with an id and a name belongs to a call, and does not start another one.
func (c *chat) continues(p *pending, id, name string) bool {
	if p.call < 0 {
		return true
	}
	has := c.Calls[p.call]
	if id != "" && has.ID != "" {
		return id == has.ID
	}
	return name == "" || has.Name == "" || !jsontext.Value(p.args).IsValid(options())
}

func (c *chat) completeAll() {
	for ; c.whole < len(c.Calls); c.whole++ {
		c.complete(c.whole)
	}
}

func (c *chat) end() {
	for _, p := range c.calls {
		c.settle(p)
	}
}
