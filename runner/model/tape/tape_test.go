package tape

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// recorded is a line of the model layer. An answer is a JSON object, or text.
func recorded(seq int, path, model, request, answer string) *schema.ModelEvent {
	route, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	e := &schema.ModelEvent{Schema: schema.ModelEventV0, RunID: "run_1", Seq: uint64(seq)}
	e.Route, e.Path, e.RequestModel, e.Method, e.Status = &route, path, &model, "POST", new(200)
	e.Stream = new(strings.Contains(request, `"stream":true`))
	e.FinishReasons, e.ToolCalls, e.ToolResults = []string{}, []schema.ModelToolCall{}, []schema.ModelToolResult{}
	e.Request = schema.ModelBody{Bytes: int64(len(request)), Body: jsontext.Value(request)}
	if v := jsontext.Value(answer); v.IsValid() {
		e.Response = schema.ModelBody{Bytes: int64(len(answer)), Body: v}
	} else {
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		e.Response = schema.ModelBody{Bytes: int64(len(answer)), Body: text, Text: true}
	}
	return e
}

func loadAll(members map[string]string, events ...*schema.ModelEvent) (*Cassette, error) {
	lines := func(yield func([]byte, error) bool) {
		for _, e := range events {
			if line, err := json.Marshal(e); !yield(line, err) {
				return
			}
		}
	}
	return Load(lines, func(names map[string]bool) (map[string]string, error) {
		all := map[string]string{}
		for name := range names {
			all[name] = members[name]
		}
		return all, nil
	})
}

