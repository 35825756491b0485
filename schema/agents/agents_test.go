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
	home := map[string]string{"HOME": "/home/me", "TMPDIR": "/var/tmp"}
	alone := map[string]string{"HOME": "/h"}
	with := func(name, dir string) map[string]string { return map[string]string{"HOME": "/h", name: dir} }
	for name, c := range map[string]struct {
		agent, file, workdir string
		homes                map[string]string
		want                 bool
	}{
		"its home":                          {"codex", "/home/me/.codex/state.sqlite", "/w", home, true},
		"its home itself":                   {"codex", "/home/me/.codex", "/w", home, true},
		"another's home":                    {"codex", "/home/you/.codex/x", "/w", home, false},
		"a directory of that name":          {"codex", "/etc/.codex/x", "/w", home, false},
		"one in the project":                {"codex", "/w/.codex/config.toml", "/w", home, false},
		"one in the project, that is home":  {"codex", "/home/me/.codex/x", "/home/me", home, true},
		"one whose name is longer":          {"codex", "/home/me/.codexx", "/w", home, false},
		"another directory of its home":     {"codex", "/home/me/.ssh/config", "/w", home, false},
		"no home is known":                  {"codex", "/anywhere/.codex/x", "/w", nil, true},
		"the project, no home is known":     {"codex", "/w/.codex/x", "/w", nil, false},
		"there is no home":                  {"codex", "/.codex/x", "/w", map[string]string{}, false},
		"CODEX_HOME":                        {"codex", "/c/x", "/w", with("CODEX_HOME", "/c"), true},
		"the usual place beside CODEX_HOME": {"codex", "/h/.codex/x", "/w", with("CODEX_HOME", "/c"), false},
		"CLAUDE_CONFIG_DIR":                 {"claude-code", "/c/x", "/w", with("CLAUDE_CONFIG_DIR", "/c"), true},
		"a file beside it":                  {"claude-code", "/h/.claude.json", "/w", alone, true},
		"XDG_DATA_HOME":                     {"opencode", "/d/opencode/x", "/w", with("XDG_DATA_HOME", "/d"), true},
		"temporary files":                   {"claude-code", "/var/tmp/claude-1-cwd", "/w", home, true},
		"temporary files elsewhere":         {"claude-code", "/etc/cron.d/claude-1-cwd", "/w", home, false},
		"CLAUDE_CODE_TMPDIR": {
			"claude-code", "/c/cc-socks/1.sock", "/w", with("CLAUDE_CODE_TMPDIR", "/c"), true,
		},
		"beside temporary files": {
			"claude-code", "/c/x", "/w", with("CLAUDE_CODE_TMPDIR", "/c"), false,
		},
		"temporary files, without a variable": {"claude-code", "/tmp/claude-1-cwd", "/w", alone, true},
	} {
		p, _ := Of(c.agent)
		if got := p.Writes(c.file, Place{c.workdir, c.homes}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
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

func TestEachHomeIsLocated(t *testing.T) {
	for _, name := range Names() {
		p, _ := Of(name)
		for variable := range p.Homes {
			if !LocatesHome(variable) {
				t.Errorf("%s of %s is not known", variable, name)
			}
		}
	}
	for variable, want := range map[string]bool{
		"HOME": true, "TMPDIR": true, "PATH": false, "homes": false, "": false,
	} {
		if got := LocatesHome(variable); got != want {
			t.Errorf("%q: %v", variable, got)
		}
	}
}
