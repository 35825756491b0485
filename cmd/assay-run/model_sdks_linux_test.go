package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// sdkAgent asks a model by each SDK, streaming and not, and prints the command that each answer has its agent run.
const sdkAgent = `
import { createRequire } from 'node:module';
const require = createRequire(process.argv[2] + '/');
const Anthropic = require('@anthropic-ai/sdk').default, OpenAI = require('openai').default;
const { GoogleGenAI } = require('@google/genai');
const a = new Anthropic(), o = new OpenAI(), g = new GoogleGenAI({ apiKey: process.env.GEMINI_API_KEY });
const messages = [{ role: 'user', content: 'hi' }], of = (text) => JSON.parse(text).command;
const claude = { model: 'claude', max_tokens: 10, messages }, gpt = { model: 'gpt', messages };
console.log((await a.messages.create(claude)).content[0].input.command);
console.log((await a.messages.stream(claude).finalMessage()).content[0].input.command);
console.log(of((await o.responses.create({ model: 'gpt', input: 'hi' })).output[0].arguments));
for await (const e of await o.responses.create({ model: 'gpt', input: 'hi', stream: true }))
  if (e.type === 'response.completed') console.log(of(e.response.output[0].arguments));
console.log(of((await o.chat.completions.create(gpt)).choices[0].message.tool_calls[0].function.arguments));
let text = '';
for await (const c of await o.chat.completions.create({ ...gpt, stream: true, stream_options: { include_usage: true } }))
  text += c.choices[0]?.delta?.tool_calls?.[0].function.arguments ?? '';
console.log(of(text));
const gemini = { model: 'gemini', contents: 'hi' };
console.log((await g.models.generateContent(gemini)).functionCalls[0].args.command);
for await (const c of await g.models.generateContentStream(gemini)) console.log(c.functionCalls[0].args.command);
await o.responses.create({ model: 'gpt', input: 'hi', background: true }).catch((e) => console.log(e.status));
await o.files.list().catch((e) => console.log(e.status));
`