func loaded(t *testing.T, events ...*schema.ModelEvent) *Cassette {
	t.Helper()
	c, err := loadAll(nil, events...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask is a request as an endpoint makes it.
func ask(path, model, body string) *Request {
	route, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return &Request{Route: route, Path: path, Model: model, Body: []byte(body),
		Stream: strings.Contains(body, `"stream":true`)}
}

const (
	messages = "/anthropic/v1/messages"
	tools    = `"tools":[{"name":"Bash","description":"runs","input_schema":{"properties":{"description":{"type":"string"}}}}]`
)

func said(text string) string {
	return `{` + tools + `,"messages":[{"role":"user","content":"` + text + `"}]}`
}

func TestTexts(t *testing.T) {
	for _, tt := range []struct{ name, recorded, now string }{
		{"other words", said("now 10:00"), said("now 11:00")},
		{"the description of a tool", said("x"), strings.Replace(said("x"), "runs", "runs things", 1)},
		{"the order of tools", `{"tools":[{"name":"a"},{"name":"b"}]}`, `{"tools":[{"name":"b"},{"name":"a"}]}`},
		{"a mark for the cache",
			`{"messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`},
		{"a text as a part", said("x"),
			`{` + tools + `,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`},
		{"another session", `{"metadata":{"user_id":"a"},"messages":[]}`, `{"metadata":{"user_id":"b"},"messages":[]}`},
		{"other ids", `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash"}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"pid 7"}]}]}`,
			`{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"u9","name":"Bash"}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"u9","content":"pid 8"}]}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := loaded(t, recorded(0, messages, "m", tt.recorded, `{"id":"a"}`))
			if _, err := c.Take(ask(messages, "m", tt.now), true); err == nil {
				t.Error("a strict cassette has an answer")
			}
			a, err := c.Take(ask(messages, "m", tt.now), false)
			if err != nil {
				t.Fatal(err)
			}
			if string(a.Body) != `{"id":"a"}` || a.Status != 200 || a.Drift == 0 || len(a.Places) != a.Drift {
				t.Errorf("the answer is %+v", a)
			}
			if _, err := c.Take(ask(messages, "m", tt.now), false); err == nil {
				t.Error("the answer is given twice")
			}
		})
	}
}

// TestMissNamesTheNearestRequest has requests that match no recorded one.
func TestMissNamesTheNearestRequest(t *testing.T) {
	const call = `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"Bash"},` +
		`{"type":"tool_use","id":"2","name":"Bash"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]}]}`
	c := loaded(t, recorded(0, messages, "m", said("x"), `{}`), recorded(4, messages, "m", call, `{}`),
		recorded(5, "/openai/v1/responses", "gpt", `{"input":[{"type":"function_call","name":"shell","call_id":"c"}]}`,
			`{}`))
	for _, tt := range []struct{ name, path, model, body, says string }{
		{"another model", messages, "n", said("x"), `line 0 comes nearest: its model is "m", and here "n"`},
		{"a stream", messages, "m", `{"stream":true,` + said("x")[1:],
			"line 0 comes nearest: its stream is false, and here true"},
		{"another tool", messages, "m", strings.Replace(said("x"), "Bash", "Shell", 1),
			`line 0 comes nearest: it declares the tool "Bash", and this one does not`},
		{"another schema", messages, "m", strings.Replace(said("x"), "string", "number", 1),
			`line 0 comes nearest: the schema of the tool "Bash" is another`},
		{"one tool more", messages, "m", strings.Replace(said("x"), "[{", `[{"name":"Web"},{`, 1),
			`line 0 comes nearest: this one also declares the tool "Web"`},
		{"another tool was called", messages, "m",
			strings.Replace(call, `"id":"2","name":"Bash"`, `"id":"2","name":"Edit"`, 1),
			`line 4 comes nearest: at /messages/1/content/1/name it has name "Bash", and this one has name "Edit"`},
		{"the result of the other call", messages, "m",
			strings.Replace(call, `"tool_use_id":"1"`, `"tool_use_id":"2"`, 1),
			"line 4 comes nearest: at /messages/2/content/0/tool_use_id it has tool_use_id number 0, and this one " +
				"has tool_use_id number 1"},
		{"a conversation that goes on", messages, "m",
			strings.Replace(call, "]}]}", `]},{"role":"user","content":"y"}]}`, 1),
			`at /messages/3 it has nothing, and this one has message of "user"`},
		{"another path", "/anthropic/v1/messages/count_tokens", "m", said("x"),
			"it asked /anthropic/messages of anthropic, and this one asks " +
				"/anthropic/messages/count_tokens of anthropic"},
		{"another provider", "/gemini/v1beta/models/g:generateContent", "g", `{}`, "of gemini"},
		{"a body that is none", messages, "m", "{", "line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := c.Take(ask(tt.path, tt.model, tt.body), false)
			if miss := new(*Miss); !errors.As(err, miss) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("the answer is %+v, and the error %v; want one with %q", a, err, tt.says)
			}
		})
	}
	if n := c.Unused(); n != 3 {
		t.Errorf("%d answers are unused, want 3", n)
	}
	if _, err := c.Take(ask(messages, "m", said("y")), false); err != nil {
		t.Error(err)
	}
	if _, err := c.Take(ask(messages, "m", said("y")), false); err == nil ||
		!strings.Contains(err.Error(), "1 time in the recorded run, and here once more") {
		t.Errorf("an answer that is used is missed with %v", err)
	}
}

// TestAmongEqualsTheUsersTextsDecide has two agents that ask in a different order than in the recorded run.
func TestAmongEqualsTheUsersTextsDecide(t *testing.T) {
	c := loaded(t, recorded(0, messages, "m", said("a"), `{"n":0}`), recorded(1, messages, "m", said("b"), `{"n":1}`),
		recorded(2, messages, "m", said("a"), `{"n":2}`), recorded(3, messages, "m", said("c"), `{"n":3}`))
	var got []string
	for _, text := range []string{"b", "a", "new", "a"} { // for the last one, there is only that of c
		a, err := c.Take(ask(messages, "m", said(text)), false)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %d", a.Body, a.Drift))
	}
	if d := cmp.Diff([]string{`{"n":1} 0`, `{"n":0} 0`, `{"n":2} 1`, `{"n":3} 1`}, got); d != "" {
		t.Errorf("answers (-want +got):\n%s", d)
	}
}

// TestEachAPIHasItsShape changes one thing at a time in a conversation of each API.
func TestEachAPIHasItsShape(t *testing.T) {
	for _, tt := range []struct {
		path, body    string
		texts, shapes []string // parts of the body that may be others, and parts that may not
	}{
		{"/openai/v1/responses",
			`{"instructions":"i1","input":[{"type":"message","role":"user","content":[{"type":"input_text",` +
				`"text":"t1"}]},{"type":"reasoning","id":"rs_1","encrypted_content":"e1"},{"type":"function_call","name":"shell",` +
				`"call_id":"c1","arguments":"a1"},{"type":"function_call_output","call_id":"c1","output":"o1"}]}`,
			[]string{"i1", "t1", "rs_1", "e1", "a1", "o1"}, []string{"shell", "reasoning", "user", "input_text"}},
		{"/openai/v1/chat/completions",
			`{"messages":[{"role":"system","content":"s1"},{"role":"assistant","tool_calls":[{"type":` +
				`"function","id":"c1","function":{"name":"shell","arguments":"a1"}}]},{"role":"tool","tool_call_id":"c1","content":"o1"}]}`,
			[]string{"s1", "a1", "o1"}, []string{"shell", "system", `"tool"`}},
		{"/gemini/v1beta/models/m:generateContent",
			`{"contents":[{"role":"user","parts":[{"text":"t1"}]},{"role":"model","parts":[` +
				`{"functionCall":{"name":"shell","args":{"c":"a1"}}}]},{"role":"user","parts":[{"functionResponse":{"name":"shell2",` +
				`"response":{"output":"o1"}}}]}],"systemInstruction":{"parts":[{"text":"s1"}]}}`,
			[]string{"t1", "a1", "o1", "s1"}, []string{`"shell"`, "shell2", "functionResponse", `"model"`}},
	} {
		for _, part := range tt.texts {
			c := loaded(t, recorded(0, tt.path, "m", tt.body, `{}`))
			if _, err := c.Take(ask(tt.path, "m", strings.ReplaceAll(tt.body, part, "zz")), false); err != nil {
				t.Errorf("%s with another %s: %v", tt.path, part, err)
			}
		}
		for _, part := range tt.shapes {
			c := loaded(t, recorded(0, tt.path, "m", tt.body, `{}`))
			other := strings.ReplaceAll(tt.body, part, `"zz"`)
			if !strings.HasPrefix(part, `"`) {
				other = strings.ReplaceAll(tt.body, part, "zz")
			}
			if _, err := c.Take(ask(tt.path, "m", other), false); err == nil {
				t.Errorf("%s with another %s has an answer", tt.path, part)
			}
		}
	}
}

