package wire

import "github.com/go-json-experiment/json/jsontext"

// chat reads answers of POST /v1/chat/completions.
type chat struct {
	*answer
	calls map[[2]int64]*pending // by choice and index
	whole int                   // this many of Calls are complete
}

// completion is a document, or a chunk of a stream.
type completion struct {
	ID      string         `json:"id"`
	Model   string         `json:"model"`
	Choices []choice       `json:"choices"`
	Usage   jsontext.Value `json:"usage"`
	Error   jsontext.Value `json:"error"`
}

type choice struct {
	Index        int64          `json:"index"`
	Message      *chatMessage   `json:"message"`
	Delta        *chatMessage   `json:"delta"`
	FinishReason jsontext.Value `json:"finish_reason"`
}

type chatMessage struct {
	ToolCalls    []chatCall    `json:"tool_calls"`
	FunctionCall *chatFunction `json:"function_call"`
}

type chatCall struct {
	Index    *int64        `json:"index"`
	ID       string        `json:"id"`
	Type     string        `json:"type"`
	Function *chatFunction `json:"function"`
	Custom   *chatCustom   `json:"custom"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type chatCustom struct {
	Name  string `json:"name"`
	Input string `json:"input"`
}

func (c *chat) document(v jsontext.Value) {
	if c.chunk(v) {
		c.Whole = true
		c.completeAll()
	}
}

func (c *chat) event(_ string, data []byte) {
	if string(data) == done {
		c.Whole = true
		c.completeAll()
		return
	}
	c.chunk(data)
}

// chunk reads a document or a chunk, and reports whether it was valid.
func (c *chat) chunk(v jsontext.Value) bool {
	var doc completion
	if !decode(v, &doc) {
		c.unknown("")
		return false
	}
	if doc.Error != nil && doc.Error.Kind() != 'n' {
		c.ErrorType = failure(doc.Error)
		return true
	}
	if doc.ID != "" {
		c.ID = cut(doc.ID, maxText)
	}
	if doc.Model != "" {
		c.Model = cut(doc.Model, maxText)
	}
	if all := c.usage(doc.Usage); all != nil {
		c.Usage = Usage{
			InputTokens: count(all["prompt_tokens"]), OutputTokens: count(all["completion_tokens"]),
			CacheReadInputTokens:  within(all["prompt_tokens_details"], "cached_tokens"),
			ReasoningOutputTokens: within(all["completion_tokens_details"], "reasoning_tokens"),
		}
	}
	for _, ch := range doc.Choices {
		for _, m := range []*chatMessage{ch.Message, ch.Delta} {
			if m != nil {
				c.message(ch.Index, m)
			}
		}
		if r := text(ch.FinishReason); r != "" {
			c.finish(r)
			c.Whole = true
			c.completeAll()
		}
	}
	return true
}

// message reads the tool calls of a message or a delta.
func (c *chat) message(choice int64, m *chatMessage) {
	for i, call := range m.ToolCalls {
		index := int64(i)
		if call.Index != nil {
			index = *call.Index
		}
		switch {
		case call.Custom != nil:
			c.call(choice, index, call.ID, call.Custom.Name, call.Custom.Input, true)
		case call.Function != nil:
			c.call(choice, index, call.ID, call.Function.Name, call.Function.Arguments, false)
		default:
			c.unknown(call.Type)
		}
	}
	if f := m.FunctionCall; f != nil {
		c.call(choice, -1, "", f.Name, f.Arguments, false)
	}
}

// call starts a call or adds to one. isText means that the tool's argument is text.
func (c *chat) call(choice, index int64, id, name, args string, isText bool) {
	key := [2]int64{choice, index}
	id = cut(id, maxText)
	p := c.calls[key]
	if p == nil || id != "" && p.call >= 0 && c.Calls[p.call].ID != "" && c.Calls[p.call].ID != id {
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
