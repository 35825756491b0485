package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// modelKey is the key that the provider of the model's cases accepts.
const modelKey = "sk-ant-benchmark-0123456789"

// modelFigures are what a client of a model measures.
type modelFigures struct {
	piece   float64 // median microseconds from the provider's write of a piece of a stream to its arrival
	event   float64 // microseconds for each of many events
	request float64 // median microseconds of a small request
	large   float64 // median milliseconds of a request of 5 MB
	memory  float64 // MiB by which the parent's highest memory grew in large ones
}

// modelProvider answers with as many events as ?n= says, at intervals of ?pause=. Each event has the time when it was
// written.
func modelProvider(w http.ResponseWriter, r *http.Request) {
	_, err := io.Copy(io.Discard, r.Body)
	check(err)
	n, _ := strconv.Atoi(r.URL.Query().Get("n"))
	pause, _ := time.ParseDuration(r.URL.Query().Get("pause"))
	if n == 0 {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"type":"message","content":[{"type":"text","text":"done"}],"stop_reason":"end_turn",`+
			`"usage":{"input_tokens":23,"output_tokens":9}}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for range n {
		fmt.Fprintf(w, `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%d"}}`+"\n\n",
			time.Now().UnixNano())
		_ = http.NewResponseController(w).Flush()
		time.Sleep(pause)
	}
}

// modelProxy URL ROLE... serves a bare proxy before URL, and runs a role whose model is behind it.
func modelProxy(args []string) {
	target, err := url.Parse(args[0])
	check(err)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check(http.NewResponseController(w).EnableFullDuplex()) // else the answer may close the body under the proxy
		proxy.ServeHTTP(w, r)
	}))
	defer s.Close()
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Env = append(os.Environ(), "ANTHROPIC_BASE_URL="+s.URL)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	check(cmd.Run())
}

// modelClient SCALE asks the model of its environment and prints modelFigures.
func modelClient(args []string) {
	scale := number(args[0])
	stream := func(n int, pause time.Duration) (late []float64) {
		res := askModel(fmt.Sprintf("n=%d&pause=%s", n, pause), `{"model":"m","stream":true,"messages":[]}`)
		defer res.Body.Close()
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			_, at, found := bytes.Cut(lines.Bytes(), []byte(`"text":"`))
			if !found {
				continue
			}
			written, err := strconv.ParseInt(string(at[:bytes.IndexByte(at, '"')]), 10, 64)
			check(err)
			late = append(late, float64(time.Now().UnixNano()-written)/1000)
		}
		if len(late) != n {
			check(fmt.Errorf("%d of %d events arrived", len(late), n))
		}
		return late
	}
	timed := func(n int, body string, pause time.Duration) (us []float64) {
		for range n {
			time.Sleep(pause)
			began := time.Now()
			res := askModel("", body)
			_, err := io.Copy(io.Discard, res.Body)
			check(err)
			res.Body.Close()
			us = append(us, float64(time.Since(began).Nanoseconds())/1000)
		}
		return us
	}
	var f modelFigures
	f.piece = median(stream(20*scale, time.Millisecond))
	began := time.Now()
	stream(2000*scale, 0)
	f.event = float64(time.Since(began).Nanoseconds()) / 1000 / float64(2000*scale)
	f.request = median(timed(10*scale, `{"model":"m","messages":[]}`, 0))
	before := highestMemory(os.Getppid())
	f.large = median(timed(1+scale/5, `{"model":"m","messages":[{"role":"user","content":"`+
		strings.Repeat("many words ", 5_000_000/11)+`"}]}`, 100*time.Millisecond)) / 1000
	f.memory = highestMemory(os.Getppid()) - before
	fmt.Println(f.piece, f.event, f.request, f.large, f.memory)
}

