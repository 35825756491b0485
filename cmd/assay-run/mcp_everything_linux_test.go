package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// TestMCPServerEverything has the SDK's client talk to server-everything of npm, directly and through the gateway. The
// client must get the same tools, prompts, resources and answers.
func TestMCPServerEverything(t *testing.T) {
	layertest.Host(t)
	need(t, "node")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/mcp-everything")); err != nil {
		t.Fatal(err)
	}
	npmInstall(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := []string{"node", filepath.Join(dir, "node_modules", "@modelcontextprotocol", "server-everything", "dist",
		"index.js"), "stdio"}
	direct := exec.Command(server[0], server[1:]...)
	direct.Dir = dir
	want := everything(t, direct)
	if len(want) < 12 {
		t.Fatalf("the server answers little: %q", want)
	}
	if diff := cmp.Diff(want, everything(t, self(t, dir, append([]string{"mcp", "--policy", "policy.yaml", "--"},
		server...)...))); diff != "" {
		t.Errorf("through the gateway the client gets something else (-direct +gateway):\n%s", diff)
	}
}

// everything is what a client gets from a server, each answer as JSON.
func everything(t *testing.T, cmd *exec.Cmd) (answers []string) {
	t.Helper()
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	add := func(what string, answer any, err error) {
		if err != nil {
			answers = append(answers, what+": "+err.Error())
			return
		}
		text, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, what+": "+string(text))
	}
	tools, err := session.ListTools(ctx, nil)
	add("tools", tools, err)
	prompts, err := session.ListPrompts(ctx, nil)
	add("prompts", prompts, err)
	resources, err := session.ListResources(ctx, nil)
	add("resources", resources, err)
	templates, err := session.ListResourceTemplates(ctx, nil)
	add("templates", templates, err)
	for _, c := range []mcp.CallToolParams{
		{Name: "echo", Arguments: map[string]any{"message": "caf\u00e9"}},
		{Name: "get-sum", Arguments: map[string]any{"a": 2, "b": 3}},
		{Name: "get-sum", Arguments: map[string]any{"a": "two"}},
		{Name: "get-tiny-image"},
		{Name: "get-structured-content", Arguments: map[string]any{"location": "New York"}},
		{Name: "get-annotated-message", Arguments: map[string]any{"messageType": "error", "includeImage": true}},
		{Name: "get-resource-links", Arguments: map[string]any{"count": 3}},
		{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 1, "steps": 3}},
		{Name: "no-such-tool"},
	} {
		answer, err := session.CallTool(ctx, &c)
		add(c.Name, answer, err)
	}
	if prompts != nil && len(prompts.Prompts) > 0 {
		prompt, err := session.GetPrompt(ctx, &mcp.GetPromptParams{Name: prompts.Prompts[0].Name})
		add("prompt", prompt, err)
	}
	if resources != nil && len(resources.Resources) > 0 {
		at := slices.MinFunc(resources.Resources, func(a, b *mcp.Resource) int { return len(a.URI) - len(b.URI) })
		text, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: at.URI})
		add("resource", text, err)
	}
	add("ping", nil, session.Ping(ctx, nil))
	return answers
}
