package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// session is what Claude Code does in a minute: it looks around in a repository, computes, builds and tests.
var session = []string{
	"git clone -q --no-local $REPOSITORY repository && ls repository | wc -l",
	"cd repository && git log --oneline | wc -l && git status --short | wc -l",
	"grep -rn 7 repository | wc -l",
	`python3 -c 'import hashlib
d = b""
for i in range(1500000): d = hashlib.sha256(d).digest()
print(d.hex())'`,
	"mkdir src && for i in $(seq 60); do echo \"int f$i(int n) { return n * $i; }\" > src/$i.c; done; ls src | wc -l",
	"for i in src/*.c; do cc -O2 -c -o ${i%.c}.o $i || exit 1; done; ls src/*.o | wc -l",
	"cd repository && for i in 1 2 3 4 5; do git grep -c 7 | wc -l; git diff --stat HEAD~1 | tail -1; done",
	"find . -type f | sort | xargs sha256sum | tail -1",
	"python3 -m compileall -q src; python3 -c 'print(sum(n * n for n in range(20000000)))'",
	"rm -rf repository/.git && tar -czf all.tar.gz repository && rm -rf repository && ls -l all.tar.gz",
}

// agentSession measures Claude Code with a scripted model that thinks for two seconds before each call, bare and with
// everything on: recipe, sandbox, private home, model gateway, hooks and kernel layer. It is left out without claude.
func (b *bench) agentSession() []benchCase {
	claude, err := exec.LookPath("claude")
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmark: no session of an agent: claude is not in PATH")
		return nil
	}
	provider := sync.OnceValue(func() string {
		at := filepath.Join(b.dir, "provider")
		server := exec.Command("python3", append([]string{".ci/session/provider.py", at, "2"}, session...)...)
		check(server.Start()) // it ends with the process group of the benchmark
		for {
			if port, err := os.ReadFile(at); err == nil {
				return "http://127.0.0.1:" + string(port)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	command := func() *exec.Cmd {
		fresh := filepath.Join(b.dir, "fresh")
		check(os.RemoveAll(fresh))
		home, work := filepath.Join(fresh, "home"), filepath.Join(fresh, "work")
		check(os.MkdirAll(filepath.Join(home, ".claude"), 0o755))
		check(os.MkdirAll(work, 0o755))
		check(os.WriteFile(filepath.Join(home, ".claude", "settings.json"),
			[]byte(`{"permissions": {"allow": ["Bash"]}}`), 0o644))
		cmd := exec.Command(claude, "-p", "Do your work.", "--model", "claude-sonnet-4-5")
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "HOME="+home, "ANTHROPIC_API_KEY=sk-scripted-model", "DISABLE_AUTOUPDATER=1",
			"BASH_DEFAULT_TIMEOUT_MS=600000", "REPOSITORY="+b.repository(), "SHELL=/bin/bash")
		return cmd
	}
	return []benchCase{{
		name: "a session of Claude Code", rounds: 5, maxRatio: 1.03, whole: true,
		bare: func() *exec.Cmd {
			cmd := command()
			cmd.Env = append(cmd.Env, "ANTHROPIC_BASE_URL="+provider())
			return cmd
		},
		ours: func() *exec.Cmd {
			cmd := command()
			flags := strings.Fields("-q --agent claude-code --model-upstream anthropic=" + provider() + " -o")
			cmd.Args = append(append(append([]string{b.bin}, flags...), filepath.Join(b.dir, "run.tar.gz"), "--"),
				cmd.Args...)
			cmd.Path = b.bin
			return cmd
		},
	}}
}
