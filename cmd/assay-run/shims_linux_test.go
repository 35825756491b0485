package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// TestShimExamples runs the examples of testdata/shims as a reader of its
// README would, with the real packages and scripted models.
func TestShimExamples(t *testing.T) {
	layertest.Host(t)
	shims := copyShims(t)
	node, python := filepath.Join(shims, "node"), filepath.Join(shims, "python")
	gemini := []string{"python3", filepath.Join(python, "gemini.py")}
	var installed bool
	npm := func(t *testing.T) {
		need(t, "node")
		installed = installed || npmInstall(t, node)
	}
	for _, c := range []struct {
		name, shim string
		command    func(t *testing.T) []string
		id         string
	}{
		{"OpenAI Agents SDK", "openai-agents", func(t *testing.T) []string {
			npm(t)
			return []string{"node", filepath.Join(node, "openai-agents.mjs")}
		}, "tc_runner_00[12]"},
		{"google-genai for Node", "gemini-google-genai", func(t *testing.T) []string {
			need(t, "python3")
			npm(t)
			return append(gemini, "node", filepath.Join(node, "google-genai.mjs"))
		}, "fc_[12]"},
		{"google-genai for Python", "gemini-google-genai", func(t *testing.T) []string {
			return append(gemini, pipInstall(t, python), filepath.Join(python, "google_genai.py"))
		}, "read_file-[0-9a-f]{32}"},
		{"Python functions as google-genai calls them", "gemini-google-genai", func(t *testing.T) []string {
			need(t, "python3")
			return []string{"python3", "-c", automatic, python}
		}, "read_(file|later)-[0-9a-f]{32}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			command := c.command(t)
			dir := t.TempDir()
			files := []string{filepath.Join(dir, "one.txt"), filepath.Join(dir, "two.txt")}
			for _, f := range files {
				if err := os.WriteFile(f, []byte(f), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
			r := runBundle(t, dir, append(append([]string{"--agent-shim", c.shim, "--sdk-event-log", "sdk.ndjson",
				"--"}, command...), files...)...)
			docs, err := r.Documents(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			wantSDK(t, docs, 5, 2)
			bindings := docs.Correlation.Bindings
			if len(bindings) != 2 || len(docs.Correlation.Ambiguities) != 0 {
				t.Fatalf("bindings %+v, ambiguities %v", bindings, docs.Correlation.Ambiguities)
			}
			id := regexp.MustCompile("^" + c.id + "$")
			var commands []string
			for _, b := range bindings {
				if !id.MatchString(b.ToolCallID) || !strings.HasPrefix(b.Tool, "read_") {
					t.Errorf("a call is %s of %s", b.ToolCallID, b.Tool)
				}
				if observes() && (b.Method != "env" ||
					"cat -- "+strings.Join(b.Files, " ") != strings.Join(b.Commands, " ")) {
					t.Errorf("%s: by %s, files %v, commands %v; want one file by env", b.ToolCallID, b.Method, b.Files,
						b.Commands)
				}
				commands = append(commands, b.Commands...)
			}
			if slices.Sort(commands); observes() &&
				!slices.Equal(commands, []string{"cat -- " + files[0], "cat -- " + files[1]}) {
				t.Errorf("the calls' commands are %v", commands)
			}
		})
	}
}

// automatic calls functions as google-genai's automatic function calling does:
// by their names and signatures, coroutine functions in the event loop and
// others in threads. Two are open at a time.
const automatic = `
import asyncio, inspect, subprocess, sys, time

sys.path.insert(0, sys.argv[1])
from assay_shim import AssayShim

shim = AssayShim("test", "test")

@shim.tool
def read_file(path: str) -> str:
    """Reads a file."""
    time.sleep(0.2)
    return subprocess.run(["cat", "--", path], env=shim.env(), check=True, capture_output=True, text=True).stdout

@shim.tool
async def read_later(path: str) -> str:
    await asyncio.sleep(0.2)
    cat = await asyncio.create_subprocess_exec("cat", "--", path, env=shim.env(), stdout=subprocess.PIPE)
    return (await cat.communicate())[0].decode()

assert inspect.signature(read_file).parameters["path"].annotation is str and read_file.__doc__ == "Reads a file."
assert inspect.iscoroutinefunction(read_later) and not inspect.iscoroutinefunction(read_file)

async def main(one, two):
    assert await asyncio.gather(asyncio.to_thread(read_file, path=one), read_later(path=two)) == [one, two]

asyncio.run(main(*sys.argv[2:]))
shim.finished()
`

// copyShims copies testdata/shims, so that what is installed there goes away.
func copyShims(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shims")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "testdata", "shims"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// wantSDK checks the layer of what an SDK reported, and that its calls ended.
func wantSDK(t *testing.T, docs *archive.Documents, events, calls int) {
	t.Helper()
	want := fmt.Sprintf("s5_sdk_capture: sdk_events=%d sdk_tool_calls=%d", events, calls)
	if docs.Health.SDKLayer != schema.SelfReported || !strings.Contains(strings.Join(docs.Health.Notes, "\n"), want) {
		t.Errorf("sdk layer %s, notes %v, reasons %v; want %s", docs.Health.SDKLayer, docs.Health.Notes,
			docs.Health.Reasons, want)
	}
	for _, b := range docs.Correlation.Bindings {
		if b.TStartNS == nil || b.TEndNS == nil {
			t.Errorf("%s was not seen to start and to end", b.ToolCallID)
		}
	}
}

// npmInstall installs the packages that a lock file names beside it.
func npmInstall(t *testing.T, dir string) bool {
	t.Helper()
	need(t, "npm")
	npm := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("the SDKs cannot be installed from the npm registry: %v\n%.2000s", err, out)
	}
	return true
}

// pipInstall installs what requirements.txt names in an environment of its own,
// and returns the Python that has it.
func pipInstall(t *testing.T, dir string) string {
	t.Helper()
	need(t, "python3")
	venv := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.Command("python3", "-m", "venv", venv).CombinedOutput(); err != nil {
		t.Skipf("Python's venv is not installed: %v\n%.2000s", err, out)
	}
	python := filepath.Join(venv, "bin", "python3")
	pip := exec.Command(python, "-m", "pip", "install", "-q", "--retries", "1", "-r",
		filepath.Join(dir, "requirements.txt"))
	if out, err := pip.CombinedOutput(); err != nil {
		if !strings.Contains(string(out), "(from versions: none)") { // the registry answered
			t.Fatalf("%v\n%s", err, out)
		}
		t.Skipf("google-genai cannot be installed from PyPI: %v\n%.2000s", err, out)
	}
	return python
}
