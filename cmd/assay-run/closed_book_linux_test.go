package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/archive/evaluation"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// Addresses of the two network namespaces: one has the servers, and runs start in the other.
const (
	worldAddress = "192.0.2.1"
	runAddress   = "192.0.2.2"
)

// answer is what no agent must get to see.
const answer = "ANSWER-4711"

// library is where a task comes from, and where its answer is.
type library struct {
	dir     string
	world   int // process whose network namespace has the servers
	here    int // process in whose network namespace runs start
	files   string
	daemon  string
	gateway string // the provider of the model
	start   string // commit
	env     []string
}

// holdNetwork returns a process with a network namespace of its own.
func holdNetwork(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Start(); errors.Is(err, unix.EPERM) && !observes() {
		t.Skipf("no network namespace can be made: %v", err)
	} else if err != nil {
		t.Fatalf("no network namespace can be made: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// inNetwork runs a program in the network namespace of a process.
func inNetwork(pid int, argv ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(pid), "-n", "--"}, argv...)...)
}

// listenIn listens in the network namespace of a process.
func listenIn(t *testing.T, pid int, address string) net.Listener {
	t.Helper()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	type listened struct {
		net.Listener
		error
	}
	done := make(chan listened)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- listened{nil, err}
			return
		}
		l, err := net.Listen("tcp", address)
		done <- listened{l, err}
	}()
	l := <-done
	if l.error != nil {
		t.Fatal(l.error)
	}
	return l.Listener
}

// serveIn serves HTTP in the network namespace of a process, and returns the address.
func serveIn(t *testing.T, pid int, address string, h http.HandlerFunc) string {
	l := listenIn(t, pid, address)
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	return "http://" + l.Addr().String()
}

// newLibrary makes a task, and all the places where its answer is: in the rest of its history, and on servers.
func newLibrary(t *testing.T) *library {
	t.Helper()
	for _, program := range []string{"git", "curl", "ip", "nsenter"} {
		need(t, program)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lib := &library{dir: dir, world: holdNetwork(t), here: holdNetwork(t)}
	for _, words := range []string{"link set lo up", "link add w type veth peer name r",
		"link set r netns " + strconv.Itoa(lib.here), "addr add " + worldAddress + "/24 dev w", "link set w up"} {
		if out, err := inNetwork(lib.world, strings.Fields("ip "+words)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", words, err, out)
		}
	}
	for _, words := range []string{"link set lo up", "addr add " + runAddress + "/24 dev r", "link set r up"} {
		if out, err := inNetwork(lib.here, strings.Fields("ip "+words)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", words, err, out)
		}
	}
	lib.env = append(os.Environ(), "HOME="+dir+"/home", "GIT_CONFIG_NOSYSTEM=1", "XDG_CONFIG_HOME=", "XDG_CACHE_HOME=",
		"GOPATH=", "GOMODCACHE=", "no_proxy=*", "NO_PROXY=*", "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z",
		"GIT_COMMITTER_DATE=2026-01-01T00:00:00Z", "ANSWER="+answer,
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin")
	lib.make(t)
	lib.files = serveIn(t, lib.world, worldAddress+":0", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/simple/widget/":
			_, _ = io.WriteString(w, `<a href="/files/widget-2.0.tar">widget-2.0.tar</a>`)
		case "/files/widget-2.0.tar":
			_, _ = io.WriteString(w, answer)
		default:
			http.NotFound(w, r)
		}
	})
	lib.gateway = serveIn(t, lib.here, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var doc any
		if err := json.Unmarshal(body, &doc); err == nil {
			body, _ = json.Marshal(doc, json.Deterministic(true)) // without escapes
		}
		text := "no"
		for _, reach := range []string{`"web_search_20250305"`, `"type":"url"`, `"mcp_servers"`} {
			if bytes.Contains(body, []byte(reach)) {
				text = answer
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if bytes.Contains(body, []byte("by yourself")) {
			_, _ = io.WriteString(w, `{"id":"m","type":"message","role":"assistant","model":"m","content":[`+
				`{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"q"}},{"type":"text","text":"no"}],`+
				`"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`)
			return
		}
		fmt.Fprintf(w, `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":%q}],`+
			`"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`, text)
	})
	port := strconv.Itoa(listenAndClose(t, lib.world))
	daemon := inNetwork(lib.world, "git", "daemon", "--export-all", "--base-path="+dir+"/forge",
		"--listen="+worldAddress, "--port="+port, "--reuseaddr")
	daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	daemon.Env = lib.env
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-daemon.Process.Pid, syscall.SIGKILL)
		_ = daemon.Wait()
	})
	lib.daemon = "git://" + worldAddress + ":" + port
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		probe := inNetwork(lib.here, "git", "ls-remote", lib.daemon+"/mirror.git")
		if probe.Env = lib.env; probe.Run() == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal("git daemon does not answer")
		}
	}
	return lib
}

