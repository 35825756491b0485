package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/evaluation"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
)

// recipeRuns are the command lines of TestAgentsByRecipe, as a user writes them, without what the recipe adds: the
// first run of each agent, and one that resumes it.
var recipeRuns = map[string]struct {
	route, key   string
	first, again []string
}{
	"claude-code": {"anthropic", "ANTHROPIC_API_KEY",
		[]string{"claude", "-p", "Follow the script.", "--model", "claude-sonnet-4-5"},
		[]string{"claude", "--continue", "-p", "Go on.", "--model", "claude-sonnet-4-5"}},
	"codex": {"openai", "OPENAI_API_KEY",
		[]string{"codex", "exec", "--skip-git-repo-check", "-m", "gpt-5", "Follow the script."},
		[]string{"codex", "exec", "--skip-git-repo-check", "-m", "gpt-5", "resume", "--last", "Go on."}},
	"gemini-cli": {"gemini", "GEMINI_API_KEY",
		[]string{"gemini", "-m", "gemini-2.5-flash", "-p", "Follow the script."},
		[]string{"gemini", "-m", "gemini-2.5-flash", "--resume", "latest", "-p", "Go on."}},
	"opencode": {"anthropic", "ANTHROPIC_API_KEY",
		[]string{"opencode", "run", "-m", "anthropic/claude-sonnet-4-5", "Follow the script."},
		[]string{"opencode", "run", "-m", "anthropic/claude-sonnet-4-5", "--continue", "Go on."}},
	"qwen-code": {"openai", "OPENAI_API_KEY",
		[]string{"qwen", "-m", "gpt-5", "-p", "Follow the script."},
		[]string{"qwen", "-m", "gpt-5", "--continue", "-p", "Go on."}},
	"pi": {"anthropic", "ANTHROPIC_API_KEY",
		[]string{"pi", "--provider", "anthropic", "--model", "claude-sonnet-4-5", "-p", "Follow the script."},
		[]string{"pi", "--provider", "anthropic", "--model", "claude-sonnet-4-5", "--continue", "-p", "Go on."}},
}

// fullHome is what is in the home before the first run as root: old settings, with a comment, of each agent, a link
// that leads nowhere, and a cache that is larger than what fits anywhere. A user's home is empty.
var fullHome = map[string]string{
	".claude/settings.json":          `{"env": {"OLD": "1"}, "hooks": {"Stop": []}}`,
	".claude.json":                   `{"numStartups": 3, "projects": {}}`,
	".codex/config.toml":             "model_reasoning_effort = \"low\"\n",
	".gemini/settings.json":          "{\n  // old\n  \"ui\": {\"theme\": \"GitHub\"},\n}\n",
	".qwen/settings.json":            `{"ui": {"theme": "GitHub"}}`,
	".config/opencode/opencode.json": "{\n  // old\n  \"theme\": \"system\"\n}\n",
	".pi/agent/models.json":          `{"providers": {}}`,
	".ssh/id_ed25519":                "a private key",
	".bashrc":                        "export OLD=1\n",
}

