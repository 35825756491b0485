package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

const (
	plain  = "application/json"
	stream = "text/event-stream; charset=utf-8"
)

// sse joins events as a provider sends them: pairs of a name, which may be empty, and data.
func sse(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] != "" {
			fmt.Fprintf(&b, "event: %s\n", pairs[i])
		}
		fmt.Fprintf(&b, "data: %s\n\n", pairs[i+1])
	}
	return b.String()
}

// sample is a body and what it says.
type sample struct {
	name string
	api  API
	kind string
	body string
	want Answer
}

func call(id, name, args string, more ...func(*ToolCall)) ToolCall {
	c := ToolCall{ID: id, Name: name, Complete: true}
	if args != "" {
		c.Arguments = jsontext.Value(args)
	}
	for _, f := range more {
		f(&c)
	}
	return c
}

func provider(c *ToolCall) { c.ProviderExecuted = true }

func samples() []sample {
	return []sample{
		{
			"a message that calls a tool, of which cached tokens are part of the input", Messages, plain,
			`{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"Hi"},` +
				`{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"ls"}}],"stop_reason":"tool_use",` +
				`"usage":{"input_tokens":11,"cache_read_input_tokens":7,"cache_creation_input_tokens":5,"output_tokens":9}}`,
			Answer{ID: "msg_1", Model: "claude-x", FinishReasons: []string{"tool_use"}, Whole: true,
				Usage: Usage{InputTokens: new(int64(23)), CacheReadInputTokens: new(int64(7)),
					CacheCreationInputTokens: new(int64(5)), OutputTokens: new(int64(9))},
				Calls: []ToolCall{call("toolu_1", "Bash", `{"command":"ls"}`)}},
		},
		{
			"an error of Anthropic's", Messages, plain,
			`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`,
			Answer{ErrorType: "overloaded_error", Whole: true},
		},
		{
			"a stream of a message with a call in pieces, one of the provider's, and unknown events", Messages, stream,
			sse("message_start", `{"type":"message_start","message":{"id":"msg_2","type":"message","role":"assistant",`+
				`"model":"claude-y","content":[],"stop_reason":null,"usage":{"input_tokens":11,`+
				`"cache_read_input_tokens":7,"cache_creation_input_tokens":5,"output_tokens":1}}}`,
				"ping", `{"type":"ping"}`,
				"content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
				"content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"tool_use"}}`,
				"content_block_stop", `{"type":"content_block_stop","index":0}`,
				"content_block_start", `{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":`+
					`"toolu_2","name":"Write","input":{}}}`,
				"content_block_delta", `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta",`+
					`"partial_json":"{\"path\":"}}`,
				"content_block_delta", `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta",`+
					`"partial_json":"\"é\"}"}}`,
				"content_block_stop", `{"type":"content_block_stop","index":1}`,
				"content_block_start", `{"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use",`+
					`"id":"srvtoolu_1","name":"web_search","input":{}}}`,
				"content_block_stop", `{"type":"content_block_stop","index":2}`,
				"content_block_start", `{"type":"content_block_start","index":3,"content_block":{"type":`+
					`"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}}`,
				"content_block_start", `{"type":"content_block_start","index":4,"content_block":{"type":"hologram"}}`,
				"newer_event", `{"type":"newer_event"}`,
				"message_delta", `{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":42}}`,
				"message_stop", `{"type":"message_stop"}`),
			Answer{ID: "msg_2", Model: "claude-y", FinishReasons: []string{"tool_use"}, Whole: true,
				Usage: Usage{InputTokens: new(int64(23)), CacheReadInputTokens: new(int64(7)),
					CacheCreationInputTokens: new(int64(5)), OutputTokens: new(int64(42))},
				Calls: []ToolCall{call("toolu_2", "Write", `{"path":"é"}`),
					call("srvtoolu_1", "web_search", `{}`, provider)},
				Unknown: 2, UnknownKinds: []string{"hologram", "newer_event"}},
		},
		{
			"a stream that ends with an error", Messages, stream,
			sse("error", `{"type":"error","error":{"type":"api_error","message":"no"}}`),
			Answer{ErrorType: "api_error", Whole: true},
		},
		{
			"a completion that calls a function and a tool that takes text", ChatCompletions, plain,
			`{"id":"chatcmpl-1","object":"chat.completion","model":"gpt-x","choices":[{"index":0,"message":{"role":` +
				`"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f",` +
				`"arguments":"{\"a\":1}"}},{"id":"call_2","type":"custom","custom":{"name":"patch","input":"*** x"}}]},` +
				`"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":23,"completion_tokens":9,"total_tokens":32,` +
				`"prompt_tokens_details":{"cached_tokens":7},"completion_tokens_details":{"reasoning_tokens":4}}}`,
			Answer{ID: "chatcmpl-1", Model: "gpt-x", FinishReasons: []string{"tool_calls"}, Whole: true,
				Usage: Usage{InputTokens: new(int64(23)), CacheReadInputTokens: new(int64(7)),
					OutputTokens: new(int64(9)), ReasoningOutputTokens: new(int64(4))},
				Calls: []ToolCall{call("call_1", "f", `{"a":1}`), call("call_2", "patch", `"*** x"`)}},
		},
		{
			"a stream of completions with two calls in pieces", ChatCompletions, stream,
			sse("", `{"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,`+
				`"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]}}],"usage":null}`,
				"", `{"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":`+
					`{"arguments":"{\"a\""}}]}}]}`,
				"", `{"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_2",`+
					`"type":"function","function":{"name":"g","arguments":"{}"}},{"index":0,"function":{"arguments":":2}"}}`+
					`]}}]}`,
				"", `{"id":"c1","model":"gpt-x","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
				"", `{"id":"c1","model":"gpt-x","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}`,
				"", "[DONE]"),
			Answer{ID: "c1", Model: "gpt-x", FinishReasons: []string{"tool_calls"}, Whole: true,
				Usage: Usage{InputTokens: new(int64(5)), OutputTokens: new(int64(6))},
				Calls: []ToolCall{call("call_1", "f", `{"a":2}`), call("call_2", "g", `{}`)}},
		},
		{
			"a rate limit of OpenAI's", ChatCompletions, plain,
			`{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}`,
			Answer{ErrorType: "requests", Whole: true},
		},
		{
			"a response with a call, a search of the provider's, and an item of an unknown type", Responses, plain,
			`{"id":"resp_1","object":"response","status":"completed","model":"gpt-y","output":[{"type":"reasoning"},` +
				`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},` +
				`{"type":"function_call","id":"fc_1","call_id":"call_1","name":"shell","arguments":"{\"c\":[\"ls\"]}"},` +
				`{"type":"hologram"}],"usage":{"input_tokens":23,"input_tokens_details":{"cached_tokens":7},` +
				`"output_tokens":9,"output_tokens_details":{"reasoning_tokens":0}},"error":null}`,
			Answer{ID: "resp_1", Model: "gpt-y", FinishReasons: []string{"completed"}, Whole: true,
				Usage: Usage{InputTokens: new(int64(23)), CacheReadInputTokens: new(int64(7)),
					OutputTokens: new(int64(9)), ReasoningOutputTokens: new(int64(0))},
				Calls: []ToolCall{call("ws_1", "web_search", `{"type":"search","query":"q"}`, provider),
					call("call_1", "shell", `{"c":["ls"]}`)},
				Unknown: 1, UnknownKinds: []string{"hologram"}},
		},
		{
			"a stream of a response, whose last event repeats the calls", Responses, stream,
			sse("response.created", `{"type":"response.created","response":{"id":"resp_2","model":"gpt-y","status":`+
				`"in_progress","output":[]}}`,
				"response.output_item.added", `{"type":"response.output_item.added","output_index":0,"item":{"type":`+
					`"function_call","id":"fc_1","call_id":"call_1","name":"shell","arguments":""}}`,
				"response.function_call_arguments.delta", `{"type":"response.function_call_arguments.delta",`+
					`"output_index":0,"delta":"{\"c\":"}`,
				"response.function_call_arguments.delta", `{"type":"response.function_call_arguments.delta",`+
					`"output_index":0,"delta":"1}"}`,
				"response.function_call_arguments.done", `{"type":"response.function_call_arguments.done",`+
					`"output_index":0,"arguments":"{\"c\":1}"}`,
				"response.output_item.done", `{"type":"response.output_item.done","output_index":0,"item":{"type":`+
					`"function_call","id":"fc_1","call_id":"call_1","name":"shell","arguments":"{\"c\":1}"}}`,
				"response.output_item.added", `{"type":"response.output_item.added","output_index":1,"item":{"type":`+
					`"custom_tool_call","id":"ct_1","call_id":"call_2","name":"apply_patch","input":""}}`,
				"response.custom_tool_call_input.delta", `{"type":"response.custom_tool_call_input.delta",`+
					`"output_index":1,"delta":"***"}`,
				"response.output_item.done", `{"type":"response.output_item.done","output_index":1,"item":{"type":`+
					`"custom_tool_call","id":"ct_1","call_id":"call_2","name":"apply_patch","input":"***"}}`,
				"response.completed", `{"type":"response.completed","response":{"id":"resp_2","model":"gpt-y","status":`+
					`"completed","output":[{"type":"function_call","id":"fc_1","call_id":"call_1","name":"shell",`+
					`"arguments":"{\"c\":1}"}],"usage":{"input_tokens":3,"output_tokens":4}}}`),
			Answer{ID: "resp_2", Model: "gpt-y", FinishReasons: []string{"completed"}, Whole: true,
				Usage: Usage{InputTokens: new(int64(3)), OutputTokens: new(int64(4))},
				Calls: []ToolCall{call("call_1", "shell", `{"c":1}`), call("call_2", "apply_patch", `"***"`)}},
		},
		{
			"a response that failed in its stream", Responses, stream,
			sse("response.failed", `{"type":"response.failed","response":{"id":"resp_3","status":"failed","error":{"code":`+
				`"rate_limit_exceeded","message":"m"}}}`),
			Answer{ID: "resp_3", FinishReasons: []string{"failed"}, Whole: true, ErrorType: "rate_limit_exceeded"},
		},
		{
			"a document of Gemini's with a call, whose output has the thoughts", GenerateContent, plain,
			`{"candidates":[{"content":{"parts":[{"text":"x","thought":true},{"functionCall":{"name":"ls","args":{"p":"."}},` +
				`"thoughtSignature":"s"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{` +
				`"promptTokenCount":20,"toolUsePromptTokenCount":3,"cachedContentTokenCount":7,"candidatesTokenCount":5,` +
				`"thoughtsTokenCount":4,"totalTokenCount":32},"modelVersion":"gemini-x","responseId":"r1"}`,
			Answer{ID: "r1", Model: "gemini-x", FinishReasons: []string{"STOP"}, Whole: true,
				Usage: Usage{InputTokens: new(int64(23)), CacheReadInputTokens: new(int64(7)),
					OutputTokens: new(int64(9)), ReasoningOutputTokens: new(int64(4))},
				Calls: []ToolCall{call("", "ls", `{"p":"."}`)}},
		},
		{
			"a stream of Gemini's", GenerateContent, stream,
			sse("", `{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":20}}`,
				"", `{"candidates":[{"content":{"parts":[{"functionCall":{"id":"i1","name":"ls","args":{}}},{"new":1}]},`+
					`"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":20,"candidatesTokenCount":2},`+
					`"modelVersion":"gemini-x"}`),
			Answer{Model: "gemini-x", FinishReasons: []string{"STOP"}, Whole: true,
				Usage: Usage{InputTokens: new(int64(20)), OutputTokens: new(int64(2))},
				Calls: []ToolCall{call("i1", "ls", `{}`)}, Unknown: 1, UnknownKinds: []string{"new"}},
		},
		{
			"a stream of Gemini's as an array", GenerateContent, plain,
			`[{"candidates":[{"content":{"parts":[{"functionCall":{"name":"a"}}]}}]},` + "\r\n" +
				`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1}}]`,
			Answer{FinishReasons: []string{"STOP"}, Whole: true, Usage: Usage{InputTokens: new(int64(1))},
				Calls: []ToolCall{call("", "a", "")}},
		},
		{
			"an error of Gemini's", GenerateContent, plain,
			`{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}`,
			Answer{ErrorType: "RESOURCE_EXHAUSTED", Whole: true},
		},
		{
			"a count of tokens, which are not used", CountTokens, plain, `{"input_tokens":2095}`, Answer{Whole: true},
		},
		{
			"counts that are none", Messages, plain,
			`{"id":"m","usage":{"input_tokens":-1,"cache_read_input_tokens":1.5,"output_tokens":"9"}}`,
			Answer{ID: "m", Whole: true},
		},
		{
			"a sum that no number can hold", Messages, plain,
			`{"id":"m","usage":{"input_tokens":9223372036854775807,"cache_read_input_tokens":1}}`,
			Answer{ID: "m", Whole: true, Usage: Usage{CacheReadInputTokens: new(int64(1))}},
		},
		{
			"something that is not JSON", Messages, plain, "<html>",
			Answer{Unknown: 1, UnknownKinds: []string{"unreadable"}, Unreadable: true},
		},
		{"nothing", Messages, plain, "", Answer{}},
	}
}

// said is an answer without fields that depend on how it was read.
func said(a *Answer) Answer {
	b := *a
	b.UsageRaw, b.Calls, b.Text, b.Odd = nil, nil, "", nil
	for _, c := range a.Calls {
		c.End = 0
		b.Calls = append(b.Calls, c)
	}
	return b
}

func TestRead(t *testing.T) {
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			got := Read(s.api, s.kind, strings.NewReader(s.body))
			if diff := cmp.Diff(s.want, said(got)); diff != "" {
				t.Fatalf("answer (-want +got):\n%s", diff)
			}
			// However it arrives, and whichever way lines end.
			if diff := cmp.Diff(got, Read(s.api, s.kind, iotest.OneByteReader(strings.NewReader(s.body)))); diff != "" {
				t.Errorf("byte by byte (-at once +byte by byte):\n%s", diff)
			}
			if s.kind != stream {
				return
			}
			for _, end := range []string{"\r\n", "\r"} {
				other := strings.ReplaceAll(s.body, "\n", end)
				if diff := cmp.Diff(s.want, said(Read(s.api, s.kind, strings.NewReader(other)))); diff != "" {
					t.Errorf("lines that end with %q (-want +got):\n%s", end, diff)
				}
			}
		})
	}
}

