package wire

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// anthropic reads answers of POST /v1/messages.
type anthropic struct {
	*answer
	blocks map[int64]*pending // of a stream, by index
	sealed bool               // message_delta has reported the number of output tokens
}

// message is the message in a document or in message_start.
type message struct {
	ID         string           `json:"id"`
	Model      string           `json:"model"`
	Content    []jsontext.Value `json:"content"`
	StopReason jsontext.Value   `json:"stop_reason"`
	Usage      jsontext.Value   `json:"usage"`
}

func (m *anthropic) document(v jsontext.Value) {
	var doc struct {
		Type  string         `json:"type"`
		Error jsontext.Value `json:"error"`
	}
	if decode(v, &doc) && (doc.Type == "error" || doc.Error.Kind() == '{') {
		m.ErrorType, m.Whole = failure(doc.Error), true
		return
	}
	var msg message
	if !decode(v, &msg) {
		m.unknown("")
		return
	}
	m.Whole, m.sealed = true, true
	m.message(&msg)
	for _, c := range msg.Content {
		b := m.block(c)
		m.complete(b.call)
	}
}

func (m *anthropic) message(msg *message) {
	m.ID, m.Model = cut(msg.ID, maxText), cut(msg.Model, maxText)
	m.finish(text(msg.StopReason))
	m.tokens(msg.Usage)
}

// tokens reads a usage object. It ignores the output count in message_start, which is only a first guess.
func (m *anthropic) tokens(v jsontext.Value) {
	all := m.usage(v)
	if all == nil {
		return
	}
	u := &m.Usage
	u.CacheReadInputTokens = count(all["cache_read_input_tokens"])
	u.CacheCreationInputTokens = count(all["cache_creation_input_tokens"])
	if in := count(all["input_tokens"]); in != nil {
		u.InputTokens = sum(in, u.CacheReadInputTokens, u.CacheCreationInputTokens)
	}
	if m.sealed {
		u.OutputTokens = count(all["output_tokens"])
	}
}

// block reads a content block in a document or in content_block_start.
func (m *anthropic) block(v jsontext.Value) *pending {
	var c struct {
		Type  string         `json:"type"`
		ID    string         `json:"id"`
		Name  string         `json:"name"`
		Input jsontext.Value `json:"input"`
	}
	b := &pending{call: -1}
	if !decode(v, &c) {
		m.unknown("")
		return b
	}
	switch c.Type {
	case "tool_use", "server_tool_use", "mcp_tool_use":
		b.call = m.begin(ToolCall{ID: c.ID, Name: c.Name, Arguments: c.Input.Clone(),
			ProviderExecuted: c.Type != "tool_use"})
	case "text", "thinking", "redacted_thinking", "container_upload", "compaction":
	default:
		if !strings.HasSuffix(c.Type, "_tool_result") { // a tool that the provider ran
			m.unknown(c.Type)
		}
	}
	return b
}

func (m *anthropic) event(kind string, data []byte) {
	var e struct {
		Type    string         `json:"type"`
		Index   int64          `json:"index"`
		Message jsontext.Value `json:"message"`
		Block   jsontext.Value `json:"content_block"`
		Delta   jsontext.Value `json:"delta"`
		Usage   jsontext.Value `json:"usage"`
		Error   jsontext.Value `json:"error"`
	}
	if !decode(data, &e) {
		m.unknown("")
		return
	}
	if e.Type == "" {
		e.Type = kind
	}
	switch e.Type {
	case "ping":
	case "message_start":
		var msg message
		if !decode(e.Message, &msg) {
			m.unknown("")
			return
		}
		m.message(&msg)
	case "content_block_start":
		if len(m.blocks) < maxCalls {
			m.blocks[e.Index] = m.block(e.Block)
		} else {
			m.unknown("too_many_blocks")
		}
	case "content_block_delta":
		m.delta(e.Index, e.Delta)
	case "content_block_stop":
		if b := m.blocks[e.Index]; b != nil {
			m.settle(b)
			m.complete(b.call)
			delete(m.blocks, e.Index)
		}
	case "message_delta":
		var d struct {
			StopReason jsontext.Value `json:"stop_reason"`
		}
		_ = decode(e.Delta, &d)
		m.finish(text(d.StopReason))
		m.sealed = true
		m.tokens(e.Usage)
	case "message_stop":
		m.Whole = true
	case "error":
		m.ErrorType = failure(e.Error)
	default:
		m.unknown(e.Type)
	}
}

// delta adds to a content block.
func (m *anthropic) delta(index int64, v jsontext.Value) {
	var d struct {
		Type    string `json:"type"`
		Partial string `json:"partial_json"`
	}
	if !decode(v, &d) {
		m.unknown("")
		return
	}
	switch d.Type {
	case "input_json_delta":
		if b := m.blocks[index]; b != nil && b.call >= 0 {
			b.add(d.Partial)
		}
	case "text_delta", "thinking_delta", "signature_delta", "citations_delta", "compaction_delta":
	default:
		m.unknown(d.Type)
	}
}

func (m *anthropic) end() {
	for _, b := range m.blocks {
		m.settle(b)
	}
}