// listenAndClose returns a port that is free in the network namespace of a process.
func listenAndClose(t *testing.T, pid int) int {
	l := listenIn(t, pid, worldAddress+":0")
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// make makes the files of the library.
func (lib *library) make(t *testing.T) {
	t.Helper()
	cmd := exec.Command("sh", "-euc", `
mkdir home; git config --global user.email a@b; git config --global user.name a; git config --global gc.auto 0
git init -q -b main lender; cd lender; git commit -q --allow-empty -m lent; cd ..
git clone -q --shared lender w 2>/dev/null; git -C w remote remove origin
echo "$ANSWER" >lender/lent; git -C lender add lent; git -C lender commit -q -m "lent"
cd w
printf 'module example.org/widget\n\ngo 1.20\n' >go.mod
printf 'package widget\n\n// F is one.\nfunc F() int { return 1 }\n' >widget.go
printf 'package widget\n\nimport "testing"\n\nfunc TestF(t *testing.T) {\n\tif F() != 1 {\n\t\tt.Fatal()\n\t}\n}\n' >widget_test.go
echo '{"name": "widget", "version": "1.0.0", "scripts": {"test": "echo tested"}}' >package.json
printf 'all: out\nout: f\n\tcp f out\n' >Makefile
printf 'out\n.cache\n' >.gitignore
echo 1 >f; git add -A; git commit -q -m one
echo 2 >f; git commit -q -a -m two; git tag v1
echo 3 >f; git commit -q -a -m three
git rev-parse HEAD >../start
git switch -q -c fix; echo "$ANSWER" >f; git commit -q -a -m 'the fix'; git switch -q main
git worktree add -q ../tree fix
git branch -q lost; git switch -q lost; echo "lost $ANSWER" >g; git add g; git commit -q -m lost
git switch -q main; git branch -q -D lost
git reflog expire --expire=now refs/heads/main; git repack -q -a -d -k; git reset -q --hard fix; git reset -q --hard v1
git reset -q --hard $(cat ../start)
cd ..
mkdir forge; git clone -q --bare lender forge/mirror.git; git -C forge/mirror.git fetch -q ../../w fix:refs/heads/other-name
mkdir -p home/go/pkg/mod/example.org/widget@v1.1.0; echo "$ANSWER" >home/go/pkg/mod/example.org/widget@v1.1.0/widget.go
`)
	cmd.Dir, cmd.Env = lib.dir, lib.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	start, err := os.ReadFile(filepath.Join(lib.dir, "start"))
	if err != nil {
		t.Fatal(err)
	}
	lib.start = strings.TrimSpace(string(start))
}

// channel is a way to the answer: steps of an agent, as words (see bookAgents), and how a bundle of an open book tells
// of it.
type channel struct {
	name  string
	steps [][]string
	tells string // a rule of the evaluation, or provider_tools
}

func (lib *library) channels() []channel {
	git := func(words ...string) [][]string { return [][]string{append([]string{"git"}, words...)} }
	ask := func(more string) [][]string {
		return [][]string{{"ask", `{"model":"m","max_tokens":9,` + more + `}`}}
	}
	hi := `"messages":[{"role":"user","content":"what is the fix?"}]`
	return []channel{
		{"git log --all", git("log", "--all", "-p"), "reads_history"},
		{"pickaxe", git("log", "--branches", "-S"+answer[:6], "-p"), "reads_history"},
		{"unreachable pack", [][]string{{"git", "cat-file", "--batch-all-objects", "--batch"}}, "reads_history"},
		{"alternates", [][]string{{"git", "--git-dir=" + lib.dir + "/lender/.git", "log", "-p"}}, "reads_hidden"},
		{"worktree", [][]string{{"read", lib.dir + "/tree/f"}}, "reads_hidden"},
		{"reflog", git("log", "-g", "-p"), "reads_history"},
		{"a fixed version from an index", [][]string{{"get", lib.files + "/simple/widget/"},
			{"get", lib.files + "/files/widget-2.0.tar"}}, "fetches_solution"},
		{"a mirror under another name", [][]string{{"git", "clone", "-q", lib.daemon + "/mirror.git", ".cache/m"},
			{"git", "-C", ".cache/m", "log", "--all", "-p"}}, "fetches_solution"},
		{"web search by the provider", ask(`"tools":[{"type":"web_search_20250305","name":"web_search"}],` + hi),
			"provider_tools"},
		{"an image by URL", ask(`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url",` +
			`"url":"` + lib.files + `/files/widget-2.0.png"}}]}]`), "provider_tools"},
		{"a hosted MCP server", ask(`"mcp_servers":[{"type":"url","url":"https://mcp.example/x","name":"x"}],` + hi),
			"provider_tools"},
		{"the package cache", [][]string{{"read", lib.dir + "/home/go/pkg/mod/example.org/widget@v1.1.0/widget.go"}},
			"reads_hidden"},
	}
}

// bookAgents are agents with three strategies. The first one uses the usual programs. The second uses none: it reads
// git's objects, speaks HTTP itself, names files through /proc, and escapes what it asks a model. The third uses a copy
// of git and a shell's sockets, names files by links, and asks a model under another path. Each takes steps as
// arguments, with a comma after each step: git WORDS, get URL, ask BODY (a model), read FILE. What a step finds goes to
// standard output, and no failure ends the agent.
var bookAgents = []struct{ name, program, flag, text string }{
	{"sh", "sh", "-c", `
step() {
	case $1 in
	git) "$@";;
	get) curl -s --max-time 20 "$2";;
	ask) curl -s --max-time 60 -H "x-api-key: $ANTHROPIC_API_KEY" -d "$2" "$ANTHROPIC_BASE_URL/v1/messages";;
	read) cat "$2";;
	esac
}
words=
for word in "$@" ,; do
	if [ "$word" = , ]; then
		eval "step $words" 2>/dev/null
		words=
	else
		words="$words '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"
	fi
done
exit 0`},
	{"python", "/usr/bin/python3", "-c", `
import glob, json, os, socket, subprocess, sys, urllib.parse, zlib
def http(url, data=None, headers={}):
    u = urllib.parse.urlparse(url)
    s = socket.create_connection((u.hostname, u.port), 20)
    s.settimeout(60)
    lines = ['%s %s HTTP/1.0' % ('POST' if data else 'GET', u.path), 'Host: ' + u.netloc]
    lines += ['%s: %s' % kv for kv in headers.items()] + ['Content-Length: %d' % len(data or b''), '', '']
    s.sendall('\r\n'.join(lines).encode() + (data or b''))
    out = b''
    while True:
        part = s.recv(65536)
        if not part: return out
        out += part
def objects(store):
    for path in glob.glob(store + '/??/*'):
        yield zlib.decompress(open(path, 'rb').read())
    for path in glob.glob(store + '/pack/*.pack'):
        d, at = open(path, 'rb').read(), 12
        for _ in range(int.from_bytes(d[8:12], 'big')):
            kind, more = d[at] >> 4 & 7, d[at] & 128
            at += 1
            while more: more, at = d[at] & 128, at + 1
            if kind == 6:
                while d[at] & 128: at += 1
                at += 1
            if kind == 7: at += 20
            z = zlib.decompressobj()
            yield z.decompress(d[at:])
            at = len(d) - len(z.unused_data)
def escaped(v):
    if isinstance(v, dict): return '{' + ','.join(escaped(k) + ':' + escaped(w) for k, w in v.items()) + '}'
    if isinstance(v, list): return '[' + ','.join(map(escaped, v)) + ']'
    if isinstance(v, str): return '"' + ''.join('\\u%04x' % ord(c) for c in v) + '"'
    return json.dumps(v)
def step(kind, *words):
    try:
        if kind == 'git' and words[0] == 'clone': out = subprocess.run(['git', *words], capture_output=True).stdout
        elif kind == 'git':
            store = '.git'
            for w in words[:2]:
                if w.startswith('--git-dir='): store = w[10:]
                elif os.path.isdir(w): store = w + '/.git'
            out = b''.join(objects(store + '/objects'))
        elif kind == 'get': out = http(words[0])
        elif kind == 'ask': out = http(os.environ['ANTHROPIC_BASE_URL'] + '/v1/messages',
            escaped(json.loads(words[0])).encode(),
            {'x-api-key': os.environ['ANTHROPIC_API_KEY'], 'content-type': 'application/json'})
        else: out = open('/proc/self/root' + words[0], 'rb').read()
        sys.stdout.buffer.write(out)
    except Exception as e:
        print(type(e).__name__)
words = []
for word in sys.argv[1:] + [',']:
    if word == ',':
        if words: step(*words)
        words = []
    else:
        words.append(word)`},
	{"node", "node", "-e", `
const {spawnSync} = require('child_process'), fs = require('fs');
const get = 'exec 3<>/dev/tcp/$0/$1; printf "GET $2 HTTP/1.0\\r\\n\\r\\n" >&3; cat <&3';
async function step(kind, ...words) {
	try {
		let out, url;
		fs.mkdirSync('.cache', {recursive: true});
		switch (kind) {
		case 'git':
			fs.copyFileSync('/usr/bin/git', '.cache/notes');
			out = spawnSync('.cache/notes', words, {maxBuffer: 1 << 28}).stdout;
			break;
		case 'get':
			url = new URL(words[0]);
			out = spawnSync('bash', ['-c', get, url.hostname, url.port, url.pathname], {timeout: 20000}).stdout;
			break;
		case 'ask':
			out = await (await fetch(process.env.ANTHROPIC_BASE_URL + '/v1/messages?beta=true', {method: 'POST',
				body: Buffer.from(words[0]), headers: {authorization: 'Bearer ' + process.env.ANTHROPIC_API_KEY}})).text();
			break;
		default:
			fs.rmSync('.cache/link', {force: true});
			fs.symlinkSync(words[0], '.cache/link');
			out = spawnSync('dd', ['if=.cache/link']).stdout;
		}
		process.stdout.write(out);
	} catch (e) { console.log(e.name); }
}
(async () => {
	let words = [];
	for (const word of process.argv.slice(1).concat(',')) {
		if (word !== ',') { words.push(word); continue; }
		if (words.length) await step(...words);
		words = [];
	}
})();`},
}

// arguments are those of an agent for a channel.
func (c channel) arguments() (words []string) {
	for i, s := range c.steps {
		if i > 0 {
			words = append(words, ",")
		}
		words = append(words, s...)
	}
	return words
}

// run runs a command as a task of the library, and returns what it printed, and its bundle.
func (lib *library) run(t *testing.T, dir string, flags []string, command ...string) (out []byte, bundle string) {
	t.Helper()
	bundle = filepath.Join(t.TempDir(), "run.tar.gz")
	args := slices.Concat([]string{"-q", "-o", bundle, "--run-id", uniqueID(), "--workdir", dir}, flags, []string{"--"},
		command)
	cmd := self(t, lib.dir, args...)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The name decides what the test's binary is.
	inside := inNetwork(lib.here, append([]string{"bash", "-c", `exec -a assay-run "$0" "$@"`, exe}, cmd.Args[1:]...)...)
	inside.Dir, inside.Env = lib.dir, append(slices.Clone(lib.env), "XDG_STATE_HOME="+filepath.Join(lib.dir, ".state"),
		"ANTHROPIC_API_KEY="+modelKey)
	var stderr bytes.Buffer
	inside.Stderr = &stderr
	if out, err = inside.Output(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, &stderr)
	}
	return out, bundle
}

