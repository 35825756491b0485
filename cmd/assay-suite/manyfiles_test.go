//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// TestAWorkspaceOfManyFiles goes with a workspace of 100,000 files from check to verdict.
func TestAWorkspaceOfManyFiles(t *testing.T) {
	layertest.Night(t)
	s := newSite(t, `name: many
tasks:
- name: t
  workspace: many
  command: "true"
  contract: {description: d, checks: [{name: one, command: test "$(cat 999/99)" = fixed}]}
agents:
- {name: a, command: 'for d in *; do cat "$d"/0; done | wc -l | grep -qx 1000 && echo fixed >999/99'}
`)
	for dir := range 1000 {
		path := filepath.Join(s.dir, "many", fmt.Sprint(dir))
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		for file := range 100 {
			s.file(filepath.Join("many", fmt.Sprint(dir), fmt.Sprint(file)), fmt.Sprintf("%d %d\n", dir, file))
		}
	}
	for _, start := range []func() *process{
		func() *process { return s.process("assay-suite", "check", "suite.yaml") },
		func() *process { return s.run() },
	} {
		p := start()
		if err := p.cmd.Wait(); err != nil {
			t.Fatalf("%s ended with %v", p.args, err)
		}
	}
	s.passed(1)
	text, err := os.ReadFile(filepath.Join(s.dir, "many", "999", "99"))
	if err != nil || strings.TrimSpace(string(text)) != "999 99" {
		t.Errorf("the workspace has %q: %v", text, err)
	}
	s.clean()
}
