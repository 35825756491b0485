//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/schema"
)

// An agent leaves a process behind that keeps the checked file as the check
// wants it, lies in a session of its own, and ignores SIGTERM. It edits the
// contract and a protected test as well. Once its cgroup has been killed, only
// what it really did is left, and the contract is the one from before.
func TestTheChecksSeeNothingOfTheAgentsProcesses(t *testing.T) {
	dir := t.TempDir()
	work := filepath.Join(dir, "work")
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("work/answer", "41\n")
	write("work/tests/run", "#!/bin/sh\nset -e\nrm -f answer.new\necho 41 >answer\nfor i in 1 2 3 4 5 6 7 8 9; do "+
		"sleep 0.02; grep -qx 42 answer && exit 0; done\nexit 1\n")
	write("c.yaml", "description: d\nchecks: [{name: answer, command: tests/run}]\nprotected: [tests]\n")

	session, err := newCheckSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.close()
	gate, err := contract.Open(contract.PrepareOptions{
		Path: filepath.Join(dir, "c.yaml"), Workdir: work, TempDir: dir, Executor: session.executor(work, nil),
	})
	if err == nil {
		err = gate.Prepare(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Release()

	agent := exec.Command("sh", "-c", `echo 'checks: [{name: a, command: "test 1 = 1"}]' >../c.yaml
printf '#!/bin/sh\nexit 0\n' >tests/run
setsid sh -c 'trap "" TERM; while :; do echo 42 >answer.new; mv answer.new answer; echo up >up; done' >/dev/null 2>&1 &
while ! test -s up; do :; done`)
	agent.Dir = work
	if err := session.Agent().Start(agent); err != nil {
		t.Fatal(err)
	}
	if err := agent.Wait(); err != nil {
		t.Fatal(err)
	}
	if left, err := session.Agent().Procs(); err != nil || len(left) == 0 {
		t.Fatalf("the agent left %v behind, %v", left, err)
	}
	if err := session.Agent().Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := session.Agent().Wait(ctx); err != nil {
		t.Fatal(err)
	}
	doc, err := gate.Settle(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if doc.Verdict != schema.VerdictFailed || doc.FileAfter != "changed" || doc.Results[0].Name != "answer" {
		t.Errorf("verdict %s, contract file %s, result %+v", doc.Verdict, doc.FileAfter, doc.Results[0])
	}
	if len(doc.ProtectedChanges) != 1 || doc.ProtectedChanges[0].Path != "tests/run" ||
		!doc.ProtectedChanges[0].Restored {
		t.Errorf("protected changes %+v", doc.ProtectedChanges)
	}
	if all := strings.Join(doc.Reasons, "\n"); !strings.Contains(all, "exit status 1") {
		t.Errorf("reasons %s", all)
	}
}
