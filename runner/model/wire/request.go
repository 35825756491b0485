package wire

import (
	"cmp"
	_ "embed"
	"maps"
	"net/url"
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
	// Tools are the tools that the model may call, if their names are known.
	Tools []Tool
	// Fetches is what makes the provider act for the agent: what it loads, what it has stored, and what it runs.
	Fetches []Fetch
	// Odd lists the members of another type than the API says.
	Odd []Odd
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

// FetchKind is how a provider acts for an agent.
type FetchKind string

// The kinds.
const (
	FetchMedia  FetchKind = "media"  // it loads a URL that the request has in place of the content
	FetchStored FetchKind = "stored" // it reads what it has stored, by an id
	FetchTool   FetchKind = "tool"   // it runs a tool of its own, such as a web search
	FetchMCP    FetchKind = "mcp"    // it calls a remote MCP server
	// FetchUnknown is a part of a request of a kind that this package does not know, which may be any of the others.
	FetchUnknown FetchKind = "unknown"
)

// Fetch is something that a request makes the provider load, read or run for the agent, out of the agent's sandbox.
type Fetch struct {
	Kind FetchKind
	What string // the member or the tool, such as "image_url" or "web_search"
	Host string // the host that the provider contacts; empty: the provider itself, or not known
}

// maxResults limits the results, the tools and the fetches of a request.
const maxResults = 16384

// ReadRequest reads the body of a request, which has no content encoding. Each member is read for itself.
func ReadRequest(api API, body []byte) *Request {
	r := &Request{}
	if api == Models {
		r.Readable = jsontext.Value(body).IsValid(options())
		return r
	}
	doc, ok := objectOf("", body, r.odd)
	if r.Odd = nil; !ok {
		return r
	}
	r.Readable = true
	r.Model, r.Stream = cut(doc.text("model"), maxText), doc.flag("stream")
	r.account(api, doc)
	switch api {
	case Messages:
		r.anthropic(doc)
	case Responses:
		r.responses(doc)
	case ChatCompletions:
		r.chat(doc)
	case GenerateContent, EmbedContent:
		r.gemini(doc)
	case CountTokens: // of any provider: what is counted is loaded, and nothing is run
		r.anthropic(doc)
		r.responses(doc)
		r.gemini(doc)
		r.gemini(r.inner(r.camel(doc), "generateContentRequest"))
		r.Fetches = slices.DeleteFunc(r.Fetches, func(f Fetch) bool {
			return f.Kind == FetchTool || f.Kind == FetchMCP
		})
	}
	return r
}

// members is a table of the members of requests that make no provider act for the agent, or that are read: an API, a
// colon, and its members. Gateways to many providers take others, such as the plugins that search the web. The line
// searching has parts of names of models that always search.
//
//go:embed members.txt
var members string

// account records members that are not in the table, and models that search.
func (r *Request) account(api API, doc object) {
	for line := range strings.Lines(members) {
		of, list, _ := strings.Cut(line, ": ")
		known := strings.Fields(list)
		switch of {
		case string(api):
			for _, key := range slices.Sorted(maps.Keys(doc.members)) {
				// Null and false ask for nothing.
				if k := doc.raw(key).Kind(); k != 0 && k != 'f' && !slices.Contains(known, key) {
					r.fetch(FetchUnknown, key, "")
				}
			}
		case "searching":
			if name := strings.ToLower(r.Model); slices.ContainsFunc(known, func(part string) bool {
				return strings.Contains(name, part)
			}) {
				r.fetch(FetchTool, r.Model, "")
			}
		}
	}
}

func (r *Request) odd(member string, v jsontext.Value) {
	a := answer{Answer: Answer{Odd: r.Odd}}
	a.odd(member, v)
	r.Odd = a.Odd
}

// fetch records that the provider acts for the agent. Each is listed once.
func (r *Request) fetch(kind FetchKind, what, host string) {
	f := Fetch{kind, cut(what, maxText), cut(host, maxText)}
	if len(r.Fetches) < maxResults && !slices.Contains(r.Fetches, f) {
		r.Fetches = append(r.Fetches, f)
	}
}

// load records what the provider loads from a URL. A data URL has the content itself.
func (r *Request) load(what, address string) {
	scheme, _, _ := strings.Cut(address, ":")
	if address == "" || strings.EqualFold(scheme, "data") {
		return
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "":
		r.fetch(FetchMedia, what, "")
	case u.Scheme == "gs" || strings.HasSuffix(u.Hostname(), ".googleapis.com") && strings.Contains(u.Path, "/files/"):
		r.fetch(FetchStored, what, "")
	default:
		r.fetch(FetchMedia, what, strings.ToLower(u.Hostname()))
	}
}

// stored records members of an object that are ids of what the provider has stored.
func (r *Request) stored(o object, members ...string) {
	for _, m := range members {
		if o.has(m) && string(o.raw(m)) != `""` {
			r.fetch(FetchStored, m, "")
		}
	}
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
	if provider {
		r.fetch(FetchTool, name, "")
	}
}

// unreadableTool is the name for a tool declaration of an unknown form. The provider may run the tool.
const unreadableTool = "a tool of an unknown form"

// tools returns the declared tools that are objects. Anything else counts as a tool of an unknown form.
func (r *Request) tools(o object) (all []object) {
	v := o.raw("tools")
	if v == nil {
		return nil
	}
	if v.Kind() != '[' {
		r.tool(unreadableTool, true)
	}
	for _, v := range o.list("tools") {
		t, ok := objectOf("tools[]", v, r.odd)
		if !ok {
			r.tool(unreadableTool, true)
			continue
		}
		all = append(all, t)
	}
	return all
}

// isText reports whether a member is a text or absent. Another type may hide what the tool is.
func isText(o object, members ...string) bool {
	for _, m := range members {
		if k := o.raw(m).Kind(); k != '"' && k != 0 {
			return false
		}
	}
	return true
}

// toolName returns the name of a tool in Anthropic's and OpenAI's form.
func toolName(t object) string {
	return cmp.Or(t.text("name"), t.object("function").text("name"), t.object("custom").text("name"),
		t.text("server_label"), t.text("type"))
}

func (r *Request) anthropic(doc object) {
	for _, t := range r.tools(doc) {
		kind := t.text("type")
		if !isText(t, "type", "name") {
			r.tool(unreadableTool, true)
			continue
		}
		r.tool(toolName(t), kind != "" && !hasPrefix(kind, "custom", "bash_", "text_editor_", "computer_", "memory_"))
	}
	if v := doc.raw("mcp_servers"); v != nil && v.Kind() != '[' {
		r.tool(unreadableTool, true)
	}
	for _, v := range doc.list("mcp_servers") {
		s, _ := objectOf("mcp_servers[]", v, r.odd)
		r.server(s, s.text("name"), s.text("url"))
	}
	r.stored(doc, "container")
	r.blocks(doc, "system", 0)
	for _, m := range r.parts(doc, "messages") {
		if m.text("role") == "assistant" {
			r.answered()
		}
		r.blocks(m, "content", 0)
	}
}

// server records a remote MCP server, whose tools the provider calls.
func (r *Request) server(s object, name, address string) {
	if len(r.Tools) < maxResults {
		r.Tools = append(r.Tools, Tool{Name: cut(cmp.Or(name, unreadableTool), maxText), Provider: true})
	}
	host := ""
	if u, err := url.Parse(address); err == nil {
		host = strings.ToLower(u.Hostname())
	}
	r.fetch(FetchMCP, cmp.Or(name, unreadableTool), host)
}

// blocks reads the content of a message, or of a result or a document inside of it.
func (r *Request) blocks(o object, member string, depth int) {
	if o.raw(member).Kind() == '"' {
		return
	}
	if depth > maxNested {
		r.fetch(FetchUnknown, member, "")
		return
	}
	for _, c := range r.parts(o, member) {
		switch kind := c.text("type"); kind {
		case "text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use", "compaction",
			"search_result", "tool_reference":
		case "tool_result":
			if depth == 0 {
				r.result(ToolResult{ID: c.text("tool_use_id"), IsError: new(c.flag("is_error")), Last: true})
			}
			r.blocks(c, "content", depth+1)
		case "image", "document":
			s := c.object("source")
			switch s.text("type") {
			case "base64", "text":
			case "url":
				r.load(kind, cmp.Or(s.text("url"), "unknown"))
			case "file":
				r.fetch(FetchStored, kind, "")
			case "content":
				r.blocks(s, "content", depth+1)
			default:
				r.fetch(FetchUnknown, kind, "")
			}
		case "container_upload":
			r.fetch(FetchStored, kind, "")
		default:
			if !strings.HasSuffix(kind, "_tool_result") { // of a tool that the provider ran; it has the content itself
				r.fetch(FetchUnknown, kind, "")
			}
		}
	}
}

// parts returns the objects of a list, such as the parts of a content. Anything else in the list or in its place counts
// as a part of an unknown kind, except a text. So does a part whose type is no text.
func (r *Request) parts(o object, member string) (all []object) {
	v := o.raw(member)
	if v == nil || v.Kind() == '"' {
		return nil
	}
	if v.Kind() != '[' {
		r.fetch(FetchUnknown, member, "")
	}
	for _, v := range o.list(member) {
		p, ok := objectOf(member+"[]", v, r.odd)
		switch {
		case ok && isText(p, "type"):
			all = append(all, p)
		case v.Kind() != '"' && v.Kind() != 'n':
			r.fetch(FetchUnknown, member, "")
		}
	}
	return all
}

// inner returns a member that is an object. Anything else in its place counts as a part of an unknown kind.
func (r *Request) inner(o object, member string) object {
	inner, ok := objectOf(o.name(member), o.raw(member), r.odd)
	if !ok && o.has(member) {
		r.fetch(FetchUnknown, member, "")
	}
	return inner
}

func hasPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

func (r *Request) responses(doc object) {
	v := doc.raw("background")
	r.Background = v != nil && v.Kind() != 'f'
	r.stored(doc, "prompt", "previous_response_id", "conversation")
	r.responsesTools(doc, 1)
	for _, it := range r.parts(doc, "input") {
		r.item(it)
	}
}

// item reads an item of the input.
func (r *Request) item(it object) {
	kind, id := it.text("type"), it.text("call_id")
	switch {
	case id != "" && strings.HasSuffix(kind, "_output"):
		r.result(ToolResult{ID: id, Last: true})
	case it.text("role") == "assistant" || kind == "reasoning" || strings.HasSuffix(kind, "_call"):
		r.answered()
	}
	switch kind {
	case "", "message":
		if kind == "" && !it.has("role") && it.has("id") {
			r.fetch(FetchStored, "item_reference", "")
			return
		}
		r.inputs(it, "content")
	case "item_reference":
		r.fetch(FetchStored, kind, "")
	case "image_generation_call":
		if !it.has("result") {
			r.fetch(FetchStored, kind, "")
		}
	case "computer_call_output":
		r.image(r.inner(it, "output"))
	case "function_call_output", "custom_tool_call_output":
		r.inputs(it, "output")
	case "tool_search_output": // has the tools that the client found
		r.responsesTools(it, 1)
	case "function_call", "custom_tool_call", "reasoning", "local_shell_call", "local_shell_call_output", "shell_call",
		"shell_call_output", "apply_patch_call", "apply_patch_call_output", "web_search_call", "file_search_call",
		"computer_call", "code_interpreter_call", "mcp_list_tools", "mcp_call", "mcp_approval_request",
		"mcp_approval_response", "compaction", "compaction_summary", "compaction_trigger", "tool_search_call":
	default:
		r.fetch(FetchUnknown, kind, "")
	}
}

// inputs reads the content of a message or the output of a call.
func (r *Request) inputs(o object, member string) {
	for _, p := range r.parts(o, member) {
		switch kind := p.text("type"); kind {
		case "input_text", "output_text", "text", "refusal", "input_audio", "reasoning_text", "summary_text",
			"encrypted_content":
		case "input_image":
			r.image(p)
		case "input_file":
			r.stored(p, "file_id")
			r.load("file_url", address(p, "file_url"))
		default:
			r.fetch(FetchUnknown, kind, "")
		}
	}
}

// image reads an image of the responses API.
func (r *Request) image(p object) {
	r.stored(p, "file_id")
	r.load("image_url", address(p, "image_url"))
}

// address returns a URL; a value that is no text counts as a URL that cannot be read.
func address(o object, member string) string {
	if v := o.raw(member); v != nil && v.Kind() != '"' {
		return "unreadable"
	}
	return o.text(member)
}

// maxNested limits the nesting of namespaces, and of contents.
const maxNested = 4

// responsesTools reads tools, and those inside a namespace.
func (r *Request) responsesTools(o object, depth int) {
	for _, t := range r.tools(o) {
		if depth > maxNested || !isText(t, "type", "name", "server_label") {
			r.tool(unreadableTool, true)
			continue
		}
		r.responsesTools(t, depth+1)
		provider := true
		switch kind := t.text("type"); kind {
		case "function", "custom", "local_shell", "apply_patch", "namespace":
			provider = false
		case "mcp":
			r.server(t, toolName(t), t.text("server_url"))
			continue
		case "shell":
			env := r.inner(t, "environment")
			provider = env.has("type") && env.text("type") != "local"
		default:
			provider = !hasPrefix(kind, "computer")
		}
		r.tool(toolName(t), provider)
	}
}

func (r *Request) chat(doc object) {
	r.IncludeUsage = doc.object("stream_options").flag("include_usage")
	for _, t := range r.tools(doc) {
		kind := t.text("type")
		if !isText(t, "type", "name") {
			r.tool(unreadableTool, true)
			continue
		}
		r.tool(toolName(t), kind != "function" && kind != "custom" && kind != "")
	}
	if v := doc.raw("web_search_options"); v != nil && v.Kind() != 'f' {
		r.tool("web_search", true)
	}
	for _, m := range r.parts(doc, "messages") {
		switch m.text("role") {
		case "assistant":
			r.answered()
			r.stored(m, "audio")
		case "tool", "function":
			r.result(ToolResult{ID: m.text("tool_call_id"), Name: m.text("name"), Last: true})
		}
		for _, p := range r.parts(m, "content") {
			switch kind := p.text("type"); kind {
			case "text", "refusal", "input_audio":
			case "image_url":
				if p.raw(kind).Kind() == '"' {
					r.load(kind, p.text(kind))
				} else {
					r.load(kind, cmp.Or(address(r.inner(p, kind), "url"), "unreadable"))
				}
			case "file":
				f := r.inner(p, kind)
				r.stored(f, "file_id")
				r.load("file_url", address(f, "file_url"))
			default:
				r.fetch(FetchUnknown, kind, "")
			}
		}
	}
}

// camel returns an object of Gemini's with the names of its members in camel case, as its other methods expect them:
// Gemini reads them in snake case as well. Which one it reads of two spellings of a name is not known.
func (r *Request) camel(o object) object {
	named := object{at: o.at, odd: o.odd, members: make(map[string]jsontext.Value, len(o.members))}
	for _, key := range slices.Sorted(maps.Keys(o.members)) {
		name := camelCase(key)
		if _, twice := named.members[name]; twice {
			r.fetch(FetchUnknown, key, "")
		}
		named.members[name] = o.members[key]
	}
	return named
}

// camelCase turns file_uri into fileUri.
func camelCase(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// many returns the objects of a list. Gemini reads an object in place of a list as its only item.
func (r *Request) many(o object, member string) []object {
	if o.raw(member).Kind() == '{' {
		return []object{o.object(member)}
	}
	return r.parts(o, member)
}

func (r *Request) gemini(doc object) {
	doc = r.camel(doc)
	r.stored(doc, "cachedContent")
	for _, t := range r.tools(doc) {
		r.geminiTools(t)
	}
	for _, c := range append(r.many(doc, "contents"), r.inner(doc, "content"), r.inner(doc, "systemInstruction")) {
		if c.text("role") == "model" {
			r.answered()
		}
		r.geminiParts(c, 0)
	}
	for _, one := range r.many(doc, "requests") { // of batchEmbedContents
		r.geminiParts(r.inner(one, "content"), 0)
	}
}

// geminiParts reads the parts of a content, or of a function's response.
func (r *Request) geminiParts(c object, depth int) {
	if depth > maxNested {
		r.fetch(FetchUnknown, "parts", "")
		return
	}
	for _, p := range r.many(c, "parts") {
		p = r.camel(p)
		for _, key := range slices.Sorted(maps.Keys(p.members)) {
			switch key {
			case "text", "thought", "thoughtSignature", "inlineData", "functionCall", "executableCode",
				"codeExecutionResult", "videoMetadata", "mediaResolution", "partMetadata":
			case "fileData":
				r.load("fileUri", cmp.Or(address(r.camel(r.inner(p, key)), "fileUri"), "unreadable"))
			case "functionResponse":
				f := r.inner(p, key)
				r.geminiParts(f, depth+1)
				if depth > 0 {
					continue
				}
				t := ToolResult{ID: f.text("id"), Name: f.text("name"), Last: true}
				says := f.object("response")
				if failed, worked := says.has("error"), says.has("output"); failed || worked {
					t.IsError = new(failed)
				}
				r.result(t)
			default:
				r.fetch(FetchUnknown, key, "")
			}
		}
	}
}

// geminiTools reads an entry of Gemini's tools: functions, or a provider's tool by its key.
func (r *Request) geminiTools(t object) {
	for _, k := range slices.Sorted(maps.Keys(t.members)) {
		if kind := camelCase(k); kind != "functionDeclarations" {
			r.tool(k, kind != "computerUse")
			continue
		}
		for _, f := range t.objects(k) {
			r.tool(f.text("name"), false)
		}
	}
}
