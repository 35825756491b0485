package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// corpusAgent asks for each case by the SDK of its API, and prints what the SDK makes of the answer.
const corpusAgent = `
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
const require = createRequire(process.argv[2] + '/');
const Anthropic = require('@anthropic-ai/sdk').default, OpenAI = require('openai').default;
const { GoogleGenAI } = require('@google/genai');
for (const k of ['log', 'error', 'warn', 'info', 'debug']) console[k] = () => {};
const a = new Anthropic({ maxRetries: 0 }), o = new OpenAI({ maxRetries: 0 });
const g = new GoogleGenAI({ apiKey: process.env.GEMINI_API_KEY });
const messages = [{ role: 'user', content: 'hi' }];
const parsed = (v) => { if (typeof v !== 'string') return v; try { return JSON.parse(v) } catch { return { unparsed: v } } };
const usable = (n) => Number.isSafeInteger(n) && n >= 0 ? n : null;
const texts = (c) => typeof c === 'string' ? c :
  Array.isArray(c) ? c.filter((b) => b && (b.type === 'text' || b.type === 'output_text')).map((b) => b.text).join('') : '';

const ask = {
  messages: async (model, stream) => {
    let m, error, s;
    try {
      if (stream) {
        s = a.messages.stream({ model, max_tokens: 10, messages });
        s.on('error', () => {});
        s.on('streamEvent', (_, now) => { m = now });
        m = await s.finalMessage();
      } else m = await a.messages.create({ model, max_tokens: 10, messages });
    } catch (e) { error = e }
    if (!m || typeof m !== 'object') return { error };
    const u = m.usage ?? {}, parts = [u.input_tokens, u.cache_read_input_tokens, u.cache_creation_input_tokens];
    return { error, text: texts(m.content), finish: m.stop_reason, out: usable(u.output_tokens), cached: usable(u.cache_read_input_tokens),
      in: usable(u.input_tokens) === null ? null : parts.map((n) => usable(n) ?? 0).reduce((x, y) => x + y),
      calls: (Array.isArray(m.content) ? m.content : []).filter((b) => b?.type === 'tool_use')
        .map((b) => ({ id: b.id, name: b.name, args: b.input })) };
  },
  chat_completions: async (model, stream) => {
    let m, error, s;
    try {
      if (stream) {
        s = o.chat.completions.stream({ model, messages, stream_options: { include_usage: true } });
        s.on('error', () => {});
        s.on('chunk', (_, now) => { m = now });
        m = await s.finalChatCompletion();
      } else m = await o.chat.completions.create({ model, messages });
    } catch (e) { error = e }
    if (!m || typeof m !== 'object') return { error };
    const u = m.usage ?? {}, c = m.choices?.[0], msg = c?.message ?? {};
    return { error, text: texts(msg.content), finish: c?.finish_reason, in: usable(u.prompt_tokens), out: usable(u.completion_tokens),
      cached: usable(u.prompt_tokens_details?.cached_tokens),
      calls: (msg.tool_calls ?? []).filter(Boolean).map((t) => ({ id: t.id, name: t.function?.name, args: parsed(t.function?.arguments) })) };
  },
  responses: async (model, stream) => {
    let m, error, text = '', done = [];
    try {
      if (stream) {
        for await (const e of await o.responses.create({ model, input: 'hi', stream: true })) {
          if (e?.type === 'response.output_text.delta') text += e.delta;
          if (e?.type === 'response.output_item.done') done.push(e.item);
          if (/^response\.(created|completed|failed|incomplete)$/.test(e?.type)) m = e.response;
        }
      } else m = await o.responses.create({ model, input: 'hi' });
    } catch (e) { error = e }
    if (!m || typeof m !== 'object') m = {};
    const out = Array.isArray(m.output) && m.output.length ? m.output : done, u = m.usage ?? {};
    const said = out.filter((i) => i?.type === 'message').map((i) => texts(i.content)).join('');
    return { error, text: said || text, finish: m.status === 'in_progress' ? undefined : m.status, in: usable(u.input_tokens),
      out: usable(u.output_tokens), cached: usable(u.input_tokens_details?.cached_tokens),
      failed: m.error?.code, calls: out.filter((i) => i?.type === 'function_call')
        .map((i) => ({ id: i.call_id, name: i.name, namespace: i.namespace, args: parsed(i.arguments) })) };
  },
  generate_content: async (model, stream) => {
    let error, text = '', finish, u = {}, calls = [];
    const add = (c) => {
      const k = c?.candidates?.[0];
      for (const p of Array.isArray(k?.content?.parts) ? k.content.parts : []) {
        if (typeof p?.text === 'string' && !p.thought) text += p.text;
        if (p?.functionCall) calls.push({ id: p.functionCall.id, name: p.functionCall.name, args: p.functionCall.args });
      }
      finish = k?.finishReason ?? finish;
      u = c?.usageMetadata ?? u;
    };
    try {
      if (stream) for await (const c of await g.models.generateContentStream({ model, contents: 'hi' })) add(c);
      else add(await g.models.generateContent({ model, contents: 'hi' }));
    } catch (e) { error = e }
    return { error, text, finish, in: usable(u.promptTokenCount), out: usable(u.candidatesTokenCount),
      cached: usable(u.cachedContentTokenCount), calls };
  },
};
const named = (e) => {
  let body = e.error;
  if (e.name === 'ApiError') try { body = JSON.parse(e.message.slice(e.message.indexOf('{'))) } catch {}
  const inner = body?.error ?? body;
  return [inner?.type, inner?.status, inner?.code, e.type, e.code].find((n) => typeof n === 'string' && n !== 'error') ?? '';
};
const cases = JSON.parse(readFileSync(process.argv[3], 'utf8')), lines = [];
const work = async () => {
  for (let c; (c = cases.shift());) {
    const r = await ask[c.api](c.name, c.stream);
    const e = r.error;
    if (e) r.error = { name: named(e), status: e.status ?? 0, message: String(e.message).slice(0, 200) };
    else if (r.failed) r.error = { name: r.failed, status: 0, message: 'failed' };
    lines.push(JSON.stringify({ case: c.name, ...r, text: (r.text ?? '').toWellFormed() }));
  }
};
await Promise.all([work(), work(), work(), work()]);
process.stdout.write(lines.join('\n') + '\n');
`