// sdkProvider answers in the form of each API, with 23 tokens of input, 7 of them cached, and 9 of output.
func sdkProvider(w http.ResponseWriter, r *http.Request) {
	type o = map[string]any
	var request struct{ Stream bool }
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &request)
	const arguments = `{"command":"ls"}`
	var doc o
	var stream []any
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/messages"):
		call := o{"type": "tool_use", "id": "t", "name": "sh", "input": o{"command": "ls"}}
		usage := o{"input_tokens": 11, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 5,
			"output_tokens": 9}
		doc = o{"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": []any{call},
			"stop_reason": "tool_use", "usage": usage}
		stream = []any{
			o{"type": "message_start", "message": o{"id": "m", "type": "message", "role": "assistant",
				"model": "claude", "content": []any{}, "usage": usage}},
			o{"type": "content_block_start", "index": 0, "content_block": o{"type": "tool_use", "id": "t", "name": "sh",
				"input": o{}}},
			o{"type": "content_block_delta", "index": 0,
				"delta": o{"type": "input_json_delta", "partial_json": arguments}},
			o{"type": "content_block_stop", "index": 0},
			o{"type": "message_delta", "delta": o{"stop_reason": "tool_use"}, "usage": o{"output_tokens": 9}},
			o{"type": "message_stop"},
		}
	case strings.HasSuffix(path, "/responses"):
		doc = o{"id": "r", "object": "response", "status": "completed", "model": "gpt", "output": []any{
			o{"type": "function_call", "id": "f", "call_id": "t", "name": "sh", "arguments": arguments}},
			"usage": o{"input_tokens": 23, "input_tokens_details": o{"cached_tokens": 7}, "output_tokens": 9}}
		stream = []any{o{"type": "response.completed", "response": doc}}
	case strings.HasSuffix(path, "/chat/completions"):
		call := o{"index": 0, "id": "t", "type": "function", "function": o{"name": "sh", "arguments": arguments}}
		message := o{"role": "assistant", "tool_calls": []any{call}}
		usage := o{"prompt_tokens": 23, "prompt_tokens_details": o{"cached_tokens": 7}, "completion_tokens": 9}
		choice := func(name string) []any {
			return []any{o{"index": 0, name: message, "finish_reason": "tool_calls"}}
		}
		doc = o{"id": "c", "model": "gpt", "choices": choice("message"), "usage": usage}
		stream = []any{o{"id": "c", "model": "gpt", "choices": choice("delta")},
			o{"id": "c", "model": "gpt", "choices": []any{}, "usage": usage}, nil}
	default:
		request.Stream = strings.Contains(path, ":stream")
		part := o{"functionCall": o{"name": "sh", "args": o{"command": "ls"}}}
		doc = o{"candidates": []any{o{"content": o{"role": "model", "parts": []any{part}}, "finishReason": "STOP"}},
			"usageMetadata": o{"promptTokenCount": 23, "cachedContentTokenCount": 7, "candidatesTokenCount": 9}}
		stream = []any{doc}
	}
	if !request.Stream {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(doc)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range stream {
		data, _ := json.Marshal(event)
		if event == nil {
			data = []byte("[DONE]")
		}
		if of, ok := event.(o); ok && of["type"] != nil {
			fmt.Fprintf(w, "event: %s\n", of["type"])
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
		_ = http.NewResponseController(w).Flush()
	}
}

// TestModelSDKs asks a scripted provider by the providers' own SDKs, of Node.js.
func TestModelSDKs(t *testing.T) {
	modules := filepath.Dir(os.Getenv("ASSAY_TEST_AGENTS"))
	if _, err := os.Stat(filepath.Join(modules, "@anthropic-ai", "sdk")); err != nil {
		t.Skip("ASSAY_TEST_AGENTS does not name a directory beside the SDKs of models")
	}
	need(t, "node")
	programInPath(t)
	provider := httptest.NewServer(http.HandlerFunc(sdkProvider))
	t.Cleanup(provider.Close)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "agent.mjs"), []byte(sdkAgent), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-q", "-o", "run.tar.gz", "--model-gateway"}
	env := os.Environ()
	for route, variable := range map[string]string{"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY",
		"gemini": "GEMINI_API_KEY"} {
		args = append(args, "--model-upstream", route+"="+provider.URL)
		env = append(env, variable+"=sk-0123456789-"+route)
	}
	run := exec.Command("assay-run", append(args, "--", "node", "agent.mjs", modules)...)
	run.Dir, run.Env = dir, env
	var stderr strings.Builder
	run.Stderr = &stderr
	out, err := run.Output()
	if want := strings.Repeat("ls\n", 8) + "403\n403\n"; err != nil || string(out) != want {
		t.Fatalf("the agent got %q, %v\n%s", out, err, &stderr)
	}
	res, lines := modelResult(t, dir)
	if res.Model.Refused != 2 || res.Model.UsageUnknown != 0 || len(lines) != 10 {
		t.Errorf("%d lines: %+v", len(lines), res.Model)
	}
	want := schema.ModelUsage{InputTokens: new(int64(23)), CacheReadInputTokens: new(int64(7)),
		OutputTokens: new(int64(9))}
	for i, e := range slices.DeleteFunc(lines, func(e schema.ModelEvent) bool { return e.Refused != nil }) {
		e.Usage.CacheCreationInputTokens = nil // which Anthropic alone tells
		if d := cmp.Diff(want, e.Usage); d != "" || *e.Stream != (i%2 == 1) || len(e.ToolCalls) != 1 ||
			string(e.ToolCalls[0].Arguments) != `{"command":"ls"}` || !e.ToolCalls[0].Complete {
			t.Errorf("line %d of %s (-want +got):\n%s%+v", i, e.Path, d, e.ToolCalls)
		}
	}
	h := documents(t, opened(t, dir)).Health
	if h.KernelLayer == schema.Complete && h.ModelLayer != schema.Complete {
		t.Errorf("model_layer is %s: %+v", h.ModelLayer, h.ModelFlow)
	}
}
