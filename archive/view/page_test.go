package view

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// reader is a run in /w that reads a hundred files of the system's and of its own many
// times, and some others once.
func reader(others ...string) *memory {
	evs := []schema.KernelEvent{begin(schema.KindFork, 10, 1, 0, ""),
		begin(schema.KindExec, 10, 2, 1, "/usr/bin/cat", "cat")}
	read := func(name string) {
		evs = append(evs, schema.KernelEvent{Kind: schema.KindOpen, PID: 10, TID: 10, ExecID: 2, Value: name,
			HasResult: true})
	}
	for i := range 300 {
		read(fmt.Sprintf("/usr/share/x/%d", i%100))
		read(fmt.Sprintf("/w/%d", i%100))
	}
	for _, name := range others {
		read(name)
	}
	b := bundle(evs...)
	b.docs.Run.Workdir = "/w"
	return b
}

func TestOneSecretIsNotHiddenBehindManyFiles(t *testing.T) {
	b := reader("/opt/x", "/etc/hosts", "/root/.ssh/id_ed25519", "/etc/shadow", "/w/.env")
	s, err := Summarize(t.Context(), b, 3)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range s.Read.Items {
		got = append(got, f.Path)
	}
	if want := "/root/.ssh/id_ed25519 /etc/shadow /w/.env"; strings.Join(got, " ") != want {
		t.Errorf("first come %v", got)
	}
}

func TestOnlyAFileThatDidNotExistIsCreated(t *testing.T) {
	open := func(flags uint64) schema.KernelEvent {
		return schema.KernelEvent{Kind: schema.KindOpen, PID: 10, TID: 10, ExecID: 2, Value: "/w/f", Flags: flags,
			HasResult: true}
	}
	const read, create, excl = 0, 0o101, 0o301
	made, missing := open(create), open(read)
	made.Created, missing.Result = true, -2
	rename := func(flags uint64) schema.KernelEvent {
		return schema.KernelEvent{Kind: schema.KindRename, PID: 10, TID: 10, ExecID: 2, Value: "/w/tmp", Target: "/w/f",
			Flags: flags, HasResult: true}
	}
	for name, c := range map[string]struct {
		events           []schema.KernelEvent
		created, written uint64
	}{
		"made by an open":         {[]schema.KernelEvent{made}, 1, 1},
		"made, then overwritten":  {[]schema.KernelEvent{made, open(create)}, 1, 2},
		"opened to be made alone": {[]schema.KernelEvent{open(excl)}, 1, 1},
		"existed":                 {[]schema.KernelEvent{open(create)}, 0, 1},
		"not found before":        {[]schema.KernelEvent{missing, open(create), open(create)}, 1, 2},
		"removed, then made": {[]schema.KernelEvent{open(read),
			{Kind: schema.KindUnlink, PID: 10, TID: 10, ExecID: 2, Value: "/w/f", HasResult: true}, open(create)}, 1,
			1},
		"renamed onto":           {[]schema.KernelEvent{rename(0)}, 0, 1},
		"renamed, not onto":      {[]schema.KernelEvent{rename(1)}, 1, 0},
		"renamed to what missed": {[]schema.KernelEvent{missing, rename(0)}, 1, 0},
	} {
		s, err := Summarize(t.Context(), bundle(c.events...), 0)
		if err != nil {
			t.Fatal(err)
		}
		count := func(l List[File]) (n uint64) {
			for _, f := range l.Items {
				n += f.Count
			}
			return n
		}
		if count(s.Created) != c.created || count(s.Written) != c.written {
			t.Errorf("%s: created %d times, written %d times", name, count(s.Created), count(s.Written))
		}
	}
}

func TestAPageFitsItsWidth(t *testing.T) {
	b := reader("/etc/" + strings.Repeat("long-name-", 30))
	b.docs.Run.RunID, b.docs.Run.Command = "run_1", []string{"sh", "-c", strings.Repeat("echo some words; ", 20)}
	s, err := Summarize(t.Context(), b, 0)
	if err != nil {
		t.Fatal(err)
	}
	var plain, narrow, coloured bytes.Buffer
	for _, p := range []struct {
		out  *bytes.Buffer
		page Page
	}{{&plain, Page{}}, {&narrow, Page{Width: 80}}, {&coloured, Page{Paint: Inspection}}} {
		if err := s.WriteText(p.out, p.page); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(narrow.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	words := func(s string) string { return strings.Join(strings.Fields(s), "") }
	if words(plain.String()) != words(narrow.String()) {
		t.Error("breaking lines loses or adds text")
	}
	if strings.Contains(plain.String(), "\x1b") ||
		!strings.Contains(coloured.String(), bold+"sandbox    "+reset+"not recorded") {
		t.Errorf("colours: %q", coloured.String()[:200])
	}
}

func TestPaintLastsWhereALineIsBroken(t *testing.T) {
	var out bytes.Buffer
	if err := (Page{Width: 20}).Write(&out, func(w io.Writer) error {
		_, err := fmt.Fprintf(w,
			"%s0.003s%s  said  %sred words that go on%s and plain\n%sthis fits 20 columns%s\nno end", bold, reset, red,
			reset, red, reset)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	want := bold + "0.003s" + reset + "  said  " + red + "red" + reset + "\n" +
		"          " + red + "words that" + reset + "\n" +
		"          " + red + "go on" + reset + " and\n" +
		"          plain\n" +
		red + "this fits 20 columns" + reset + "\nno end\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTheJSONHasItsSchema(t *testing.T) {
	b := reader()
	b.docs.Run.RunID, b.docs.Run.Command, b.docs.Result.LimitsHit = "run_1", []string{"cat"}, []string{}
	b.docs.Health.SetKernelLayer(schema.Complete)
	b.docs.Health.Model = "sha256:0"
	b.docs.Health.Layers = map[string]schema.LayerCounts{}
	s, err := Summarize(t.Context(), b, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Identity = "sha256:" + strings.Repeat("0", 64)
	if len(s.Read.Items) != 200 {
		t.Errorf("%d of 200 files are listed", len(s.Read.Items))
	}
	doc, err := schema.Document(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(schema.InspectionV0, doc); err != nil {
		t.Error(err)
	}
}