// corpusCase is an answer of a provider.
type corpusCase struct {
	Name   string `json:"name"`
	API    string `json:"api"`
	Stream bool   `json:"stream"`

	group   string
	status  int
	kind    string // content type
	body    string
	gzip    bool
	slowly  bool // in pieces of a byte
	aborted bool // the connection breaks after the body
	less    bool // the SDK reads less than the answer has, of which the layer must have all
}

// sdkHeard is what an SDK makes of an answer.
type sdkHeard struct {
	Case  string
	Error *struct {
		Name    string
		Status  int
		Message string
	}
	Text, Finish    string
	In, Out, Cached *int64
	Calls           []struct {
		ID, Name, Namespace string
		Args                any
	}
}

// corpusBodies has a stream and a document of each API, which say the same.
var corpusBodies = map[string][2]string{
	"messages": {
		events("message_start", `{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"x","content":[],`+
			`"stop_reason":null,"usage":{"input_tokens":11,"cache_read_input_tokens":7,"cache_creation_input_tokens":5,"output_tokens":1}}}`,
			"content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			"content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi "}}`,
			"content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"thére"}}`,
			"content_block_stop", `{"type":"content_block_stop","index":0}`,
			"content_block_start", `{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"sh","input":{}}}`,
			"content_block_delta", `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"command\":"}}`,
			"content_block_delta", `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"ls\"}"}}`,
			"content_block_stop", `{"type":"content_block_stop","index":1}`,
			"message_delta", `{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`,
			"message_stop", `{"type":"message_stop"}`),
		`{"id":"m","type":"message","role":"assistant","model":"x","content":[{"type":"text","text":"Hi thére"},{"type":"tool_use","id":"t1",` +
			`"name":"sh","input":{"command":"ls"}}],"stop_reason":"tool_use","usage":{"input_tokens":11,"cache_read_input_tokens":7,` +
			`"cache_creation_input_tokens":5,"output_tokens":9}}`,
	},
	"chat_completions": {
		events("", `{"id":"c","object":"chat.completion.chunk","model":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi "}}]}`,
			"", `{"id":"c","object":"chat.completion.chunk","model":"x","choices":[{"index":0,"delta":{"content":"thére"}}]}`,
			"", `{"id":"c","object":"chat.completion.chunk","model":"x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t1",`+
				`"type":"function","function":{"name":"sh","arguments":"{\"command\":"}}]}}]}`,
			"", `{"id":"c","object":"chat.completion.chunk","model":"x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":`+
				`{"arguments":"\"ls\"}"}}]}}]}`,
			"", `{"id":"c","object":"chat.completion.chunk","model":"x","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
			"", `{"id":"c","object":"chat.completion.chunk","model":"x","choices":[],"usage":{"prompt_tokens":23,"completion_tokens":9,`+
				`"prompt_tokens_details":{"cached_tokens":7}}}`,
			"", "[DONE]"),
		`{"id":"c","object":"chat.completion","model":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Hi thére",` +
			`"tool_calls":[{"id":"t1","type":"function","function":{"name":"sh","arguments":"{\"command\":\"ls\"}"}}]},` +
			`"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":23,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":7}}}`,
	},
	"responses": {
		events("response.created", `{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress","model":"x","output":[]}}`,
			"response.output_item.added", `{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"i0","content":[]}}`,
			"response.output_text.delta", `{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hi "}`,
			"response.output_text.delta", `{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"thére"}`,
			"response.output_item.added", `{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"i1",`+
				`"call_id":"t1","name":"sh","arguments":""}}`,
			"response.function_call_arguments.delta", `{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"command\":\"ls\"}"}`,
			"response.output_item.done", `{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"i1",`+
				`"call_id":"t1","name":"sh","arguments":"{\"command\":\"ls\"}"}}`,
			"response.completed", `{"type":"response.completed","response":`+corpusResponse+`}`),
		corpusResponse,
	},
	"generate_content": {
		events("", `{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"Hi "}]}}],"usageMetadata":{"promptTokenCount":23}}`,
			"", `{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"thére"}]}}]}`,
			"", `{"candidates":[{"index":0,"content":{"role":"model","parts":[{"functionCall":{"id":"t1","name":"sh","args":{"command":"ls"}}}]},`+
				`"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":23,"cachedContentTokenCount":7,"candidatesTokenCount":9}}`),
		`{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"Hi thére"},{"functionCall":{"id":"t1","name":"sh",` +
			`"args":{"command":"ls"}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":23,"cachedContentTokenCount":7,` +
			`"candidatesTokenCount":9}}`,
	},
}

const corpusResponse = `{"id":"r","object":"response","status":"completed","model":"x","output":[{"type":"message","id":"i0","role":` +
	`"assistant","content":[{"type":"output_text","text":"Hi thére"}]},{"type":"function_call","id":"i1","call_id":"t1","name":"sh",` +
	`"arguments":"{\"command\":\"ls\"}"}],"usage":{"input_tokens":23,"input_tokens_details":{"cached_tokens":7},"output_tokens":9}}`

// events joins pairs of a name, which may be empty, and data.
func events(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] != "" {
			fmt.Fprintf(&b, "event: %s\n", pairs[i])
		}
		fmt.Fprintf(&b, "data: %s\n\n", pairs[i+1])
	}
	return b.String()
}

