package surface

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// What the run made under a name that nobody else has is of this run, also if it stays.
// What was there before, and what an argument spelled, has its name.
func TestNamesThatAreRandomByTheirForm(t *testing.T) {
	const uuid = "01a2032c-ba26-77a1-8abb-ee065ddf1b2f"
	made := func(path string) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindOpen, PID: 4321, Value: path, Flags: 0o1101, Created: true,
			HasResult: true, Result: 3}
	}
	read := func(path string) *schema.KernelEvent { return fileEvent(schema.KindOpen, path, "") }
	missing := func(path string) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindOpen, PID: 10, Value: path, HasResult: true, Result: enoent}
	}
	mkdir := func(path string) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindMkdir, PID: 4321, Value: path, HasResult: true}
	}
	spell := func(word string) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindExec, PID: 4321, Value: "/bin/x",
			Argv: []string{"x", "--session=" + word}}
	}
	for name, c := range map[string]struct {
		events []*schema.KernelEvent
		want   []string
	}{
		"a UUID": {[]*schema.KernelEvent{made("/w/" + uuid + ".jsonl")}, []string{"/w/<random>.jsonl"}},
		"two of them": {[]*schema.KernelEvent{made("/w/" + uuid + "-agent-" +
			"0A47B6E1-0000-4000-8000-000000000001.json")}, []string{"/w/<random>-agent-<random>.json"}},
		"a ULID": {[]*schema.KernelEvent{made("/w/run_01m81jsck12ncmctk9n180bzt9"),
			made("/w/01M81JSCK12NCMCTK9N180BZT9.db")}, []string{"/w/<random>.db", "/w/run_<random>"}},
		"in one that was made": {[]*schema.KernelEvent{mkdir("/w/" + uuid), made("/w/" + uuid + "/a"),
			read("/w/" + uuid + "/b")}, []string{"/w/<random>", "/w/<random>/a", "/w/<random>/b"}},
		"one with a pid in it": {[]*schema.KernelEvent{made("/w/4321-" + uuid),
			made("/w/01a2032c-4321-77a1-8abb-ee065ddf1b2f"), made("/w/01a2032c-4321-77a1-8abb-ee065ddf1b2f.4321")},
			[]string{"/w/<pid>-<random>", "/w/<random>", "/w/<random>.<pid>"}},
		"renamed to another": {[]*schema.KernelEvent{made("/w/" + uuid + ".tmp-1795349598996461988"),
			{Kind: schema.KindRename, PID: 4321, Value: "/w/" + uuid + ".tmp-1795349598996461988",
				Target: "/w/" + uuid + ".1795349598996461988.sh"}, read("/w/" + uuid + ".1795349598996461988.sh")},
			[]string{"/w/<random>.<random>.sh", "/w/<random>.tmp-<random>"}},
		"looked for when it is gone": {[]*schema.KernelEvent{made("/w/" + uuid),
			fileEvent(schema.KindRename, "/w/"+uuid, "/w/x"),
			{Kind: schema.KindUnlink, PID: 9, Value: "/w/" + uuid, HasResult: true, Result: enoent}},
			[]string{"/w/<random>", "/w/x"}},
		"Bun's": {[]*schema.KernelEvent{made("/w/.5eff5f77bf9bdf5f-00000001.node"),
			made("/w/5eff5f77bf9bdf5f-00000001a")}, []string{"/w/.<random>.node", "/w/5eff5f77bf9bdf5f-00000001a"}},
		"a moment": {[]*schema.KernelEvent{made("/h/.codex/rollout-2026-11-22T12-19-43-" + uuid +
			".jsonl"), made("/h/.gemini/session-2026-11-22T12-13-57458333.jsonl"), made("/h/.x/20261122_121943.log"),
			made("/h/.npm/_logs/2026-11-22T12_19_43_012Z-debug-0.log"), made("/h/.x/2026-11-22T12:19:43.123Z")},
			[]string{"/h/.codex/rollout-<random>-<random>.jsonl", "/h/.gemini/session-<random>.jsonl",
				"/h/.npm/_logs/<random>-debug-0.log", "/h/.x/2026-11-22T12:19:43.123Z", "/h/.x/20261122_121943.log"}},
		"a moment in the workspace": {[]*schema.KernelEvent{made("/w/20261122121943_create_users.sql"),
			made("/w/report-2026-11-22T12-19-43.md")},
			[]string{"/w/20261122121943_create_users.sql", "/w/report-2026-11-22T12-19-43.md"}},
		"was there": {[]*schema.KernelEvent{read("/w/" + uuid),
			{Kind: schema.KindOpen, PID: 9, Value: "/w/" + uuid + ".x", Flags: 0o1101, HasResult: true}},
			[]string{"/w/" + uuid, "/w/" + uuid + ".x"}},
		"spelled": {[]*schema.KernelEvent{spell(uuid), made("/w/" + uuid)},
			[]string{"/w/" + uuid}},
		"a moment that was spelled": {[]*schema.KernelEvent{spell("2026-11-22T12-19-43"),
			made("/h/.x/2026-11-22T12-19-43")}, []string{"/h/.x/2026-11-22T12-19-43"}},
		"spelled after it was made": {[]*schema.KernelEvent{made("/w/" + uuid), spell(uuid),
			made("/w/" + uuid + ".x")}, []string{"/w/<random>", "/w/<random>.x"}},
		"not there, among temporaries": {[]*schema.KernelEvent{missing("/tmp/b6b7-" + uuid + "/x"),
			missing("/tmp/" + uuid)}, []string{"/tmp/<random>", "/tmp/b6b7-<random>/x"}},
		"there, among temporaries": {[]*schema.KernelEvent{read("/tmp/customer-" + uuid + "/x"), read("/tmp/" + uuid)},
			[]string{"/tmp/" + uuid, "/tmp/customer-" + uuid + "/x"}},
		"nearly one": {[]*schema.KernelEvent{made("/w/x" + uuid), made("/w/" + uuid + "0"),
			made("/w/01a2032c-ba26-77a1-8abb-ee065ddf1b2"), made("/h/.x/passwd"), made("/h/.x/id_rsa_backup"),
			made("/h/.x/deadbeef"), made("/h/.x/2026-11-22"), made("/w/01-a-file-of-twenty-six-char")},
			[]string{"/h/.x/2026-11-22", "/h/.x/deadbeef", "/h/.x/id_rsa_backup", "/h/.x/passwd",
				"/w/01-a-file-of-twenty-six-char", "/w/01a2032c-ba26-77a1-8abb-ee065ddf1b2",
				"/w/01a2032c-ba26-77a1-8abb-ee065ddf1b2f0", "/w/x" + uuid}},
	} {
		if diff := cmp.Diff(c.want, surfaceOf(t, c.events...).FilesystemPaths); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