// TestTextsAreMembers has a request and answers whose texts are stored as members.
func TestTextsAreMembers(t *testing.T) {
	name := func(digit string) string { return schema.BlobsDir + strings.Repeat(digit, 64) }
	members := map[string]string{name("a"): "a long text", name("b"): "data: {}\n\n", name("c"): `a "quoted" part`}
	events := []*schema.ModelEvent{
		recorded(0, messages, "m", said(name("a")), name("b")),
		recorded(1, messages, "m", said(name("a")), `{"parts":["`+name("c")+`",`+` 1.50]}`),
	}
	c, err := loadAll(members, events...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"data: {}\n\n", `{"parts":["a \"quoted\" part",1.50]}`} {
		a, err := c.Take(ask(messages, "m", said("a long text")), true)
		if err != nil || string(a.Body) != want {
			t.Errorf("the answer is %s, %v; want %s", a.Body, err, want)
		}
	}
}

func TestHowAnAnswerEnded(t *testing.T) {
	busy := recorded(0, messages, "m", said("x"), `{"error":{}}`)
	busy.Status, busy.ResponseHeaders = new(429), map[string]string{"retry-after": "3"}
	broken := recorded(1, messages, "m", said("x"), "data: ")
	broken.ErrorType = new(schema.ModelErrorBroken)
	gone := recorded(2, messages, "m", said("x"), "")
	gone.Status, gone.ErrorType, gone.Response = nil, new(schema.ModelErrorLeft), schema.ModelBody{}
	nobody := recorded(3, messages, "m", said("x"), "")
	nobody.ErrorType, nobody.Status = new(schema.ModelErrorUnreachable), new(502)
	nobody.Response = schema.ModelBody{Bytes: 100}
	secret := recorded(4, messages, "m", said("x"), `{"key":"<redacted:given:01234567>"}`)
	refused := recorded(5, messages, "m", said("x"), `{}`)
	refused.Refused = new(schema.ModelRefusedBudget)
	c := loaded(t, busy, broken, gone, nobody, secret, refused)
	var got []Answer
	for range 5 {
		a, err := c.Take(ask(messages, "m", said("x")), false)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, *a)
	}
	want := []Answer{
		{Seq: 0, Status: 429, Headers: map[string]string{"retry-after": "3"}, Body: []byte(`{"error":{}}`)},
		{Seq: 1, Status: 200, Body: []byte("data: "), Broken: true},
		{Seq: 2, Broken: true},
		{Seq: 3, Status: 502, Unreachable: true},
		{Seq: 4, Status: 200, Body: []byte(`{"key":"<redacted:given:01234567>"}`), Redacted: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("answers (-want +got):\n%s", d)
	}
	if _, err := c.Take(ask(messages, "m", said("x")), false); err == nil {
		t.Error("a request that was refused has an answer")
	}
}

