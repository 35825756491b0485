package runner

import (
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// The program that last wrote a path is known by path, even if the path was renamed since.
func TestWhoWroteAPath(t *testing.T) {
	const openWrite = 1 | 0o100 // O_WRONLY | O_CREAT
	o := &observation{facts: facts.NewChangeReader()}
	for _, e := range []schema.KernelEvent{
		{Kind: schema.KindExec, ExecID: 1, Value: "/bin/sh"},
		{Kind: schema.KindFork, ExecID: 2, ParentExecID: 1},
		{Kind: schema.KindExec, ExecID: 3, Value: "/bin/cp"},
		{Kind: schema.KindExec, ExecID: 4, Value: "/bin/chmod"},
		{Kind: schema.KindExec, ExecID: 5, Value: "/bin/mv"},
		{Kind: schema.KindExec, ExecID: 6, Value: "/" + strings.Repeat("x", longestProgram)},
		{Kind: schema.KindOpen, ExecID: 2, Value: "/w/a", Flags: openWrite, HasResult: true},
		{Kind: schema.KindOpen, ExecID: 3, Value: "/w/d/b", Flags: openWrite, HasResult: true},
		{Kind: schema.KindChmod, ExecID: 4, Value: "/w/a", HasResult: true},
		{Kind: schema.KindChmod, ExecID: 4, Value: "/w/c", HasResult: true},
		{Kind: schema.KindOpen, ExecID: 4, Value: "/w/read", HasResult: true},
		{Kind: schema.KindOpen, ExecID: 4, Value: "/w/failed", Flags: openWrite, HasResult: true, Result: -2},
		{Kind: schema.KindRename, ExecID: 5, Value: "/w/d", Target: "/w/e", HasResult: true},
		{Kind: schema.KindRename, ExecID: 5, Value: "/w/a", Target: "/w/moved", HasResult: true},
		{Kind: schema.KindUnlink, ExecID: 3, Value: "/w/gone", HasResult: true},
		{Kind: schema.KindOpen, ExecID: 6, Value: "/w/long", Flags: openWrite, HasResult: true},
		{Kind: schema.KindOpen, ExecID: 3, Value: "/w/check", Flags: openWrite, HasResult: true,
			Class: schema.ClassCheck},
		{Kind: schema.KindOpen, ExecID: 3, Value: "/w/elsewhere", Flags: openWrite, HasResult: true,
			Marks: schema.MarkMountNamespace},
	} {
		o.facts.Read(&e)
	}
	for path, want := range map[string]string{
		"/w/moved": "/bin/sh", "/w/e/b": "/bin/cp", "/w/c": "/bin/chmod", "/w/gone": "/bin/cp", "/w/e": "/bin/mv",
		"/w/a": "", "/w/read": "", "/w/failed": "", "/w/long": "", "/w/check": "", "/w/elsewhere": "", "/w/never": "",
	} {
		if got := o.wrote(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