// fillHome makes fullHome.
func fillHome(t *testing.T, home string) {
	t.Helper()
	for name, text := range fullHome {
		at := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	large := filepath.Join(home, ".cache", "large")
	if err := errors.Join(os.Symlink("nowhere", filepath.Join(home, ".claude", "commands")),
		os.Mkdir(filepath.Dir(large), 0o700), os.WriteFile(large, nil, 0o600),
		os.Truncate(large, 5<<30)); err != nil {
		t.Fatal(err)
	}
}

// homeState is each path of a home, with its mode, size and time of change.
func homeState(t *testing.T, home string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all[path] = fmt.Sprint(info.Mode(), info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAgentsByRecipe runs the agent of each recipe with a scripted provider behind the model gateway, as root on a full
// home and as an ordinary user on an empty one, and then once more with the layer of the first run.
func TestAgentsByRecipe(t *testing.T) {
	if os.Getenv("ASSAY_TEST_AGENTS") == "" {
		t.Skip("ASSAY_TEST_AGENTS does not name the directory of the agents' programs")
	}
	if diff := cmp.Diff(agents.Names(), slices.Sorted(maps.Keys(recipeRuns))); diff != "" {
		t.Fatalf("recipes and tests (-recipes +tests):\n%s", diff)
	}
	const key = "sk-0123456789abcdef0123"
	bin := builtProgram(t)
	for name, agent := range recipeRuns {
		for _, uid := range []uint32{0, 12345} {
			t.Run(map[uint32]string{0: name + " as root", 12345: name + " as a user"}[uid], func(t *testing.T) {
				if os.Geteuid() != 0 {
					t.Skip("only root can become another user")
				}
				if uid == 0 && !observes() {
					t.Skip("no kernel layer can be recorded here; see assay-run doctor")
				}
				kernel := map[uint32]string{0: "require", 12345: "notify"}[uid]
				provider := toucher(t, false)
				root, err := os.MkdirTemp("/var/lib", "assay-run-agents-")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.RemoveAll(root) })
				dir, home, out, layer := filepath.Join(root, "work"), filepath.Join(root, "home"),
					filepath.Join(root, "out"), filepath.Join(root, "layer")
				for _, d := range []string{root, dir, home, out} {
					if err := errors.Join(os.MkdirAll(d, 0o755), os.Chmod(d, 0o755), os.Chown(d, int(uid),
						int(uid))); err != nil {
						t.Fatal(err)
					}
				}
				if uid == 0 {
					fillHome(t, home)
				}
				before := homeState(t, home)
				judgedBy := filepath.Join(out, "evaluation.yaml")
				if err := errors.Join(os.MkdirAll(filepath.Join(out, "tests"), 0o755), os.WriteFile(judgedBy,
					fmt.Appendf(nil, agentsEvaluation, out, dir, name), 0o644)); err != nil {
					t.Fatal(err)
				}
				once := func(bundle string, command []string) *archive.Reader {
					t.Helper()
					args := append([]string{"--kernel", kernel, "--agent", name, "--timeout", "3m",
						"--home-layer", layer, "--evaluation", judgedBy, "--model-upstream",
						agent.route + "=" + provider.URL, "--spool-dir",
						filepath.Join(out, "spool"), "--redaction-key", "ephemeral", "-o", bundle, "--"},
						command...)
					run := exec.Command(bin, args...)
					run.Dir = dir
					run.Env = []string{"HOME=" + home, "SHELL=/bin/bash", agent.key + "=" + key, "LANG=C.UTF-8",
						"PATH=" + os.Getenv("ASSAY_TEST_AGENTS") + ":" + os.Getenv("PATH")}
					run.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
					if out, err := run.CombinedOutput(); err != nil {
						t.Fatalf("%v\n%s", err, out)
					} else {
						t.Logf("%s", out)
					}
					r, err := archive.Open(bundle)
					if err != nil {
						t.Fatal(err)
					}
					return r
				}
				bundle := filepath.Join(out, "first.tar.gz")
				docs := documents(t, once(bundle, agent.first))
				made := filepath.Join(dir, "by-agent")
				if _, err := os.Stat(made); err != nil {
					t.Error(err)
				}
				// Without a cgroup, it is not certain which processes belong to a run.
				status := map[uint32]string{0: schema.Clean, 12345: schema.Partial}[uid]
				if c := docs.Correlation; c.Status != status || len(c.Ambiguities) > 0 || len(c.Bindings) != 1 ||
					!slices.Contains(c.Bindings[0].Written, made) || c.Bindings[0].Failed {
					t.Errorf("correlation: %+v", c)
				}
				if docs.Run.Applied.Agent == nil || docs.Run.Applied.Agent.Name != name {
					t.Errorf("applied: %+v", docs.Run.Applied)
				}
				if docs.Health.ModelPath != schema.ModelPathAlone && docs.Health.ModelPath != schema.ModelPathOnly {
					t.Errorf("the path to the model is %s", docs.Health.ModelPath)
				}
				for _, reason := range docs.Health.Reasons {
					if reason.Subject == "sdk" {
						t.Errorf("%s: %s", reason.Code, reason.Message)
					}
				}
				if diff := cmp.Diff(before, homeState(t, home)); diff != "" {
					t.Errorf("the real home (-before +after):\n%s", diff)
				}
				if h := docs.Policy.Home(); h == nil || h.State != schema.HomePrivate || h.Layer != layer ||
					len(h.Written) == 0 {
					t.Errorf("home: %+v", h)
				}
				if uid == 0 { // without a kernel layer of eBPF's, most is unknown
					accusesNobody(t, bundle, name)
				}
				holdsNot(t, bundle, key)
				holdsNot(t, bundle, fullHome[".ssh/id_ed25519"])
				asked := len(provider.bodies)
				once(filepath.Join(out, "again.tar.gz"), agent.again)
				if later := provider.bodies[asked:]; !slices.ContainsFunc(later, func(body string) bool {
					return strings.Contains(body, "Follow the script.") && strings.Contains(body, "Go on.")
				}) {
					t.Errorf("the second run does not continue the first: %q", later)
				}
			})
		}
	}
}

// agentsEvaluation judges an agent: of the directory for output, the workspace, and the agent's name.
const agentsEvaluation = `workspace: ["%[2]s"]
hidden: ["%[1]s/tests"]
protected: ["%[2]s/tests"]
reward: ["%[1]s/reward.txt"]
forbidden: {repositories: [github.com/psf/requests], packages: [requests]}
agent: %[3]s
`

// accusesNobody asserts that the bundle's evaluation file has neither findings nor doubts, but that Codex lets its
// provider search.
func accusesNobody(t *testing.T, bundle, agent string) {
	t.Helper()
	set, err := view.Open(t.Context(), []string{bundle}, view.Options{Follow: evaluation.Follow(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	b := set.Bundles[0]
	verdicts, err := evaluation.Judge(t.Context(), b, &b.Docs.Evaluation.Evaluation)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		searches := agent == "codex" && v.Rule == "fetches_solution" && v.State == evaluation.Unknown
		if v.State != evaluation.Pass && !searches {
			t.Errorf("%s is %s: %s", v.Rule, v.State, v.Message)
		}
	}
}

// TestAgentsInImages builds an image without a network, by the lines of each recipe, on one that has node, and starts
// the agent in it.
func TestAgentsInImages(t *testing.T) {
	programs := os.Getenv("ASSAY_TEST_AGENTS")
	if programs == "" {
		t.Skip("ASSAY_TEST_AGENTS does not name the directory of the agents' programs")
	}
	engine := enginetest.Docker(t)
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip(err)
	}
	files := map[string]string{"/bin/node": node, "/usr/bin/env": "/usr/bin/env"}
	for _, program := range []string{node, filepath.Join(programs, "claude"), filepath.Join(programs, "opencode")} {
		out, _ := exec.Command("ldd", program).Output() // a script has none
		for _, lib := range regexp.MustCompile(`/\S+\.so\S*`).FindAllString(string(out), -1) {
			files[lib] = lib
		}
	}
	engine.Import("with-node", files)
	context, err := os.MkdirTemp(filepath.Dir(filepath.Dir(filepath.Dir(programs))), "assay-run-context-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(context) })
	// As npm install --prefix agent leaves them. Links instead of copies of 1.6 GB.
	if out, err := exec.Command("cp", "-al", filepath.Dir(filepath.Dir(programs)),
		filepath.Join(context, "agent")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	images := map[string]string{} // by what they are built from
	for _, name := range agents.Names() {
		recipe, err := agents.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		file := "FROM with-node\nENV PATH=/bin\n" + strings.Join(recipe.Image, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(context, "Dockerfile"), []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
		if images[file] == "" { // a minute for 1.6 GB
			images[file] = name
			build := engine.Command("build", "--network=none", "-t", name, context)
			build.Env = append(build.Env, "DOCKER_BUILDKIT=0")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
		}
		start := engine.Command("run", "--rm", "--network=none", images[file], recipe.Command[0], "--version")
		out, err := start.CombinedOutput()
		if err != nil || !strings.Contains(string(out), recipe.Package.Tested) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// builtProgram is assay-run as a file that every user can execute.
func builtProgram(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "assay-run-program-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin := filepath.Join(dir, "assay-run")
	build := exec.Command("go", "build", "-ldflags", "-E=github.com/assay-run/assay-run/cgroup/steps.entry", "-o", bin,
		".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return bin
}

// holdsNot asserts that no file of a bundle contains a text.
func holdsNot(t *testing.T, bundle, text string) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xf", bundle, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			t.Errorf("%s contains %q", path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
