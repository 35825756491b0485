package wire

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// anthropic reads answers of POST /v1/messages.
type anthropic struct {
	*answer
	blocks map[int64]*pending // of a stream, by index
	last   int64              // index of the block that started last
	sealed bool               // message_delta has reported the number of output tokens
}

func (m *anthropic) document(v jsontext.Value) {
	doc, ok := objectOf("message", v, m.odd)
	if !ok {
		return
	}
	if doc.has("error") || text(doc.raw("type")) == unnamed {
		m.failed(failure(doc.raw("error"), "type", "status", "code"))
		return
	}
	m.Whole, m.sealed = true, true
	m.message(doc)
	if c := doc.raw("content"); c.Kind() == '"' {
		m.odd("message.content", c)
		m.say(text(c))
		return
	}
	for _, c := range doc.list("content") {
		b := m.block(c)
		m.complete(b.call)
	}
}

// message reads the message in a document or in message_start, except its content.
func (m *anthropic) message(msg object) {
	m.ID, m.Model = cut(msg.text("id"), maxText), cut(msg.text("model"), maxText)
	m.finish(msg.text("stop_reason"))
	m.tokens(msg.raw("usage"))
}

// tokens reads a usage object. It ignores the output count in message_start, which is only a first guess.
func (m *anthropic) tokens(v jsontext.Value) {
	all := m.usage(v)
	if all.members == nil {
		return
	}
	u := &m.Usage
	u.CacheReadInputTokens = all.tokens("cache_read_input_tokens")
	u.CacheCreationInputTokens = all.tokens("cache_creation_input_tokens")
	if in := all.tokens("input_tokens"); in != nil {
		u.InputTokens = sum(in, u.CacheReadInputTokens, u.CacheCreationInputTokens)
	}
	if m.sealed {
		u.OutputTokens = all.tokens("output_tokens")
	}
}

// block reads a content block in a document or in content_block_start.
func (m *anthropic) block(v jsontext.Value) *pending {
	b := &pending{call: -1}
	c, ok := objectOf("content[]", v, m.odd)
	if !ok {
		return b
	}
	switch kind := c.text("type"); kind {
	case "tool_use", "server_tool_use", "mcp_tool_use":
		b.call = m.begin(ToolCall{ID: c.text("id"), Name: c.text("name"), Namespace: c.text("server_name"),
			Arguments: c.raw("input").Clone(), ProviderExecuted: kind != "tool_use"})
	case "text":
		b.speaks = true
		m.say(c.text("text"))
	case "thinking", "redacted_thinking", "container_upload", "compaction":
	default:
		if !strings.HasSuffix(kind, "_tool_result") { // a tool that the provider ran
			m.unknown(kind)
		}
	}
	return b
}

func (m *anthropic) event(kind string, data []byte) {
	e, ok := objectOf("event", data, m.odd)
	if !ok {
		m.unreadable(kind, data)
		return
	}
	if t := e.text("type"); t != "" {
		kind = t
	}
	switch kind {
	case "ping":
	case "message_start":
		m.message(e.object("message"))
		for _, c := range e.object("message").list("content") { // usually none
			m.complete(m.block(c).call)
		}
	case "content_block_start":
		if len(m.blocks) >= maxCalls {
			m.unknown("too_many_blocks")
			return
		}
		if at := e.index("index"); at != nil {
			m.last = *at
		} else {
			for m.last = 0; m.blocks[m.last] != nil; m.last++ {
			}
		}
		m.blocks[m.last] = m.block(e.raw("content_block"))
	case "content_block_delta":
		m.delta(m.blocks[m.at(e)], e.object("delta"))
	case "content_block_stop":
		if b := m.blocks[m.at(e)]; b != nil {
			m.settle(b)
			m.complete(b.call)
			delete(m.blocks, m.at(e))
		}
	case "message_delta":
		m.finish(e.object("delta").text("stop_reason"))
		m.sealed = true
		m.tokens(e.raw("usage"))
	case "message_stop":
		m.Whole = true
		m.end()
		for _, i := range slices.Sorted(maps.Keys(m.blocks)) {
			m.complete(m.blocks[i].call)
		}
	case "error":
		m.failed(failure(e.raw("error"), "type", "status", "code"))
	default:
		m.unknown(kind)
	}
}

// at returns the index of the block that an event belongs to: the last one that started, if the event does not say.
func (m *anthropic) at(e object) int64 {
	if at := e.index("index"); at != nil {
		return *at
	}
	return m.last
}

// delta adds to a content block, which may be nil.
func (m *anthropic) delta(b *pending, d object) {
	switch kind := d.text("type"); kind {
	case "input_json_delta":
		if v := d.raw("partial_json"); b != nil && b.call >= 0 && v != nil {
			b.add(piece(d, "partial_json"))
		}
	case "text_delta":
		if b == nil || b.speaks {
			m.say(d.text("text"))
		}
	case "thinking_delta", "signature_delta", "citations_delta", "compaction_delta":
	default:
		m.unknown(kind)
	}
}

func (m *anthropic) end() {
	for _, b := range m.blocks {
		m.settle(b)
	}
}