// TestTagsOfRedactionAreNoDrift has the same secret in two runs, whose redaction has different keys.
func TestTagsOfRedactionAreNoDrift(t *testing.T) {
	c := loaded(t, recorded(0, messages, "m", said("key <redacted:given:01234567>"), `{}`))
	if a, err := c.Take(ask(messages, "m", said("key <redacted:given:fedcba98>")), true); err != nil {
		t.Errorf("the answer is %+v, %v", a, err)
	}
}

func TestBundlesThatCannotBeReplayed(t *testing.T) {
	digests := recorded(0, messages, "m", said("x"), `{}`)
	digests.Request.Body, digests.Response.Body = nil, nil
	digests.Request.SHA256, digests.Response.SHA256 = new("sha256:0"), new("sha256:0")
	if _, err := loadAll(nil, digests); !errors.Is(err, ErrNoBodies) {
		t.Errorf("without bodies, the error is %v", err)
	}
	large := recorded(3, messages, "m", said("x"), `{}`)
	large.Request.Body, large.Request.LeftOut = nil, true
	encoded := recorded(7, messages, "m", said("x"), `{}`)
	encoded.Response.Body = nil
	_, err := loadAll(nil, large, encoded)
	if err == nil || !strings.Contains(err.Error(), "line 3: its request was too much to keep") ||
		!strings.Contains(err.Error(), "line 7: its answer could not be decoded") {
		t.Errorf("with bodies that were left out, the error is %v", err)
	}
	refused := recorded(0, messages, "m", said("x"), `{}`)
	refused.Refused = new(schema.ModelRefusedPath)
	if _, err := loadAll(nil, refused); !errors.Is(err, ErrNothing) {
		t.Errorf("without answers, the error is %v", err)
	}
	if _, err := Load(func(yield func([]byte, error) bool) { yield(nil, errors.ErrUnsupported) }, nil); err == nil {
		t.Error("a bundle that cannot be read is loaded")
	}
}

func TestTooManyLines(t *testing.T) {
	line, err := json.Marshal(recorded(0, messages, "m", said("x"), `{}`))
	if err != nil {
		t.Fatal(err)
	}
	lines := func(yield func([]byte, error) bool) {
		for range 2 {
			if !yield(line, nil) {
				return
			}
		}
	}
	none := func(map[string]bool) (map[string]string, error) { return nil, nil }
	if c, err := load(lines, none, 2*len(line)); err != nil || len(c.all) != 2 {
		t.Errorf("two lines that fit: %v", err)
	}
	if _, err := load(lines, none, 2*len(line)-1); !errors.Is(err, ErrTooLong) {
		t.Errorf("two lines that do not fit: %v", err)
	}
}

// TestManyAgentsAtOnce takes each answer once.
func TestManyAgentsAtOnce(t *testing.T) {
	var events []*schema.ModelEvent
	for i := range 50 {
		events = append(events, recorded(i, messages, "m", said("x"), fmt.Sprintf(`{"n":%d}`, i)))
	}
	c := loaded(t, events...)
	var all sync.WaitGroup
	got := make([]string, 50)
	for i := range got {
		all.Go(func() {
			a, err := c.Take(ask(messages, "m", said("x")), false)
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = string(a.Body)
		})
	}
	all.Wait()
	slices.Sort(got)
	if len(slices.Compact(got)) != 50 || c.Unused() != 0 {
		t.Errorf("answers are %v, and %d are unused", got, c.Unused())
	}
	if d := cmp.Diff([]string{"anthropic"}, c.Routes()); d != "" {
		t.Error(d)
	}
}

// FuzzTake matches arbitrary bodies against each other.
func FuzzTake(f *testing.F) {
	f.Add([]byte(said("x")), []byte(said("y")))
	f.Add([]byte(`{"messages":[{"role":1,"content":{"type":[]}}],"tools":{}}`), []byte(`[]`))
	f.Add([]byte(`{"contents":[[["x"]]],"tools":[null,1,"x",[{}]]}`), []byte("{\"input\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, before, now []byte) {
		e := recorded(0, messages, "m", "{}", `{}`)
		if jsontext.Value(before).IsValid() {
			e.Request = schema.ModelBody{Bytes: int64(len(before)), Body: before}
		}
		c, err := loadAll(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Take(ask(messages, "m", string(now)), false); err != nil {
			if miss := new(*Miss); !errors.As(err, miss) {
				t.Error(err)
			}
		}
	})
}
