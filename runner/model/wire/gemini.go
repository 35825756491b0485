package wire

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// gemini reads answers of :generateContent and :streamGenerateContent.
type gemini struct{ *answer }

func (g *gemini) document(v jsontext.Value) {
	if g.chunk("", v) {
		g.Whole = true
	}
}

func (g *gemini) event(kind string, data []byte) {
	if !isDone(data) {
		g.chunk(kind, data)
	}
}

// chunk reads a document or a chunk of a stream, and reports whether it was one.
func (g *gemini) chunk(kind string, v jsontext.Value) bool {
	doc, ok := objectOf("chunk", v, g.odd)
	if !ok {
		g.unreadable(kind, v)
		return false
	}
	if doc.has("error") {
		g.failed(failure(doc.raw("error"), "status", "type", "code"))
		return true
	}
	if id := doc.text("responseId"); id != "" {
		g.ID = cut(id, maxText)
	}
	if model := doc.text("modelVersion"); model != "" {
		g.Model = cut(model, maxText)
	}
	g.tokens(doc.raw("usageMetadata"))
	if r := doc.object("promptFeedback").text("blockReason"); r != "" {
		g.finish(r)
		g.Whole = true
	}
	for i, c := range doc.objects("candidates") {
		for _, p := range c.object("content").list("parts") {
			g.part(p, i == 0)
		}
		if r := c.text("finishReason"); r != "" {
			g.finish(r)
			g.Whole = true
		}
	}
	return true
}

// tokens reads the usage. Gemini counts thoughts separately from candidates' tokens.
func (g *gemini) tokens(v jsontext.Value) {
	all := g.usage(v)
	if all.members == nil {
		return
	}
	g.Usage = Usage{
		CacheReadInputTokens:  all.tokens("cachedContentTokenCount"),
		ReasoningOutputTokens: all.tokens("thoughtsTokenCount"),
		OutputTokens:          sum(all.tokens("candidatesTokenCount"), all.tokens("thoughtsTokenCount")),
	}
	if in := all.tokens("promptTokenCount"); in != nil {
		g.Usage.InputTokens = sum(in, all.tokens("toolUsePromptTokenCount"))
	}
}

// part reads a part of a candidate's content. first is true for the first candidate.
func (g *gemini) part(v jsontext.Value, first bool) {
	p, ok := objectOf("parts[]", v, g.odd)
	if !ok {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(p.members)) {
		switch key {
		case "functionCall":
			if f, ok := objectOf("functionCall", p.raw(key), g.odd); ok {
				g.complete(g.begin(ToolCall{ID: f.text("id"), Name: f.text("name"), Arguments: f.raw("args").Clone()}))
			}
		case "executableCode":
			g.complete(g.begin(ToolCall{Name: "code_execution", Arguments: p.members[key].Clone(),
				ProviderExecuted: true}))
		case "text":
			if s := p.text(key); first && !p.flag("thought") {
				g.say(s)
			}
		case "thought", "thoughtSignature", "inlineData", "fileData", "codeExecutionResult",
			"functionResponse", "videoMetadata", "partMetadata", "mediaResolution":
		default:
			g.unknown(key)
		}
	}
}

func (g *gemini) end() {}