// corpusTypes are replacements that give a member another type or another value, by API.
var corpusTypes = map[string][][2]string{
	"messages": {{`"cache_read_input_tokens":7`, `"cache_read_input_tokens":null`}, {`"input_tokens":11`, `"input_tokens":11.0`},
		{`"output_tokens":9`, `"output_tokens":9.0`}, {`"input_tokens":11`, `"input_tokens":"11"`},
		{`"output_tokens":9}`, `"output_tokens":9,"cache_read_input_tokens":null,"input_tokens":null}`},
		{`"cache_read_input_tokens":7`, `"cache_read_input_tokens":7e0`}, {`"id":"m"`, `"id":5`}, {`"model":"x"`, `"model":{}`},
		{`"model":"x"`, `"model":"x","new":{"a":[1]}`}, {`"id":"t1",`, ``}, {`"cache_creation_input_tokens":5`, `"cache_creation_input_tokens":{}`}},
	"chat_completions": {{`"prompt_tokens":23`, `"prompt_tokens":23.0`}, {`"prompt_tokens":23`, `"prompt_tokens":"23"`},
		{`"cached_tokens":7`, `"cached_tokens":null`}, {`"prompt_tokens_details":{"cached_tokens":7}`, `"prompt_tokens_details":null`},
		{`"prompt_tokens_details":{"cached_tokens":7}`, `"prompt_tokens_details":[]`}, {`"model":"x"`, `"model":5`},
		{`"id":"c"`, `"id":5`}, {`"model":"x"`, `"model":"x","new":{"a":[1]}`}, {`"object":"chat`, `"created":"now","object":"chat`},
		{`"id":"t1",`, ``}, {`"completion_tokens":9`, `"completion_tokens":-9`}, {`"role":"assistant"`, `"role":"assistant","refusal":null`}},
	"responses": {{`"input_tokens":23`, `"input_tokens":23.0`}, {`"input_tokens":23`, `"input_tokens":"23"`},
		{`"cached_tokens":7`, `"cached_tokens":null`}, {`"input_tokens_details":{"cached_tokens":7}`, `"input_tokens_details":null`},
		{`"id":"r"`, `"id":5`}, {`"model":"x"`, `"model":[]`}, {`"model":"x"`, `"model":"x","new":{"a":[1]}`},
		{`"model":"x"`, `"model":"x","incomplete_details":null,"error":null`}, {`"model":"x"`, `"model":"x","incomplete_details":"none"`},
		{`"name":"sh"`, `"name":"sh","namespace":"mcp__files__"`}, {`"call_id":"t1",`, ``}, {`"output_tokens":9`, `"output_tokens":9.5`}},
	"generate_content": {{`"promptTokenCount":23`, `"promptTokenCount":23.0`}, {`"promptTokenCount":23`, `"promptTokenCount":"23"`},
		{`"cachedContentTokenCount":7`, `"cachedContentTokenCount":null`}, {`"candidatesTokenCount":9`, `"candidatesTokenCount":9e0`},
		{`"id":"t1",`, ``}, {`"index":0`, `"index":"0"`}, {`"finishReason":"STOP"`, `"finishReason":"STOP","safetyRatings":"none"`},
		{`"candidates"`, `"promptFeedback":null,"candidates"`}, {`"candidates"`, `"modelVersion":5,"candidates"`},
		{`"candidates"`, `"responseId":[],"new":{"a":1},"candidates"`}},
}