// TestReadCut cuts each stream after each byte: what came before stays, and nothing is made up.
func TestReadCut(t *testing.T) {
	for _, s := range samples() {
		if s.kind != stream {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			var before *Answer
			for n := range len(s.body) + 1 {
				got := Read(s.api, s.kind, strings.NewReader(s.body[:n]))
				if before != nil {
					grown(t, n, before, got)
				}
				before = got
			}
		})
	}
}

// grown checks that an answer includes what a shorter part of the same body had.
func grown(t *testing.T, n int, a, b *Answer) {
	t.Helper()
	switch {
	case len(b.Calls) < len(a.Calls), b.Unknown < a.Unknown, a.Whole && !b.Whole, a.ID != "" && b.ID != a.ID,
		a.Model != "" && b.Model != a.Model, len(b.FinishReasons) < len(a.FinishReasons),
		a.ErrorType != "" && b.ErrorType == "":
		t.Fatalf("%d bytes say less than %d:\n%s", n, n-1, cmp.Diff(a, b))
	}
	for _, u := range [][2]*int64{
		{a.Usage.InputTokens, b.Usage.InputTokens}, {a.Usage.OutputTokens, b.Usage.OutputTokens},
	} {
		if u[0] != nil && u[1] == nil {
			t.Fatalf("%d bytes have no usage, %d had", n, n-1)
		}
	}
	for i, c := range a.Calls {
		d := b.Calls[i]
		if c.ID != d.ID || c.Name != d.Name || c.Complete && !d.Complete ||
			c.Complete && !bytes.Equal(c.Arguments, d.Arguments) {
			t.Fatalf("call %d of %d bytes is another than that of %d:\n%s", i, n, n-1, cmp.Diff(c, d))
		}
	}
}

