package wire

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Request is what a request says.
type Request struct {
	// Readable is false if the body is not a JSON object. The other fields are then empty.
	Readable bool
	Model    string // empty: not in the body
	Stream   bool
	// Background asks the provider to continue without the client.
	Background bool
	// IncludeUsage asks for the usage at the end of a stream of chat completions.
	IncludeUsage bool
	// Results are the tool results of the whole conversation.
	Results []ToolResult
	// Stored is the member that refers to something stored at the provider, such as a prompt with tools; empty: none.
	Stored string
	// Tools are the tools that the model may call, if their names are known.
	Tools []Tool
}

// ToolResult is the result of a tool call.
type ToolResult struct {
	ID string // of the call; empty if the provider gives none
	// Name is the tool's name, if the result has it.
	Name string
	// IsError is nil if the API does not say.
	IsError *bool
	// Last means that no message of the model follows.
	Last bool
}

// Tool is a tool that a request declares.
type Tool struct {
	Name string
	// Provider means that the provider runs it, such as a web search.
	Provider bool
}

// maxResults limits the results and the tools of a request.
const maxResults = 16384

// ReadRequest reads the body of a request, which has no content encoding.
func ReadRequest(api API, body []byte) *Request {
	r := &Request{}
	switch api {
	case Messages, CountTokens:
		r.anthropic(body)
	case Responses:
		r.responses(body)
	case ChatCompletions:
		r.chat(body)
	case GenerateContent:
		r.gemini(body)
	default:
		r.Readable = jsontext.Value(body).IsValid(options())
	}
	r.Model = cut(r.Model, maxText)
	return r
}

func (r *Request) result(t ToolResult) {
	if len(r.Results) < maxResults {
		t.ID, t.Name = cut(t.ID, maxText), cut(t.Name, maxText)
		r.Results = append(r.Results, t)
	}
}

// answered records that a message of the model follows the results so far.
func (r *Request) answered() {
	for i := len(r.Results) - 1; i >= 0 && r.Results[i].Last; i-- {
		r.Results[i].Last = false
	}
}

func (r *Request) tool(name string, provider bool) {
	if len(r.Tools) < maxResults {
		r.Tools = append(r.Tools, Tool{Name: cut(name, maxText), Provider: provider})
	}
}