// corpusErrors are errors as providers and what stands before them answer.
var corpusErrors = []struct {
	status     int
	kind, body string
}{
	{529, "application/json", `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`},
	{429, "application/json", `{"error":{"message":"m","type":"requests","code":"rate_limit_exceeded","status":"requests"}}`},
	{503, "application/json", `{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}`},
	{502, "text/html", "<html><body>Bad Gateway</body></html>"}, {500, "text/plain", "oops"}, {504, "text/plain", ""},
	{401, "application/json", `{"error":"no"}`}, {500, "application/json", `{"error":{"message":`}, {400, "application/json", `[]`},
}

// corpus makes the cases.
func corpus() (all []corpusCase) {
	add := func(c corpusCase) {
		c.Name = fmt.Sprintf("case-%d", len(all))
		if c.status == 0 {
			c.status = 200
		}
		if c.kind == "" {
			if c.kind = "application/json"; c.Stream {
				c.kind = "text/event-stream"
			}
		}
		all = append(all, c)
	}
	for _, api := range []string{"messages", "chat_completions", "responses", "generate_content"} {
		stream, doc := corpusBodies[api][0], corpusBodies[api][1]
		add(corpusCase{API: api, group: "as documented", Stream: true, body: stream})
		add(corpusCase{API: api, group: "as documented", body: doc})
		for _, pair := range [][2]string{{"\n", "\r\n"}, {"data: ", "data:"}, {"data: ", ": note\ndata: "},
			{"data: ", "id: 1\ndata: "}, {"data: ", "retry: 100\ndata: "}, {"data: {", "data: {\ndata: "}} {
			// Google's SDK knows no fields but data, and one line of it.
			less := api == "generate_content" && pair[0] != "\n" && pair[1] != "data:"
			body := strings.ReplaceAll(stream, pair[0], pair[1])
			add(corpusCase{API: api, group: "framing", Stream: true, body: body, less: less})
		}
		add(corpusCase{API: api, group: "framing", Stream: true, body: stream, slowly: true})
		add(corpusCase{API: api, group: "framing", Stream: true, body: "\n\n" + stream})
		for _, kind := range []string{"text/plain", "application/json", "application/octet-stream",
			"text/event-stream;charset=UTF-8", "TEXT/EVENT-STREAM", "not a type"} {
			add(corpusCase{API: api, group: "content types", Stream: true, kind: kind, body: stream})
		}
		for _, kind := range []string{"application/json; charset=utf-8", "APPLICATION/JSON",
			"application/vnd.api+json"} {
			// Anthropic's and OpenAI's SDKs take a document under a type in capitals for a text.
			add(corpusCase{API: api, group: "content types", kind: kind, body: doc,
				less: api != "generate_content" && kind == "APPLICATION/JSON"})
		}
		add(corpusCase{API: api, group: "marks and encodings", Stream: true, body: "\ufeff" + stream})
		add(corpusCase{API: api, group: "marks and encodings", body: "\ufeff" + doc})
		add(corpusCase{API: api, group: "marks and encodings", Stream: true, body: stream, gzip: true})
		add(corpusCase{API: api, group: "marks and encodings", body: doc, gzip: true})
		add(corpusCase{API: api, group: "marks and encodings", body: "\n " + doc + " \n"})
		for _, word := range []string{`\ud83d\ude00`, `\ud83d`, "th\u2028re"} {
			body := strings.ReplaceAll(stream, "thére", word)
			add(corpusCase{API: api, group: "marks and encodings", Stream: true, body: body})
			add(corpusCase{API: api, group: "marks and encodings", body: strings.ReplaceAll(doc, "thére", word)})
		}
		for _, pair := range corpusTypes[api] {
			add(corpusCase{API: api, group: "types", Stream: true, body: strings.ReplaceAll(stream, pair[0], pair[1])})
			add(corpusCase{API: api, group: "types", body: strings.ReplaceAll(doc, pair[0], pair[1])})
		}
		for _, e := range corpusErrors {
			for _, streams := range []bool{true, false} {
				add(corpusCase{API: api, group: "errors", Stream: streams, status: e.status, kind: e.kind,
					body: e.body})
			}
		}
		first, _, _ := strings.Cut(stream, "\n\n")
		failure := map[string]string{
			"messages":         events("error", `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`),
			"chat_completions": events("", `{"error":{"message":"m","type":"server_error","code":"server_error"}}`),
			"responses": events("response.failed", `{"type":"response.failed","response":{"id":"r","status":"failed","output":[],`+
				`"error":{"code":"server_error","message":"m"}}}`),
			"generate_content": events("", `{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}`),
		}[api]
		add(corpusCase{API: api, group: "errors in a stream", Stream: true, body: failure})
		add(corpusCase{API: api, group: "errors in a stream", Stream: true, body: first + "\n\n" + failure})
		// an order in which clients read as well: an event twice, or one that nobody knows
		add(corpusCase{API: api, group: "orders", Stream: true, body: strings.Replace(stream, "\n\n", "\n\n"+
			events("newer", `{"type":"newer","id":"c","choices":[],"candidates":[]}`), 1)})
		for i := 0; i < len(stream); i += 29 { // TestReadCut of package wire cuts at each byte
			add(corpusCase{API: api, group: "cut off", Stream: true, body: stream[:i]})
		}
		for i := 100; i < len(stream); i += 100 {
			add(corpusCase{API: api, group: "broken connections", Stream: true, body: stream[:i], aborted: true})
		}
	}
	return all
}

