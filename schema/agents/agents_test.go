package agents

import "testing"

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"/a/*", "/a", true}, {"/a/*", "/a/b/c", true}, {"/a/*", "/ab", false}, {"*/x", "/a/x", true},
		{"*/x", "/a/xy", false},
		{"*/.<hex>-<hex>.so", "/tmp/.5eff-01.so", true}, {"*/.<hex>-<hex>.so", "/tmp/.5effz-01.so", false},
		{"*/c-<digits>", "/tmp/c-", false}, {"*/c-<digits>", "/tmp/c-12", true},
	} {
		if got := match(c.pattern, c.s); got != c.want {
			t.Errorf("%s matches %s: %v", c.pattern, c.s, got)
		}
	}
}

func TestWhatIsAnAgentsOwn(t *testing.T) {
	p, ok := Of("codex")
	if !ok {
		t.Fatal("codex is not known")
	}
	for file, want := range map[string]bool{
		"/home/me/.codex/state.sqlite": true, "/root/.codex": true, "/w/.codex/config.toml": false,
		"/root/.ssh/config": false, "/root/.codexx": false,
	} {
		if got := p.Writes(file, "/w"); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
	if !p.Writes("/root/.codex/x", "/root") {
		t.Error("a home that is the working directory is none")
	}
	if !p.Is("/usr/bin/node", []string{"node", "/n/node_modules/.bin/codex", "exec"}) ||
		p.Is("/usr/bin/node", []string{"node", "-e", "x", "/n/codex"}) ||
		p.Is("/usr/bin/curl", []string{"curl", "/n/codex"}) {
		t.Error("what executes codex")
	}
	if p.Runs([]string{"git", "push"}) || !p.Runs([]string{"/bin/sh", "/usr/bin/lsb_release", "-a"}) ||
		!p.Contacts([]string{"api.openai.com"}) || p.Contacts([]string{"example.com"}) {
		t.Error("what codex runs and whom it contacts")
	}
}