// modelTurns TURNS BYTES has a conversation of so many turns, whose last request has about so many bytes. Like Claude
// Code, it sends the whole conversation each time, with a mark for the cache that moves. It prints how many bytes
// differ.
func modelTurns(args []string) {
	turns, bytes := number(args[0]), number(args[1])
	random := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string { // which compresses as English does
		var b strings.Builder
		for b.Len() < n {
			fmt.Fprintf(&b, "%x ", random.IntN(1<<16))
		}
		return b.String()
	}
	head := fmt.Sprintf(`{"model":"m","system":[{"type":"text","text":"%s"}],"tools":[`, text(12_000))
	for i := range 18 {
		head += fmt.Sprintf(`{"name":"tool%d","description":"%s","input_schema":{"type":"object"}},`, i, text(800))
	}
	head = strings.TrimSuffix(head, ",") + `],"messages":[`
	var messages []string
	distinct := len(head)
	say := func(message string) {
		distinct += len(message)
		messages = append(messages, message)
	}
	const mark = `,"cache_control":{"type":"ephemeral"}}]}`
	say(fmt.Sprintf(`{"role":"user","content":[{"type":"text","text":"%s"}]}`, text(bytes/turns)))
	for turn := range turns {
		last := len(messages) - 1
		body := head + strings.Join(messages[:last], ",")
		if last > 0 {
			body += ","
		}
		res := askModel("", body+strings.TrimSuffix(messages[last], "}]}")+mark+"]}")
		_, err := io.Copy(io.Discard, res.Body)
		check(err)
		res.Body.Close()
		say(fmt.Sprintf(`{"role":"assistant","content":[{"type":"text","text":"%s"},{"type":"tool_use","id":"toolu_%d",`+
			`"name":"tool1","input":{"a":"%s"}}]}`, text(300), turn, text(200)))
		say(fmt.Sprintf(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_%d","content":"%s"}]}`, turn,
			text(bytes/turns-600)))
	}
	fmt.Println(distinct)
}

// askModel asks the model of the environment.
func askModel(query, body string) *http.Response {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost,
		os.Getenv("ANTHROPIC_BASE_URL")+"/v1/messages?"+query, strings.NewReader(body))
	check(err)
	r.Header.Set("X-Api-Key", os.Getenv("ANTHROPIC_API_KEY"))
	res, err := http.DefaultClient.Do(r)
	check(err)
	if res.StatusCode != http.StatusOK {
		check(fmt.Errorf("the model answered %s", res.Status))
	}
	return res
}

// highestMemory is the most that a process had resident, in MiB.
func highestMemory(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	return float64(number(strings.Fields(rest)[0])) / 1024
}

// models are the model gateway's cases: a client asks the provider itself, through a bare proxy and
// through the gateway of a run, in turns.
func (b *bench) models(self string) []single {
	measured := sync.OnceValue(func() (r struct{ piece, event, request, large, proxied, memory float64 }) {
		provider := httptest.NewServer(http.HandlerFunc(modelProvider))
		defer provider.Close()
		check(os.Setenv("ANTHROPIC_API_KEY", modelKey))
		role := []string{self, "model-client", strconv.Itoa(b.rounds(100))}
		flags := []string{"--kernel", "off", "--model-gateway", "--model-upstream", "anthropic=" + provider.URL}
		var direct, proxied, ours []modelFigures
		for range b.rounds(7) {
			alone := exec.Command(role[0], role[1:]...)
			alone.Env = append(os.Environ(), "ANTHROPIC_BASE_URL="+provider.URL)
			direct = append(direct, b.modelFigures(alone))
			proxied = append(proxied, b.modelFigures(exec.Command(self,
				append([]string{"model-proxy", provider.URL}, role...)...)))
			ours = append(ours, b.modelFigures(b.run(flags, role...)()))
		}
		ratio := func(of func(modelFigures) float64, other []modelFigures) float64 {
			var all []float64
			for i := range ours {
				all = append(all, of(ours[i])/of(other[i]))
			}
			return median(all)
		}
		r.piece = ratio(func(f modelFigures) float64 { return f.piece }, proxied)
		r.event = ratio(func(f modelFigures) float64 { return f.event }, proxied)
		r.request = ratio(func(f modelFigures) float64 { return f.request }, proxied)
		r.large = ratio(func(f modelFigures) float64 { return f.large }, direct)
		r.proxied = ratio(func(f modelFigures) float64 { return f.large }, proxied)
		r.memory = slices.MaxFunc(ours, func(a, b modelFigures) int { return int(a.memory - b.memory) }).memory
		return r
	})
	rows := []single{
		{"model gateway, median time of a piece of a stream, beside a bare proxy", "x", 1.25,
			func() float64 { return measured().piece }},
		{"model gateway, time of each of many events, beside a bare proxy", "x", 1.25,
			func() float64 { return measured().event }},
		{"model gateway, a small request, beside a bare proxy", "x", 1.15,
			func() float64 { return measured().request }},
		{"model gateway, a request of 5 MB, beside none", "x", noBound, func() float64 { return measured().large }},
		{"model gateway, a request of 5 MB, beside a bare proxy", "x", 1.3,
			func() float64 { return measured().proxied }},
		{"model gateway, memory that requests of 5 MB add", "MiB", 16, func() float64 { return measured().memory }},
		{"model gateway, bundle of 200 turns up to 5 MB, beside what differs in them", "x", 1.3,
			func() float64 { return b.modelTurns(self, 200, 5_000_000) }},
	}
	if agents := os.Getenv("ASSAY_TEST_AGENTS"); agents != "" { // else there is no such program
		rows = append(rows, single{"model gateway, wall time of Claude Code, beside a run without", "x", 1.05,
			func() float64 { return b.modelAgent(filepath.Join(agents, "claude")) }})
	}
	return rows
}

