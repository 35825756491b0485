//go:build linux

package carrier

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// documented is the configuration of docs/suites.md, with a second worker, w2, that has the rights of the first.
func documented(t *testing.T) *server.Options {
	t.Helper()
	page, err := os.ReadFile("../../../docs/suites.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```conf\n")
	conf, _, _ := strings.Cut(rest, "```")
	user := regexp.MustCompile(`(?s)      \{ user: w1,.*?\n      \} \}\n`).FindString(conf)
	if user == "" {
		t.Fatal("the page has no configuration with a user w1")
	}
	conf = strings.Replace(conf, user, user+strings.NewReplacer("w1", "w2", "W1", "W2").Replace(user), 1)
	dir := t.TempDir()
	conf = strings.Replace(conf, "store_dir: nats", "store_dir: "+dir, 1)
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COORDINATOR_TOKEN", "coordinator-secret")
	t.Setenv("W1_TOKEN", "secret-of-worker-1")
	t.Setenv("W2_TOKEN", "secret-of-worker-2")
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// flushTime bounds how long the server is waited for, which a busy machine slows down.
const flushTime = 2 * time.Minute

// TestAWorkerReachesNoOthersResult has two workers with the rights of docs/suites.md. Each can do its work, but can
// neither read nor change the other's.
func TestAWorkerReachesNoOthersResult(t *testing.T) {
	options := documented(t)
	options.Host, options.Port, options.NoSigs, options.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	for _, u := range options.Users {
		if u.Username == "w1" {
			want := Rights("w1", "")
			if diff := cmp.Diff(want.Publish.Allow, u.Permissions.Publish.Allow); diff != "" {
				t.Errorf("the page gives other rights (-ours +page):\n%s", diff)
			}
			if diff := cmp.Diff(want.Subscribe.Allow, u.Permissions.Subscribe.Allow); diff != "" {
				t.Errorf("the page gives other rights (-ours +page):\n%s", diff)
			}
		}
	}
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(startTime) {
		t.Fatal("the server did not start")
	}
	dir := t.TempDir()
	denied := atomic.Int64{}
	connect := func(name, secret string) *nats.Conn {
		file := filepath.Join(dir, name+".token")
		if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		a := &Access{URL: s.ClientURL(), TokenFile: file, OnDenied: func(error) { denied.Add(1) }}
		nc, err := a.Connect(name, "instance")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	h, err := NewHub(t.Context(), connect("", "coordinator-secret"), "suite", Options{OnFile: true})
	if err != nil {
		t.Fatal(err)
	}
	if h.Replicas() != 1 {
		t.Errorf("one server keeps each message %d times", h.Replicas())
	}
	told := make(chan Message, 10)
	stop, err := h.Listen(Handlers{OnMessage: func(m Message) { told <- m }, OnLoss: func() {},
		OnQuestion: func(q Question) any { return q.From }})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c1, c2 := connect("w1", "secret-of-worker-1"), connect("w2", "secret-of-worker-2")
	bundle := bytes.Repeat([]byte("bundle"), 100_000)
	if err := h.SendWorkspace(t.Context(), "ws", bytes.NewReader(bundle)); err != nil {
		t.Fatal(err)
	}
	for i, nc := range []*nats.Conn{c1, c2} {
		l, err := NewClient(nc, []string{"w1", "w2"}[i], func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		var answer string
		if err := l.Ask(t.Context(), "who", &answer); err != nil || answer != l.worker {
			t.Errorf("%s: %q, %v", l.worker, answer, err)
		}
		l.Join("suite")
		if _, err := h.Publish(t.Context(), l.worker, work{i}); err != nil {
			t.Fatal(err)
		}
		var got work
		if err := l.Next(t.Context(), &got); err != nil || got.N != i {
			t.Errorf("%s takes %v, %v", l.worker, got, err)
		}
		if err := l.Store(t.Context(), l.worker, bytes.NewReader(bundle), int64(len(bundle))); err != nil {
			t.Fatal(err)
		}
		var ws bytes.Buffer
		if err := l.Workspace(t.Context(), "ws", &ws); err != nil || !bytes.Equal(ws.Bytes(), bundle) {
			t.Errorf("%s got %d bytes of a workspace, %v", l.worker, ws.Len(), err)
		}
		if err := l.Send(t.Context(), l.worker, work{i}); err != nil {
			t.Fatal(err)
		}
		if m := <-told; m.From != l.worker {
			t.Errorf("%s told as %s", l.worker, m.From)
		}
	}
	if denied.Load() > 0 {
		t.Errorf("the rights are too few: %d times", denied.Load())
	}

	// Now w1 tries to read and change what w2 did.
	js, err := jetstream.New(c1, jetstream.WithDefaultTimeout(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	n := namesOf("suite")
	store, err := js.ObjectStore(ctx, n.bundles)
	if err != nil {
		t.Fatal(err)
	}
	info, err := store.GetInfo(ctx, partName("w2", 0)) // a worker that knows a bundle's name can learn its size
	if err != nil {
		t.Fatal(err)
	}
	short := func(do func(ctx context.Context) error) error {
		ctx, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		defer stop()
		return do(ctx)
	}
	request := func(subject, data string) error {
		return short(func(ctx context.Context) error {
			_, err := c1.RequestWithContext(ctx, subject, []byte(data))
			return err
		})
	}
	subscribe := func(subject string) error {
		sub, err := c1.SubscribeSync(subject)
		if err == nil {
			_, err = sub.NextMsg(300 * time.Millisecond)
		}
		return err
	}
	cases := int64(0)
	chunks := "$O." + n.bundles + ".C." + info.NUID
	for what, do := range map[string]func() error{
		"read its bundle": func() error {
			return short(func(ctx context.Context) error {
				_, err := store.GetBytes(ctx, partName("w2", 0))
				return err
			})
		},
		"read its bundle's parts directly": func() error {
			return request("$JS.API.DIRECT.GET.OBJ_"+n.bundles+"."+chunks, "")
		},
		"read messages directly": func() error {
			return request("$JS.API.DIRECT.GET.OBJ_"+n.bundles, `{"seq":1}`)
		},
		"read the results": func() error {
			return request("$JS.API.STREAM.MSG.GET."+n.resultStream, `{"seq":1}`)
		},
		"take results": func() error {
			return request("$JS.API.CONSUMER.MSG.NEXT."+n.resultStream+"."+coordinator, `{"batch":1}`)
		},
		"make a consumer of results": func() error {
			return short(func(ctx context.Context) error {
				_, err := js.CreateConsumer(ctx, n.resultStream, jetstream.ConsumerConfig{})
				return err
			})
		},
		"make a consumer of bundles": func() error {
			return short(func(ctx context.Context) error {
				_, err := js.CreateConsumer(ctx, "OBJ_"+n.bundles, jetstream.ConsumerConfig{})
				return err
			})
		},
		"listen to results":                 func() error { return subscribe(n.results + ".*") },
		"listen to the other's answers":     func() error { return subscribe(inboxes("w2") + ".>") },
		"listen to everything":              func() error { return subscribe(">") },
		"answer in the coordinator's place": func() error { return subscribe(hello("*")) },
		"tell in the other's name": func() error {
			return request(n.results+".w2", `{"n":9}`)
		},
		"change a workspace":      func() error { return request(n.workspaces+".ws.0", "x") },
		"ask in the other's name": func() error { return request(hello("w2"), `1`) },
		"publish work":            func() error { return request(n.work, `{"n":9}`) },
		"remove the results":      func() error { return request("$JS.API.STREAM.PURGE."+n.resultStream, "") },
		"remove a stream":         func() error { return request("$JS.API.STREAM.DELETE."+n.workStream, "") },
		"make a stream": func() error {
			return request("$JS.API.STREAM.CREATE.X", `{"name":"X","subjects":["assay.>"]}`)
		},
	} {
		before := c1.LastError()
		if err := do(); err == nil {
			t.Errorf("w1 can %s of w2", what)
		}
		// The server denies on the same connection, before it answers this.
		if err := c1.FlushTimeout(flushTime); err != nil {
			t.Fatal(err)
		}
		if err := c1.LastError(); err == before || !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("to %s is not denied: %v", what, err)
		}
		cases++
	}
	for began := time.Now(); denied.Load() < cases && time.Since(began) < flushTime; {
		time.Sleep(5 * time.Millisecond)
	}
	if n := denied.Load(); n < cases {
		t.Errorf("%d of %d denials were reported", n, cases)
	}
	var got bytes.Buffer
	if err := h.Fetch(ctx, "w2", int64(len(bundle)), &got); err != nil || !bytes.Equal(got.Bytes(), bundle) {
		t.Errorf("w2's bundle is not what it stored: %v", err)
	}
	select {
	case m := <-told:
		t.Errorf("somebody told %s as %s", m.Data, m.From)
	default:
	}
	if err := h.Remove(ctx); err != nil {
		t.Error(err)
	}
}

// A server that listens only accepts clients with the token, and gives them the rights of a worker.
func TestAServerLetsInWorkers(t *testing.T) {
	dir := t.TempDir()
	for address, want := range map[string]string{"0.0.0.0:0": "that other machines reach",
		"127.0.0.1": "want HOST:PORT", "example.com:1": "that other machines reach",
		":0": "that other machines reach"} {
		if _, err := Serve(dir, ListenConfig{Address: address}); !errors.Is(err, ErrInput) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	s, err := Serve(filepath.Join(dir, "nats"), ListenConfig{Address: "127.0.0.1:0", Token: "the-right-token-of-all"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := NewHub(t.Context(), nc, "suite", Options{}); err != nil {
		t.Fatal(err)
	}
	token := func(text string, mode os.FileMode) string {
		file := filepath.Join(dir, "token")
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	url := "nats://" + s.Address()
	for name, a := range map[string]Access{
		"another token":     {URL: url, TokenFile: token("another-token-of-somebody", 0o600)},
		"no token":          {URL: url},
		"a password in URL": {URL: "nats://w:the-right-token-of-all@" + s.Address()},
	} {
		if nc, err := a.Connect("w", "instance"); err == nil {
			t.Errorf("%s is let in", name)
			nc.Close()
		}
	}
	a := Access{URL: url, TokenFile: token("the-right-token-of-all\n", 0o644)}
	if _, err := a.Connect("w", "instance"); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a token that others can read: %v", err)
	}
	token("the-right-token-of-all\n", 0o600)
	if nc, err := a.Connect("", ""); err == nil {
		t.Error("the token makes a coordinator")
		nc.Close()
	}
	denied := make(chan error, 10)
	a.OnDenied = func(err error) { denied <- err }
	w, err := a.Connect("w", "instance")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, subject := range []string{"assay.inbox.w.>", "assay.inbox.w.other.>", "assay.>", ">"} {
		if _, err := w.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if err := <-denied; !strings.Contains(err.Error(), subject) {
			t.Errorf("%s: %v", subject, err)
		}
	}
}