// declared is a tool in Anthropic's and OpenAI's form.
type declared struct {
	Type     string `json:"type"`
	Name     string `json:"name"`
	Label    string `json:"server_label"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
	Custom struct {
		Name string `json:"name"`
	} `json:"custom"`
	Environment struct {
		Type string `json:"type"`
	} `json:"environment"`
	Tools []jsontext.Value `json:"tools"` // of a namespace
}

// unreadableTool is the name for a tool declaration of an unknown form. The provider may run the tool.
const unreadableTool = "a tool of an unknown form"

func (d *declared) name() string {
	for _, n := range []string{d.Name, d.Function.Name, d.Custom.Name, d.Label, d.Type} {
		if n != "" {
			return n
		}
	}
	return ""
}

func (r *Request) anthropic(body []byte) {
	var doc struct {
		Model    string           `json:"model"`
		Stream   bool             `json:"stream"`
		Messages []jsontext.Value `json:"messages"`
		Tools    []jsontext.Value `json:"tools"`
		Servers  []struct {
			Name string `json:"name"`
		} `json:"mcp_servers"`
	}
	if r.Readable = decode(body, &doc); !r.Readable {
		return
	}
	r.Model, r.Stream = doc.Model, doc.Stream
	for _, v := range doc.Tools {
		var t declared
		if decode(v, &t) {
			r.tool(t.name(), t.Type != "" &&
				!hasPrefix(t.Type, "custom", "bash_", "text_editor_", "computer_", "memory_"))
		} else {
			r.tool(unreadableTool, true)
		}
	}
	for _, s := range doc.Servers {
		r.tool(s.Name, true)
	}
	for _, v := range doc.Messages {
		var m struct {
			Role    string         `json:"role"`
			Content jsontext.Value `json:"content"`
		}
		if !decode(v, &m) {
			continue
		}
		if m.Role == "assistant" {
			r.answered()
			continue
		}
		var parts []jsontext.Value
		if m.Content.Kind() != '[' || !decode(m.Content, &parts) {
			continue
		}
		for _, p := range parts {
			var t struct {
				Type    string `json:"type"`
				ID      string `json:"tool_use_id"`
				IsError bool   `json:"is_error"`
			}
			if decode(p, &t) && t.Type == "tool_result" {
				r.result(ToolResult{ID: t.ID, IsError: new(t.IsError), Last: true})
			}
		}
	}
}

func hasPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

func (r *Request) responses(body []byte) {
	var doc struct {
		Model      string           `json:"model"`
		Stream     bool             `json:"stream"`
		Background bool             `json:"background"`
		Input      jsontext.Value   `json:"input"`
		Tools      []jsontext.Value `json:"tools"`
		Prompt     jsontext.Value   `json:"prompt"`
	}
	if r.Readable = decode(body, &doc); !r.Readable {
		return
	}
	r.Model, r.Stream, r.Background = doc.Model, doc.Stream, doc.Background
	if doc.Prompt.Kind() == '{' {
		r.Stored = "prompt"
	}
	r.responsesTools(doc.Tools, 1)
	var items []jsontext.Value
	if doc.Input.Kind() != '[' || !decode(doc.Input, &items) {
		return
	}
	for _, v := range items {
		var it struct {
			Type   string `json:"type"`
			Role   string `json:"role"`
			CallID string `json:"call_id"`
		}
		if !decode(v, &it) {
			continue
		}
		switch {
		case it.CallID != "" && strings.HasSuffix(it.Type, "_output"):
			r.result(ToolResult{ID: it.CallID, Last: true})
		case it.Role == "assistant" || it.Type == "reasoning" || strings.HasSuffix(it.Type, "_call"):
			r.answered()
		}
	}
}

// maxNested limits the nesting of namespaces.
const maxNested = 4

// responsesTools reads tools, and those inside a namespace.
func (r *Request) responsesTools(tools []jsontext.Value, depth int) {
	for _, v := range tools {
		var t declared
		if !decode(v, &t) || depth > maxNested {
			r.tool(unreadableTool, true)
			continue
		}
		r.responsesTools(t.Tools, depth+1)
		provider := true
		switch t.Type {
		case "function", "custom", "local_shell", "apply_patch", "namespace":
			provider = false
		case "shell":
			provider = t.Environment.Type != "" && t.Environment.Type != "local"
		default:
			provider = !hasPrefix(t.Type, "computer")
		}
		r.tool(t.name(), provider)
	}
}

func (r *Request) chat(body []byte) {
	var doc struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role   string `json:"role"`
			CallID string `json:"tool_call_id"`
			Name   string `json:"name"`
		} `json:"messages"`
		Tools     []jsontext.Value `json:"tools"`
		WebSearch jsontext.Value   `json:"web_search_options"`
		Options   struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if r.Readable = decode(body, &doc); !r.Readable {
		return
	}
	r.Model, r.Stream, r.IncludeUsage = doc.Model, doc.Stream, doc.Options.IncludeUsage
	for _, v := range doc.Tools {
		var t declared
		if decode(v, &t) {
			r.tool(t.name(), t.Type != "function" && t.Type != "custom" && t.Type != "")
		} else {
			r.tool(unreadableTool, true)
		}
	}
	if doc.WebSearch.Kind() == '{' {
		r.tool("web_search", true)
	}
	for _, m := range doc.Messages {
		switch m.Role {
		case "assistant":
			r.answered()
		case "tool", "function":
			r.result(ToolResult{ID: m.CallID, Name: m.Name, Last: true})
		}
	}
}

func (r *Request) gemini(body []byte) {
	var doc struct {
		Contents []struct {
			Role  string           `json:"role"`
			Parts []jsontext.Value `json:"parts"`
		} `json:"contents"`
		Tools  []map[string]jsontext.Value `json:"tools"`
		Cached string                      `json:"cachedContent"`
		Other  string                      `json:"cached_content"`
	}
	if r.Readable = decode(body, &doc); !r.Readable {
		return
	}
	switch {
	case doc.Cached != "":
		r.Stored = "cachedContent"
	case doc.Other != "":
		r.Stored = "cached_content"
	}
	for _, t := range doc.Tools {
		r.geminiTools(t)
	}
	for _, c := range doc.Contents {
		if c.Role == "model" {
			r.answered()
			continue
		}
		for _, v := range c.Parts {
			var p struct {
				Response *struct {
					ID       string                    `json:"id"`
					Name     string                    `json:"name"`
					Response map[string]jsontext.Value `json:"response"`
				} `json:"functionResponse"`
			}
			if !decode(v, &p) || p.Response == nil {
				continue
			}
			t := ToolResult{ID: p.Response.ID, Name: p.Response.Name, Last: true}
			_, failed := p.Response.Response["error"]
			if _, worked := p.Response.Response["output"]; failed || worked {
				t.IsError = new(failed)
			}
			r.result(t)
		}
	}
}

// geminiTools reads an entry of Gemini's tools: functions, or a provider's tool by its key.
func (r *Request) geminiTools(t map[string]jsontext.Value) {
	keys := make([]string, 0, len(t))
	for k := range t {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if k != "functionDeclarations" && k != "function_declarations" {
			r.tool(k, k != "computerUse")
			continue
		}
		var functions []struct {
			Name string `json:"name"`
		}
		_ = decode(t[k], &functions)
		for _, f := range functions {
			r.tool(f.Name, false)
		}
	}
}