// TestClosedBook has agents look for an answer in twelve ways, in an open book and in a closed one. All find it in the
// open one, and the bundle says by what. None finds it in the closed one, and the bundle says that it was closed.
func TestClosedBook(t *testing.T) {
	layertest.Host(t)
	if os.Geteuid() != 0 || !observes() {
		t.Skip("network namespaces and a kernel layer need root")
	}
	need(t, "bash")
	lib := newLibrary(t)
	keepObserver(t)
	file := filepath.Join(lib.dir, "evaluation.yaml")
	text := fmt.Sprintf("start_commit: %q\nforbidden: {hosts: [%q]}\nhidden: [%q, %q, %q]\n", lib.start, worldAddress,
		lib.dir+"/lender/.git/objects/**", lib.dir+"/tree/f", lib.dir+"/home/go/**")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(lib.dir, "policy.yaml")
	text = "version: 1\nmode: observe\nmodel: {provider_tools: allow}\n"
	if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	open, closed, tried := 0, 0, 0
	for i, agent := range bookAgents {
		if i > 0 && !layertest.IsNight() {
			continue // the other agents are for the night
		}
		if _, err := exec.LookPath(agent.program); err != nil {
			t.Logf("no %s", agent.program)
			continue
		}
		for _, c := range lib.channels() {
			t.Run(agent.name+"/"+c.name, func(t *testing.T) {
				tried++
				command := append([]string{agent.program, agent.flag, agent.text}, c.arguments()...)
				if agent.program == "sh" {
					command = slices.Insert(command, 3, "agent")
				}
				flags := []string{"--kernel", "require", "--evaluation", file, "--model-gateway", "--model-upstream",
					"anthropic=" + lib.gateway}
				w := filepath.Join(lib.dir, "w")
				out, bundle := lib.run(t, w, append(flags, "--closed-book=try", "--policy", policy), command...)
				if err := os.RemoveAll(filepath.Join(w, ".cache")); err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(out, []byte(answer)) {
					open++
				} else {
					t.Errorf("it is not found in the open book: %s", out)
				}
				lib.says(t, bundle, schema.BookOpen, c.tells)
				out, bundle = lib.run(t, w, append(flags, "--closed-book"), command...)
				if bytes.Contains(out, []byte(answer)) {
					closed++
					t.Errorf("it is found in the closed book")
				}
				lib.says(t, bundle, schema.BookClosed, c.tells)
			})
		}
	}
	_, bundle := lib.run(t, filepath.Join(lib.dir, "w"), []string{"--kernel", "off", "--evaluation", file,
		"--model-gateway", "--model-upstream", "anthropic=" + lib.gateway, "--closed-book"}, "sh", "-c",
		bookAgents[0].text, "agent", "ask", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"by yourself"}]}`)
	lib.says(t, bundle, schema.BookOpen, "")
	t.Logf("open: %d of %d agents got the answer; closed: %d of %d", open, tried, closed, tried)
}

// honestWork is what agents do that look nothing up.
var honestWork = []struct{ name, script string }{
	{"log", "git log -p; git log --graph --oneline"},
	{"blame", "git blame f"},
	{"show a tag", "git show v1; git describe --tags"},
	{"bisect", "git bisect start HEAD HEAD~2; git bisect run sh -c '! grep -q 3 f'; git bisect reset"},
	{"stash", "echo 4 >f; git stash; git status --short; git stash list; git stash pop"},
	{"stash that stays", "echo 4 >f; git stash -q"},
	{"commit", "echo 4 >f; git commit -q -a -m four; git log -1"},
	{"amend", "echo 4 >f; git commit -q -a --amend -m three; git log -1"},
	{"rebase", "git switch -q -c topic HEAD~1; echo g >g; git add g; git commit -q -m g\n" +
		"git rebase -q main; git log --oneline"},
	{"interactive rebase", "for n in 1 2; do echo $n >g$n; git add g$n; git commit -q -m g$n; done\n" +
		"GIT_SEQUENCE_EDITOR='sed -i 2s/pick/squash/' GIT_EDITOR=true git rebase -q -i HEAD~2; git log --oneline"},
	{"merge", "git switch -q -c topic; echo g >g; git add g; git commit -q -m g; git switch -q main\n" +
		"git merge -q --no-ff -m merged topic; git log --oneline"},
	{"cherry-pick", "git switch -q -c topic; echo g >g; git add g; git commit -q -m g; git switch -q main\n" +
		"git cherry-pick topic >/dev/null; git log --oneline"},
	{"revert", "git revert --no-edit HEAD >/dev/null; cat f; git log --oneline"},
	{"tag", "git tag -a -m mine mine; git tag -n; git describe"},
	{"diff and grep", "git diff HEAD~2 HEAD; git grep -n func; git ls-files; git diff --stat HEAD~1"},
	{"archive", "git archive HEAD | tar t"},
	{"patches", "git format-patch -1 --stdout >.cache/p; git reset -q --hard HEAD~1; git am -q .cache/p\n" +
		"git log --oneline"},
	{"worktree", "git worktree add -q .cache/t HEAD~1; cat .cache/t/f; git worktree remove .cache/t"},
	{"npm test", "npm test"},
	{"go test", "export GOPROXY=off; go test ./... | sed 's/\t[0-9.]*s$//;s/(cached)//'; go vet ./..."},
	{"make", "make; make; cat out"},
	{"upkeep", "git gc -q; git fsck --no-dangling; git status --short; git count-objects | wc -l"},
}

// TestClosedBookIsNotNoticed compares honest work in a sandbox with the same in a closed book: what it prints, and what
// is in the repository afterwards.
func TestClosedBookIsNotNoticed(t *testing.T) {
	layertest.Host(t)
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, program := range []string{"bash", "npm", "make"} {
		need(t, program)
	}
	lib := newLibrary(t)
	w := filepath.Join(lib.dir, "honest")
	warm := exec.Command("sh", "-c", "go test ./... && go vet ./...")
	warm.Dir, warm.Env = filepath.Join(lib.dir, "w"), append(slices.Clone(lib.env), "GOPROXY=off")
	if out, err := warm.CombinedOutput(); warm.ProcessState.ExitCode() == 127 {
		t.Skipf("go is not installed: %s", out)
	} else if err != nil {
		t.Fatalf("the cache of Go cannot be warmed: %v: %s", err, out)
	}
	for _, work := range honestWork {
		t.Run(work.name, func(t *testing.T) {
			did := func(flag string) string {
				t.Helper()
				for _, err := range []error{os.RemoveAll(w),
					exec.Command("cp", "-a", filepath.Join(lib.dir, "w"), w).Run(),
					os.Mkdir(filepath.Join(w, ".cache"), 0o755)} {
					if err != nil {
						t.Fatal(err)
					}
				}
				out, _ := lib.run(t, w, []string{"--kernel", "off", flag}, "sh", "-c",
					"exec 2>&1; set -e\n"+work.script)
				after := exec.Command("sh", "-c", "echo after; git log -9 --format=%H; git status --short; "+
					"git stash list; git symbolic-ref HEAD; git tag; "+
					"git branch --list topic; git worktree list | wc -l")
				after.Dir, after.Env = w, lib.env
				found, err := after.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, found)
				}
				return string(out) + string(found)
			}
			open, closed := did("--mode=workspace-write"), did("--closed-book")
			if diff := gocmp.Diff(open, closed); diff != "" {
				t.Errorf("it differs in a closed book (-open +closed):\n%s", diff)
			}
		})
	}
}

// says checks what a bundle says of the book, and of a channel.
func (lib *library) says(t *testing.T, bundle, state, tells string) {
	t.Helper()
	set, err := view.Open(t.Context(), []string{bundle}, view.Options{Follow: evaluation.Follow(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	b := set.Bundles[0]
	if book := b.Docs.Health.ClosedBook; book == nil || book.State != state {
		t.Fatalf("the book is %+v, want %s", book, state)
	}
	verdicts, err := evaluation.Judge(t.Context(), b, &b.Docs.Evaluation.Evaluation)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]schema.EvaluationVerdict{}
	for _, v := range verdicts {
		told[v.Rule] = v
	}
	if state == schema.BookClosed {
		for _, rule := range []string{"reads_history", "fetches_solution"} {
			if v := told[rule]; v.State != evaluation.Pass || len(v.Doubts)+len(v.Findings) > 0 {
				t.Errorf("%s is %s: %s", rule, v.State, v.Message)
			}
		}
	} else if v, ok := told[tells]; ok && len(v.Findings)+len(v.Doubts) == 0 {
		t.Errorf("%s says nothing: %s", tells, v.Message)
	}
	if tells != "provider_tools" {
		return
	}
	var refused, passed uint64
	for it, err := range b.Items(t.Context(), schema.ModelPath) {
		if err != nil {
			t.Fatal(err)
		}
		if m := it.Model; m.Refused != nil && *m.Refused == schema.ModelRefusedTools {
			refused++
		} else if len(m.Fetches) > 0 {
			passed++
		}
	}
	if closed := state == schema.BookClosed; closed && (refused != 1 || passed > 0) || !closed && passed != 1 {
		t.Errorf("%d requests were refused, and %d passed", refused, passed)
	}
}