func (c *corpusCase) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	body := []byte(c.body)
	w.Header().Set("Content-Type", c.kind)
	if c.gzip {
		var z bytes.Buffer
		g := gzip.NewWriter(&z)
		_, _ = g.Write(body)
		_ = g.Close()
		body = z.Bytes()
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(c.status)
	control := http.NewResponseController(w)
	step := max(len(body), 1)
	if c.slowly {
		step = 1
	}
	for part := range slices.Chunk(body, step) {
		_, _ = w.Write(part)
		_ = control.Flush()
	}
	_ = control.Flush()
	if c.aborted {
		panic(http.ErrAbortHandler)
	}
}

// TestModelSDKsCorpus has each SDK read every answer of the corpus through the gateway, and compares what it got with
// the model layer. docs/model.md has the table.
func TestModelSDKsCorpus(t *testing.T) {
	modules := filepath.Dir(os.Getenv("ASSAY_TEST_AGENTS"))
	if _, err := os.Stat(filepath.Join(modules, "@anthropic-ai", "sdk")); err != nil {
		t.Skip("ASSAY_TEST_AGENTS does not name a directory beside the SDKs of models")
	}
	need(t, "node")
	programInPath(t)
	cases := map[string]*corpusCase{}
	list := corpus()
	for i := range list {
		cases[list[i].Name] = &list[i]
	}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Model string }
		_, rest, gemini := strings.Cut(r.URL.Path, "/models/")
		if name, _, _ := strings.Cut(rest, ":"); gemini {
			request.Model = name
		} else {
			_ = json.NewDecoder(r.Body).Decode(&request)
		}
		cases[request.Model].ServeHTTP(w, r)
	}))
	t.Cleanup(provider.Close)
	dir := t.TempDir()
	plan, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"agent.mjs": []byte(corpusAgent), "cases.json": plan} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-q", "-o", "run.tar.gz", "--model-gateway"}
	env := os.Environ()
	for route, variable := range map[string]string{"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY",
		"gemini": "GEMINI_API_KEY"} {
		args = append(args, "--model-upstream", route+"="+provider.URL)
		env = append(env, variable+"=sk-0123456789-"+route)
	}
	run := exec.Command("assay-run", append(args, "--", "node", "agent.mjs", modules, "cases.json")...)
	run.Dir, run.Env = dir, env
	var stderr strings.Builder
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("the agent ended with %v:\n%s%.2000s", err, &stderr, out)
	}
	said := map[string]sdkHeard{}
	for line := range strings.Lines(string(out)) {
		var h sdkHeard
		if err := json.Unmarshal([]byte(line), &h); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		said[h.Case] = h
	}
	_, lines := modelResult(t, dir)
	if len(lines) != len(list) || len(said) != len(list) {
		t.Fatalf("%d lines and %d answers for %d cases", len(lines), len(said), len(list))
	}
	table := map[string][3]int{} // cases, equal, more in the layer; by group
	var groups []string
	failures := 0
	for i := range lines {
		e := &lines[i]
		c := cases[*e.RequestModel]
		h := said[c.Name]
		if _, seen := table[c.group]; !seen {
			groups = append(groups, c.group)
		}
		n := table[c.group]
		n[0]++
		differs, more := compareWithSDK(c, &h, e)
		switch {
		case len(differs) > 0:
			if failures++; failures < 60 {
				t.Errorf("%s, %s (%s, stream %t, %s, %d): %s\nanswer %.300q\nSDK %s",
					c.Name, c.group, c.API, c.Stream, c.kind, c.status,
					strings.Join(differs, "; "), c.body[max(0, len(c.body)-300):], jsonOf(h))
			}
		case more:
			n[2]++
		default:
			n[1]++
		}
		table[c.group] = n
	}
	slices.Sort(groups)
	for _, g := range groups {
		n := table[g]
		t.Logf("| %s | %d | %d | %d | %d |", g, n[0], n[1], n[2], n[0]-n[1]-n[2])
	}
}

