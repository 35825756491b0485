package wire

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// gemini reads answers of :generateContent and :streamGenerateContent.
type gemini struct{ *answer }

func (g *gemini) document(v jsontext.Value) {
	if g.chunk(v) {
		g.Whole = true
	}
}

func (g *gemini) event(_ string, data []byte) { g.chunk(data) }

// chunk reads a document or a chunk of a stream, and reports whether it was valid.
func (g *gemini) chunk(v jsontext.Value) bool {
	var doc struct {
		Candidates []struct {
			Content struct {
				Parts []jsontext.Value `json:"parts"`
			} `json:"content"`
			FinishReason jsontext.Value `json:"finishReason"`
		} `json:"candidates"`
		PromptFeedback struct {
			BlockReason jsontext.Value `json:"blockReason"`
		} `json:"promptFeedback"`
		Usage        jsontext.Value `json:"usageMetadata"`
		ModelVersion string         `json:"modelVersion"`
		ResponseID   string         `json:"responseId"`
		Error        jsontext.Value `json:"error"`
	}
	if !decode(v, &doc) {
		g.unknown("")
		return false
	}
	if doc.Error.Kind() == '{' {
		g.ErrorType = status(doc.Error)
		return true
	}
	if doc.ResponseID != "" {
		g.ID = cut(doc.ResponseID, maxText)
	}
	if doc.ModelVersion != "" {
		g.Model = cut(doc.ModelVersion, maxText)
	}
	g.tokens(doc.Usage)
	if r := text(doc.PromptFeedback.BlockReason); r != "" {
		g.finish(r)
		g.Whole = true
	}
	for _, c := range doc.Candidates {
		for _, p := range c.Content.Parts {
			g.part(p)
		}
		if r := text(c.FinishReason); r != "" {
			g.finish(r)
			g.Whole = true
		}
	}
	return true
}

// status returns the error status of a Google API, which has a status in place of a type.
func status(v jsontext.Value) string {
	var e struct {
		Status string `json:"status"`
	}
	if decode(v, &e) && e.Status != "" {
		return cut(e.Status, maxText)
	}
	return failure(v)
}

// tokens reads the usage. Gemini counts thoughts separately from candidates' tokens.
func (g *gemini) tokens(v jsontext.Value) {
	all := g.usage(v)
	if all == nil {
		return
	}
	g.Usage = Usage{
		CacheReadInputTokens:  count(all["cachedContentTokenCount"]),
		ReasoningOutputTokens: count(all["thoughtsTokenCount"]),
		OutputTokens:          sum(count(all["candidatesTokenCount"]), count(all["thoughtsTokenCount"])),
	}
	if in := count(all["promptTokenCount"]); in != nil {
		g.Usage.InputTokens = sum(in, count(all["toolUsePromptTokenCount"]))
	}
}

// part reads a part of a candidate's content.
func (g *gemini) part(v jsontext.Value) {
	var p map[string]jsontext.Value
	if !decode(v, &p) {
		g.unknown("")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(p)) {
		switch key {
		case "functionCall":
			var f struct {
				ID   string         `json:"id"`
				Name string         `json:"name"`
				Args jsontext.Value `json:"args"`
			}
			if !decode(p[key], &f) {
				g.unknown("")
				return
			}
			g.complete(g.begin(ToolCall{ID: f.ID, Name: f.Name, Arguments: f.Args.Clone()}))
		case "executableCode":
			g.complete(g.begin(ToolCall{Name: "code_execution", Arguments: p[key].Clone(), ProviderExecuted: true}))
		case "text", "thought", "thoughtSignature", "inlineData", "fileData", "codeExecutionResult",
			"functionResponse", "videoMetadata", "partMetadata", "mediaResolution":
		default:
			g.unknown(key)
		}
	}
}

func (g *gemini) end() {}