func TestBrokenCallKeepsWhatCame(t *testing.T) {
	body := samples()[2].body
	at := strings.Index(body, `"partial_json":"\"é\"}"`)
	got := Read(Messages, stream, strings.NewReader(body[:at]))
	want := Answer{ID: "msg_2", Model: "claude-y",
		Usage: Usage{InputTokens: new(int64(23)), CacheReadInputTokens: new(int64(7)),
			CacheCreationInputTokens: new(int64(5))}, // the first guess of the output is not a count
		Calls: []ToolCall{{ID: "toolu_2", Name: "Write", ArgumentsText: `{"path":`}}}
	if diff := cmp.Diff(want, said(got)); diff != "" {
		t.Fatalf("answer (-want +got):\n%s", diff)
	}
}

func TestUsageRaw(t *testing.T) {
	got := Read(Messages, stream, strings.NewReader(samples()[2].body))
	want := `{"cache_creation_input_tokens":5,"cache_read_input_tokens":7,"input_tokens":11,"output_tokens":42}`
	if string(got.UsageRaw) != want {
		t.Errorf("UsageRaw = %s, want %s", got.UsageRaw, want)
	}
}

func TestEndOfCall(t *testing.T) {
	s := samples()[2]
	got := Read(s.api, s.kind, strings.NewReader(s.body))
	stop := `{"type":"content_block_stop","index":1}` + "\n\n"
	if want := int64(strings.Index(s.body, stop) + len(stop)); got.Calls[0].End != want {
		t.Errorf("the call was whole after %d bytes, want %d", got.Calls[0].End, want)
	}
}