func jsonOf(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// compareWithSDK returns what the layer says otherwise than the SDK, and whether it says more: an event that the end of
// a stream cut off after its data, what followed something that made the SDK give up, or an error that the SDK did not
// notice.
func compareWithSDK(c *corpusCase, h *sdkHeard, e *schema.ModelEvent) (differs []string, more bool) {
	differ := func(format string, args ...any) { differs = append(differs, fmt.Sprintf(format, args...)) }
	if c.less {
		if string(e.Text) != `"Hi thére"` || len(e.ToolCalls) != 1 || jsonOf(e.Usage.InputTokens) != "23" ||
			e.ErrorType != nil {
			differ("the layer has text %s, %d calls, error %s", e.Text, len(e.ToolCalls), jsonOf(e.ErrorType))
		}
		return differs, true
	}
	gaveUp := h.Error != nil
	layer := ""
	if len(e.Text) > 0 {
		_ = json.Unmarshal(e.Text, &layer)
	}
	cut := c.group == "cut off" || c.group == "broken connections"
	beyond := cut || gaveUp
	switch {
	case layer == h.Text:
	case beyond && strings.HasPrefix(layer, h.Text):
		more = true
	default:
		differ("text %q, SDK %q", layer, h.Text)
	}
	if len(e.ToolCalls) > len(h.Calls) && beyond {
		more = true
	} else if len(e.ToolCalls) != len(h.Calls) {
		differ("%d calls, SDK %d", len(e.ToolCalls), len(h.Calls))
	}
	for i := range min(len(h.Calls), len(e.ToolCalls)) {
		got, want := &e.ToolCalls[i], &h.Calls[i]
		id := ""
		if got.ID != nil {
			id = *got.ID
		}
		// Without a call's id, OpenAI's SDK makes one up for chat completions; for responses, the layer has the
		// item's.
		ours := id == "" && strings.HasPrefix(want.ID, "call_") || want.ID == "" && c.API == "responses"
		if id != want.ID && !ours || got.Name != want.Name || got.Namespace != want.Namespace {
			differ("call %q %q %q, SDK %q %q %q", id, got.Namespace, got.Name, want.ID, want.Namespace, want.Name)
		}
		var args any
		if !got.Complete && beyond {
			continue
		}
		if _ = json.Unmarshal(got.Arguments, &args); jsonOf(args) != jsonOf(want.Args) {
			if beyond {
				more = true
			} else {
				differ("arguments %s, SDK %s", got.Arguments, jsonOf(want.Args))
			}
		}
	}
	for _, u := range []struct {
		name       string
		layer, sdk *int64
	}{{"input", e.Usage.InputTokens, h.In}, {"output", e.Usage.OutputTokens, h.Out},
		{"cached", e.Usage.CacheReadInputTokens, h.Cached}} {
		switch {
		case u.layer == nil && u.sdk == nil:
		case u.layer != nil && u.sdk != nil && *u.layer == *u.sdk:
		case beyond && u.name == "output" && c.API == "messages" && u.layer == nil: // only the first guess has come
		case beyond && u.layer != nil && (u.sdk == nil || *u.layer > *u.sdk):
			more = true
		default:
			differ("%s tokens %s, SDK %s", u.name, jsonOf(u.layer), jsonOf(u.sdk))
		}
	}
	finish := ""
	if len(e.FinishReasons) > 0 {
		finish = e.FinishReasons[len(e.FinishReasons)-1]
	}
	switch {
	case finish == h.Finish:
	case beyond && h.Finish == "":
		more = true
	default:
		differ("finish %q, SDK %q", finish, h.Finish)
	}
	layerError := ""
	if e.ErrorType != nil {
		layerError = *e.ErrorType
	}
	switch {
	case h.Error == nil && layerError == "":
	case h.Error == nil:
		if !(cut && e.ErrorSource == schema.ModelErrorByRecorder) {
			differ("error %q, SDK none", layerError)
		}
		more = true
	case h.Error.Status >= 400 || h.Error.Name != "" && !strings.HasPrefix(h.Error.Message, "terminated"):
		if layerError != h.Error.Name && layerError != strconv.Itoa(c.status) && layerError != "error" ||
			e.ErrorSource != schema.ModelErrorByProvider {
			differ("error %q of %q, SDK %q", layerError, e.ErrorSource, h.Error.Name)
		}
		if c.status >= 400 && (e.Status == nil || *e.Status != c.status) {
			differ("status %s, SDK %d", jsonOf(e.Status), h.Error.Status)
		}
	case layerError == "" && len(e.Odd) == 0 && e.Unknown == 0:
		if more = true; !cut {
			differ("no error, SDK %q", h.Error.Message)
		}
	}
	return differs, more
}