// modelAgent returns how much longer program, Claude Code, takes with the gateway.
func (b *bench) modelAgent(program string) float64 {
	provider := httptest.NewServer(http.HandlerFunc(modelSpeaker))
	defer provider.Close()
	home := filepath.Join(b.dir, "home")
	check(os.MkdirAll(home, 0o755))
	defer os.RemoveAll(home)
	once := func(flags ...string) float64 {
		cmd := b.run(append([]string{"--kernel", "off"}, flags...), program, "-p", "Say that you are done.")()
		cmd.Dir = b.dir
		cmd.Env = append(os.Environ(), "HOME="+home, "ANTHROPIC_API_KEY="+modelKey, "ANTHROPIC_BASE_URL="+provider.URL,
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
		began := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("done")) {
			check(fmt.Errorf("%v: Claude Code said %s", err, out))
		}
		b.clean()
		return time.Since(began).Seconds()
	}
	gateway := []string{"--model-gateway", "--model-upstream", "anthropic=" + provider.URL}
	once(gateway...) // to warm up
	var ratios []float64
	for range b.rounds(9) {
		ratios = append(ratios, once(gateway...)/once())
	}
	return median(ratios)
}

// modelSpeaker answers each request with one of Anthropic's streams, which says that it is done.
func modelSpeaker(w http.ResponseWriter, r *http.Request) {
	_, err := io.Copy(io.Discard, r.Body)
	check(err)
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []string{
		`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],` +
			`"usage":{"input_tokens":10,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"done"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`,
		`{"type":"message_stop"}`,
	} {
		kind, _, _ := strings.Cut(event[len(`{"type":"`):], `"`)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, event)
		_ = http.NewResponseController(w).Flush()
	}
}

// modelTurns returns the size of a bundle of the role modelTurns, divided by the number of bytes that differ.
func (b *bench) modelTurns(self string, turns, bytes int) float64 {
	provider := httptest.NewServer(http.HandlerFunc(modelProvider))
	defer provider.Close()
	check(os.Setenv("ANTHROPIC_API_KEY", modelKey))
	path := filepath.Join(b.dir, "turns.tar.gz")
	cmd := b.run([]string{"--kernel", "off", "--model-gateway", "--model-upstream", "anthropic=" + provider.URL,
		"-o", path}, self, "model-turns", strconv.Itoa(turns), strconv.Itoa(bytes))()
	cmd.Dir, cmd.Stderr = b.dir, os.Stderr
	out, err := cmd.Output()
	check(err)
	info, err := os.Stat(path)
	check(err)
	b.clean()
	return float64(info.Size()) / float64(number(strings.TrimSpace(string(out))))
}

// modelFigures runs a client.
func (b *bench) modelFigures(cmd *exec.Cmd) (f modelFigures) {
	cmd.Dir, cmd.Stderr = b.dir, os.Stderr
	out, err := cmd.Output()
	check(err)
	_, err = fmt.Sscan(string(out), &f.piece, &f.event, &f.request, &f.large, &f.memory)
	check(err)
	b.clean()
	return f
}