func TestReadRequest(t *testing.T) {
	for _, tt := range []struct {
		name string
		api  API
		body string
		want Request
	}{
		{
			"results of Anthropic's tools, the last of which are the newest", Messages,
			`{"model":"m","stream":true,"messages":[{"role":"user","content":"tool_result"},{"role":"assistant","content":[]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]},{"role":"assistant",` +
				`"content":[]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"b","is_error":true},` +
				`{"type":"text","text":"go on"}]}],"tools":[{"name":"Bash","input_schema":{}},{"type":"bash_20250124",` +
				`"name":"bash"},{"type":"web_search_20250305","name":"web_search"}],"mcp_servers":[{"name":"remote"}]}`,
			Request{Readable: true, Model: "m", Stream: true,
				Results: []ToolResult{{ID: "a", IsError: new(false)}, {ID: "b", IsError: new(true), Last: true}},
				Tools: []Tool{{Name: "Bash"}, {Name: "bash"}, {Name: "web_search", Provider: true},
					{Name: "remote", Provider: true}},
				Fetches: []Fetch{{Kind: FetchTool, What: "web_search"}, {Kind: FetchMCP, What: "remote"}}},
		},
		{
			"outputs of OpenAI's calls, and tools that it runs", Responses,
			`{"model":"m","background":true,"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"a"},` +
				`{"type":"function_call_output","call_id":"a","output":"1"},{"type":"custom_tool_call_output","call_id":"b"}],` +
				`"tools":[{"type":"function","name":"f"},{"type":"web_search"},{"type":"local_shell"},{"type":"mcp",` +
				`"server_label":"remote"},{"type":"shell","environment":{"type":"container_auto"}}]}`,
			Request{Readable: true, Model: "m", Background: true,
				Results: []ToolResult{{ID: "a", Last: true}, {ID: "b", Last: true}},
				Tools: []Tool{{Name: "f"}, {Name: "web_search", Provider: true}, {Name: "local_shell"},
					{Name: "remote", Provider: true}, {Name: "shell", Provider: true}},
				Fetches: []Fetch{{Kind: FetchTool, What: "web_search"}, {Kind: FetchMCP, What: "remote"},
					{Kind: FetchTool, What: "shell"}}},
		},
		{
			"a chat with results of tools", ChatCompletions,
			`{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"tool","tool_call_id":` +
				`"a"},{"role":"assistant"},{"role":"tool","tool_call_id":"b"}],"tools":[{"type":"function","function":` +
				`{"name":"f"}}]}`,
			Request{Readable: true, Model: "m", Stream: true, IncludeUsage: true,
				Results: []ToolResult{{ID: "a"}, {ID: "b", Last: true}}, Tools: []Tool{{Name: "f"}}},
		},
		{
			"responses of Gemini's functions", GenerateContent,
			`{"contents":[{"role":"user","parts":[{"text":"x"}]},{"role":"model","parts":[{"functionCall":{"name":"a"}}]},` +
				`{"role":"user","parts":[{"functionResponse":{"id":"1","name":"a","response":{"output":"x"}}},` +
				`{"functionResponse":{"name":"b","response":{"error":"x"}}},{"functionResponse":{"name":"c","response":{}}}]}],` +
				`"tools":[{"functionDeclarations":[{"name":"a"}]},{"googleSearch":{}}]}`,
			Request{Readable: true, Results: []ToolResult{{ID: "1", Name: "a", IsError: new(false), Last: true},
				{Name: "b", IsError: new(true), Last: true}, {Name: "c", Last: true}},
				Tools:   []Tool{{Name: "a"}, {Name: "googleSearch", Provider: true}},
				Fetches: []Fetch{{Kind: FetchTool, What: "googleSearch"}}},
		},
		{"members that may make the provider search, and others", ChatCompletions,
			`{"model":"m","plugins":[{"id":"web"}],"enable_search":true,"search_parameters":null,"preset":"x","top_k":1}`,
			Request{Readable: true, Model: "m", Fetches: []Fetch{{Kind: FetchUnknown, What: "enable_search"},
				{Kind: FetchUnknown, What: "plugins"}, {Kind: FetchUnknown, What: "preset"}}}},
		{"a model that always searches", ChatCompletions, `{"model":"openai/GPT-4o:online"}`,
			Request{Readable: true, Model: "openai/GPT-4o:online",
				Fetches: []Fetch{{Kind: FetchTool, What: "openai/GPT-4o:online"}}}},
		{"a model with a similar name", Messages, `{"model":"nousresearch/hermes","skills":[]}`,
			Request{Readable: true, Model: "nousresearch/hermes",
				Fetches: []Fetch{{Kind: FetchUnknown, What: "skills"}}}},
		{"a body that is not JSON", Messages, `{"model":`, Request{}},
		{"no body", Models, ``, Request{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(&tt.want, ReadRequest(tt.api, []byte(tt.body))); diff != "" {
				t.Fatalf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOddMembers has answers of which one thing is odd: everything else is read, and the odd member is named.
func TestOddMembers(t *testing.T) {
	for _, tt := range []struct {
		name string
		api  API
		kind string
		body string
		want Answer
	}{
		{
			"a null does not erase what an earlier event said", Messages, stream,
			sse("message_start", `{"type":"message_start","message":{"id":"m","usage":{"input_tokens":11,`+
				`"cache_read_input_tokens":7,"cache_creation_input_tokens":5}}}`,
				"message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":null,`+
					`"cache_read_input_tokens":null,"cache_creation_input_tokens":null,"output_tokens":9}}`,
				"message_stop", `{"type":"message_stop"}`),
			Answer{ID: "m", FinishReasons: []string{"end_turn"}, Whole: true,
				Usage: Usage{InputTokens: new(int64(23)), CacheReadInputTokens: new(int64(7)),
					CacheCreationInputTokens: new(int64(5)), OutputTokens: new(int64(9))}},
		},
		{
			"a byte order mark before a document", Messages, plain,
			"\ufeff" + `{"id":"m","content":[{"type":"tool_use","id":"t","name":"n","input":{}}]}`,
			Answer{ID: "m", Whole: true, Calls: []ToolCall{call("t", "n", `{}`)}},
		},
		{
			"a byte order mark before a stream", ChatCompletions, stream,
			"\ufeff" + sse("", `{"id":"c","choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}`, "", "[DONE]"),
			Answer{ID: "c", Text: "hi", FinishReasons: []string{"stop"}, Whole: true},
		},
		{
			"calls without ids, of which each chunk has one", ChatCompletions, stream,
			sse("", `{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"a","arguments":"{\"x\":1}"}}]}}]}`,
				"", `{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"b","arguments":"{}"}}]}}]}`,
				"", `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`),
			Answer{FinishReasons: []string{"tool_calls"}, Whole: true,
				Calls: []ToolCall{call("", "a", `{"x":1}`), call("", "b", `{}`)}},
		},
		{
			"calls without ids that all have the index 0", ChatCompletions, stream,
			sse("", `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"a","arguments":"{\"x\":"}}]}}]}`,
				"", `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}`,
				"", `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"a","arguments":"{}"}}]}}]}`,
				"", `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`),
			Answer{FinishReasons: []string{"tool_calls"}, Whole: true,
				Calls: []ToolCall{call("", "a", `{"x":1}`), call("", "a", `{}`)}},
		},
		{
			"items without ids and indexes", Responses, stream,
			sse("", `{"type":"response.output_item.done","item":{"type":"function_call","name":"a","arguments":"{}"}}`,
				"", `{"type":"response.output_item.done","item":{"type":"function_call","name":"b","arguments":"{}"}}`,
				"", `{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call",`+
					`"name":"a","arguments":"{}"},{"type":"function_call","name":"b","arguments":"{}"}]}}`),
			Answer{FinishReasons: []string{"completed"}, Whole: true, Calls: []ToolCall{call("", "a", `{}`), call("", "b", `{}`)}},
		},
		{
			"counts with a point, which are whole numbers", ChatCompletions, plain,
			`{"choices":[],"usage":{"prompt_tokens":23.0,"completion_tokens":9e0,"prompt_tokens_details":{"cached_tokens":7.0}}}`,
			Answer{Whole: true, Usage: Usage{InputTokens: new(int64(23)), OutputTokens: new(int64(9)),
				CacheReadInputTokens: new(int64(7))}},
		},
		{
			"counts that are none", ChatCompletions, plain,
			`{"usage":{"prompt_tokens":"23","completion_tokens":9,"prompt_tokens_details":{"cached_tokens":-1}}}`,
			Answer{Whole: true, Usage: Usage{OutputTokens: new(int64(9))},
				Odd: []Odd{{"usage.prompt_tokens", `"23"`, 1}, {"usage.prompt_tokens_details.cached_tokens", "-1", 1}}},
		},
		{
			"a stream under the content type of a document", Messages, plain,
			sse("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
				"content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`,
				"message_stop", `{"type":"message_stop"}`),
			Answer{Text: "hi", Whole: true},
		},
		{
			"a document under the content type of a stream", Messages, stream,
			`{"id":"m","content":[{"type":"text","text":"hi"}]}`,
			Answer{ID: "m", Text: "hi", Whole: true},
		},
		{
			"one member of another type", ChatCompletions, plain,
			`{"id":5,"model":"gpt","choices":[{"message":{"content":"hi","tool_calls":[{"id":"t","function":{"name":"n",` +
				`"arguments":{"a":1}}}]},"finish_reason":"tool_calls"}],"usage":[]}`,
			Answer{Model: "gpt", Text: "hi", FinishReasons: []string{"tool_calls"}, Whole: true,
				Calls: []ToolCall{call("t", "n", `{"a":1}`)},
				Odd: []Odd{{"chunk.id", "5", 1}, {"usage", "[]", 1},
					{"chunk.choices[].message.tool_calls[].function.arguments", `{"a":1}`, 1}}},
		},
		{
			"a part of another type among others", GenerateContent, plain,
			`{"candidates":[{"content":{"parts":["odd",{"text":"hi"},{"functionCall":{"name":"n","args":{}}}]},` +
				`"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3}}`,
			Answer{Text: "hi", FinishReasons: []string{"STOP"}, Whole: true, Usage: Usage{InputTokens: new(int64(3))},
				Calls: []ToolCall{call("", "n", `{}`)}, Odd: []Odd{{"parts[]", `"odd"`, 1}}},
		},
		{
			"an event that is no JSON among others", Messages, stream,
			sse("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
				"content_block_delta", `{"type":"content_block_de`,
				"content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`,
				"message_stop", `{"type":"message_stop"}`),
			Answer{Text: "hi", Whole: true, Odd: []Odd{{"event", `{"type":"content_block_de`, 1}}},
		},
		{
			"the provider's error in a stream of Anthropic's", Messages, stream,
			sse("error", `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`),
			Answer{ErrorType: "overloaded_error", Whole: true},
		},
		{
			"the provider's error in a stream of completions", ChatCompletions, stream,
			sse("", `{"error":{"message":"m","code":502}}`), Answer{ErrorType: "error", Whole: true},
		},
		{
			"the provider's error in a stream of a response", Responses, stream,
			sse("error", `{"type":"error","code":"server_error","message":"m"}`),
			Answer{ErrorType: "server_error", Whole: true},
		},
		{
			"the provider's error in a stream of Gemini's", GenerateContent, stream,
			sse("", `{"error":{"code":503,"status":"UNAVAILABLE"}}`), Answer{ErrorType: "UNAVAILABLE", Whole: true},
		},
		{
			"the provider's error in an array of Gemini's", GenerateContent, plain,
			`[{"error":{"code":503,"status":"UNAVAILABLE"}}]`, Answer{ErrorType: "UNAVAILABLE", Whole: true},
		},
		{
			"a namespace of a tool of Codex'", Responses, plain,
			`{"output":[{"type":"function_call","call_id":"t","namespace":"mcp__files__","name":"read","arguments":"{}"}]}`,
			Answer{Whole: true, Calls: []ToolCall{call("t", "read", `{}`, func(c *ToolCall) { c.Namespace = "mcp__files__" })}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := *Read(tt.api, tt.kind, strings.NewReader(tt.body))
			got.UsageRaw = nil
			for i := range got.Calls {
				got.Calls[i].End = 0
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	apis := []API{Messages, ChatCompletions, Responses, GenerateContent, CountTokens}
	for _, s := range samples() {
		for i, api := range apis {
			if api == s.api {
				f.Add(uint8(i), s.kind == stream, []byte(s.body))
			}
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, events bool, body []byte) {
		kind := plain
		if events {
			kind = stream
		}
		a := Read(apis[int(n)%len(apis)], kind, bytes.NewReader(body))
		for _, u := range []*int64{a.Usage.InputTokens, a.Usage.OutputTokens, a.Usage.CacheReadInputTokens,
			a.Usage.CacheCreationInputTokens, a.Usage.ReasoningOutputTokens} {
			if u != nil && *u < 0 {
				t.Errorf("%d tokens", *u)
			}
		}
		for _, c := range a.Calls {
			if c.Arguments != nil && !c.Arguments.IsValid(options()) {
				t.Errorf("the arguments %q are not JSON", c.Arguments)
			}
			if c.End < 0 || c.End > int64(len(body)) {
				t.Errorf("a call of %d bytes was whole after %d", len(body), c.End)
			}
		}
	})
}

func FuzzReadRequest(f *testing.F) {
	apis := []API{Messages, ChatCompletions, Responses, GenerateContent, Models}
	f.Add(uint8(0), []byte(`{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}]}`))
	f.Add(uint8(2), []byte(`{"input":[{"type":"function_call_output","call_id":"a"}],"tools":[{"type":"mcp"}]}`))
	f.Add(uint8(3), []byte(`{"contents":[{"parts":[{"functionResponse":{"name":"a"}}]}],"tools":[{"googleSearch":{}}]}`))
	f.Fuzz(func(t *testing.T, n uint8, body []byte) {
		r := ReadRequest(apis[int(n)%len(apis)], body)
		if !r.Readable && (len(r.Results) > 0 || len(r.Tools) > 0) {
			t.Error("a body that is not readable has results or tools")
		}
	})
}
