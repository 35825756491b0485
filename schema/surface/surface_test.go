package surface

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

func fileEvent(kind schema.KernelKind, value, target string) *schema.KernelEvent {
	return &schema.KernelEvent{Kind: kind, PID: 10, Value: value, Target: target}
}

func netEvent(kind schema.KernelKind, value, proto string, names ...string) *schema.KernelEvent {
	return &schema.KernelEvent{Kind: kind, PID: 10, Value: value, Protocol: proto, Names: names}
}

func surfaceOf(t testing.TB, evs ...*schema.KernelEvent) schema.CapabilitySurface {
	t.Helper()
	s := New("run_1", t.TempDir())
	defer s.Close()
	processes := facts.NewTable()
	for _, e := range evs {
		exe := ""
		if by := processes.Add(e); by != nil {
			exe = by.Exe
		}
		if err := s.Add(e, exe); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if _, err := s.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	var got schema.CapabilitySurface
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, &b)
	}
	return got
}

func TestSurfaceListsWhatTheAgentDid(t *testing.T) {
	noise := fileEvent(schema.KindOpen, "/etc/ld.so.cache", "")
	noise.Class = schema.ClassLoader
	tls := netEvent(schema.KindTLS, "tls.example", "tcp")
	tls.Remote = "203.0.113.1:443"
	alien := netEvent(schema.KindTLS, "other.example", "tcp")
	alien.Remote = "203.0.113.99:443"
	got := surfaceOf(t,
		noise, fileEvent(schema.KindOpen, "/b", ""), fileEvent(schema.KindOpen, "/b", ""),
		fileEvent(schema.KindRename, "/a", "/c"),
		fileEvent(schema.KindSymlink, "/link", "content is no path"), fileEvent(schema.KindChdir, "/no", ""),
		fileEvent(schema.KindOpen, "", ""),
		fileEvent(schema.KindOpen, "/bad\xff", ""), fileEvent(schema.KindExec, "/bin/sh", ""),
		fileEvent(schema.KindExecFailed, "/bin/nosh", ""),
		netEvent(schema.KindConnect, "203.0.113.1:443", "tcp", "a.example"), tls, alien,
		netEvent(schema.KindFlow, "203.0.113.1:443", "tcp", "late.example"),
		netEvent(schema.KindFlow, "198.51.100.1:4000", "tcp"), netEvent(schema.KindAccept, "198.51.100.1:4000", "tcp"),
		netEvent(schema.KindSendto, "10.0.0.1:53", "udp"), netEvent(schema.KindConnect, "unix:@a\x00b", "unix"),
		netEvent(schema.KindConnect, "unix:", "unix"),
		netEvent(schema.KindBind, "127.0.0.1:8080", "tcp"), netEvent(schema.KindListen, "127.0.0.1:8080", "tcp"),
		netEvent(schema.KindConnect, "127.0.0.1:8080", "tcp"),
		netEvent(schema.KindBind, "0.0.0.0:41234", "tcp"), netEvent(schema.KindBind, "", "netlink"),
		netEvent(schema.KindConnect, "127.0.0.1:41234", "tcp"),
		netEvent(schema.KindConnect, "127.0.0.1:45555", "tcp"), netEvent(schema.KindSendto, "[::1]:50000", "udp"),
	)
	want := schema.CapabilitySurface{
		Schema: schema.CapabilitySurfaceV0, RunID: "run_1",
		FilesystemPaths: []string{"/a", "/b", `/bad\xff`, "/bin/nosh", "/c", "/link"},
		NetworkEndpoints: []string{"10.0.0.1:53", "127.0.0.1:45555", "127.0.0.1:8080", "127.0.0.1:<ephemeral>",
			"203.0.113.1:443 (a.example,late.example,tls.example)", "[::1]:<ephemeral>", "bind 0.0.0.0:<ephemeral>",
			"bind 127.0.0.1:8080", `unix:@a\x00b`},
		ProcessExecs: []string{"/bin/sh"}, MCPTools: []string{}, PolicyDecisions: []string{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("surface (-want +got):\n%s", diff)
	}
}

func TestSurfaceCountsWhatItLeavesOut(t *testing.T) {
	s := New("r", "")
	for _, c := range []schema.Class{schema.ClassLoader, schema.ClassLoader, schema.ClassLocale, schema.ClassAgent} {
		s.Add(&schema.KernelEvent{Kind: schema.KindOpen, Value: "/x", Class: c, Repeat: c == schema.ClassLocale,
			Count: 5}, "")
	}
	if diff := cmp.Diff(map[string]uint64{"loader": 2, "locale": 5}, s.LeftOut()); diff != "" {
		t.Error(diff)
	}
}

// The streamed document is byte for byte the one that schema.Document makes,
// however often the sets were spilled and in whatever order they were filled.
func TestSurfaceIsCanonicalHoweverItWasSpilled(t *testing.T) {
	const n = 5000
	want := schema.CapabilitySurface{Schema: schema.CapabilitySurfaceV0, RunID: "run_1", FilesystemPaths: []string{},
		NetworkEndpoints: []string{}, ProcessExecs: []string{}, MCPTools: []string{"t"},
		PolicyDecisions: []string{"allow:t"}}
	for i := range n {
		want.FilesystemPaths = append(want.FilesystemPaths, fmt.Sprintf("/dir/<&\"é>/%05d", i))
	}
	golden, err := schema.Document(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, memory := range []int{500, 20_000, 10 << 20} { // 500 makes more runs than there are buffers for
		dir := t.TempDir()
		s := newBuilder("run_1", dir, memory)
		s.AddTool("t")
		s.AddDecision("allow:t")
		for _, i := range append(rand.Perm(n), rand.Perm(n)...) {
			if err := s.Add(fileEvent(schema.KindOpen, want.FilesystemPaths[i], ""), ""); err != nil {
				t.Fatal(err)
			}
		}
		var got bytes.Buffer
		written, err := s.WriteTo(&got)
		if err != nil || written != int64(got.Len()) {
			t.Fatalf("%d bytes, %v", written, err)
		}
		if !bytes.Equal(got.Bytes(), golden) {
			t.Errorf("with %d bytes of memory the document differs: %s", memory, cmp.Diff(string(golden), got.String()))
		}
		s.Close()
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%d files are left behind", len(left))
		}
	}
	var empty bytes.Buffer
	New("run_1", "").WriteTo(&empty)
	want.FilesystemPaths, want.MCPTools, want.PolicyDecisions = []string{}, []string{}, []string{}
	if golden, _ = schema.Document(want); !bytes.Equal(empty.Bytes(), golden) {
		t.Errorf("an empty surface is %s", &empty)
	}
}

func TestSurfaceSaysThatItCannotSpill(t *testing.T) {
	s := newBuilder("r", t.TempDir()+"/gone", 100)
	var err error
	for i := range 100 {
		err = errors.Join(err, s.Add(fileEvent(schema.KindOpen, fmt.Sprint("/", i), ""), ""))
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
}

func TestSurfaceNoticesADamagedRun(t *testing.T) {
	dir := t.TempDir()
	s := newBuilder("r", dir, 100)
	for i := range 10 {
		s.Add(fileEvent(schema.KindOpen, fmt.Sprint("/", i), ""), "")
	}
	size := s.paths.size()
	for cut := range size {
		if err := s.paths.file.Truncate(size - 1 - cut); err != nil {
			t.Fatal(err)
		}
		if _, err := s.WriteTo(&bytes.Buffer{}); err == nil {
			t.Errorf("a run cut to %d of %d bytes goes unnoticed", size-1-cut, size)
		}
	}
}

func TestFilesOfMkstempLoseTheirRandomPart(t *testing.T) {
	made := func(path string, flags uint64, mode uint32) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindOpen, Value: path, Flags: flags, Mode: mode, HasResult: true,
			Result: 3}
	}
	gone := func(path string) *schema.KernelEvent { return fileEvent(schema.KindUnlink, path, "") }
	nofollow := uint64(0o400000)
	if runtime.GOARCH == "arm64" {
		nofollow = 0o100000
	}
	got := surfaceOf(t, made("/tmp/a7_x9q2z", 0o2000302|nofollow, 0o600),
		fileEvent(schema.KindWrite, "/tmp/a7_x9q2z", ""), gone("/tmp/a7_x9q2z"),
		fileEvent(schema.KindOpen, "/tmp/a7_x9q2z", ""), // now somebody else's
		made("/tmp/fooAbCdEf", 0o302, 0o600), gone("/tmp/fooAbCdEf"), made("/tmp/barAbCdEf.txt", 0o302, 0o600),
		gone("/tmp/barAbCdEf.txt"), made("/tmp/leftAbCdEf", 0o302, 0o600),
		made("/tmp/chosen", 0o302, 0o644), gone("/tmp/chosen"), made("/home/chosen", 0o302, 0o600),
		gone("/home/chosen"), made("/tmp/ab", 0o302, 0o600), gone("/tmp/ab"),
		made("/home/sedAbCdEf", 0o302, 0o600), fileEvent(schema.KindRename, "/home/sedAbCdEf", "/home/f"),
		made("/home/sedAbCdEg", 0o302, 0o644),
		made("/home/x.tmpf624c00", 0o302, 0o666), gone("/home/x.tmpf624c00"), made("/home/y.tmpf624c00", 0o102, 0o666),
		gone("/home/y.tmpf624c00"))
	want := []string{"/home/chosen", "/home/f", "/home/sed<random>", "/home/sedAbCdEg", "/home/x.tmp<random>",
		"/home/y.tmpf624c00",
		"/tmp/<random>", "/tmp/a7_x9q2z", "/tmp/ab", "/tmp/bar<random>.txt", "/tmp/chosen", "/tmp/foo<random>",
		"/tmp/leftAbCdEf"}
	if diff := cmp.Diff(want, got.FilesystemPaths); diff != "" {
		t.Error(diff)
	}
}

// A file that was made as mkstemp makes them under a name that somebody may have
// chosen keeps it, also where it is gone, and one that is still there keeps any.
func TestWordsAreNotRandom(t *testing.T) {
	made := func(path string) *schema.KernelEvent {
		e := fileEvent(schema.KindOpen, path, "")
		e.Flags, e.Mode = 0o302, 0o600
		return e
	}
	for _, path := range []string{"/tmp/passwd", "/tmp/shadow", "/tmp/id_rsa_backup", "/tmp/README.txt"} {
		if got := surfaceOf(t, made(path), fileEvent(schema.KindUnlink, path, "")).FilesystemPaths; len(got) != 1 ||
			got[0] != path {
			t.Errorf("%s is %q", path, got)
		}
	}
	for _, path := range []string{"/tmp/fooA1b2Cd", "/tmp/sedpasswd"} {
		if got := surfaceOf(t, made(path)).FilesystemPaths; len(got) != 1 || got[0] != path {
			t.Errorf("what is still there is %q", got)
		}
	}
	// Nor does a generator's word make one of another's.
	for _, path := range []string{"/tmp/tmppassword", "/tmp/sedpasswd", "/tmp/ccshadow.s"} {
		if got := surfaceOf(t, fileEvent(schema.KindOpen, path, "")).FilesystemPaths; len(got) != 1 || got[0] != path {
			t.Errorf("%s is %q", path, got)
		}
	}
}

// Python's try of a temporary directory has a name of chance, whatever it looks
// like, since nothing is left that it could lead to. What anything else touched,
// or what is still there, has the name that it was given.
func TestWhatHappensToAFileTellsAWordFromChance(t *testing.T) {
	nofollow := uint64(0o400000)
	if runtime.GOARCH == "arm64" {
		nofollow = 0o100000
	}
	const path = "/tmp/rejoqtik"
	event := func(kind schema.KernelKind, by uint64) *schema.KernelEvent {
		e := fileEvent(kind, path, "")
		e.ExecID = by
		return e
	}
	opened := event(schema.KindOpen, 1)
	opened.Flags, opened.Mode = 0o2000302|nofollow, 0o600
	renamed := event(schema.KindRename, 1)
	renamed.Target = "/tmp/x"
	for name, c := range map[string]struct {
		then []*schema.KernelEvent
		want []string
	}{
		"tried": {[]*schema.KernelEvent{event(schema.KindWrite, 1), event(schema.KindUnlink, 1)},
			[]string{"/tmp/<random>"}},
		"left": {[]*schema.KernelEvent{event(schema.KindWrite, 1)}, []string{path}},
		"read": {[]*schema.KernelEvent{event(schema.KindOpen, 2), event(schema.KindUnlink, 1)},
			[]string{path}},
		"removed": {[]*schema.KernelEvent{event(schema.KindUnlink, 2)}, []string{path}},
		"renamed": {[]*schema.KernelEvent{renamed}, []string{path, "/tmp/x"}},
		"chmod": {[]*schema.KernelEvent{event(schema.KindChmod, 1), event(schema.KindUnlink, 1)},
			[]string{path}},
		"somebody else": {[]*schema.KernelEvent{event(schema.KindUnlink, 1), event(schema.KindOpen, 2)},
			[]string{"/tmp/<random>", path}},
	} {
		got := surfaceOf(t, append([]*schema.KernelEvent{opened}, c.then...)...)
		if diff := cmp.Diff(c.want, got.FilesystemPaths); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Outside of the directories for temporary files, a random name is one that the run
// made, and that is gone.
func TestNamesThatComeAndGo(t *testing.T) {
	mkdir := func(path string, mode uint32) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindMkdir, PID: 4321, Value: path, Mode: mode, HasResult: true}
	}
	file := func(path string) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindOpen, PID: 4321, Value: path, Flags: 0o302, Mode: 0o600,
			HasResult: true, Result: 3}
	}
	event := func(kind schema.KernelKind, path, target string) *schema.KernelEvent {
		e := fileEvent(kind, path, target)
		e.PID = 4321
		return e
	}
	ofRsync := file("/w/.f.C8yNRv")
	ofRsync.Flags |= 0o400000
	if runtime.GOARCH == "arm64" {
		ofRsync.Flags = 0o302 | 0o100000
	}
	late := event(schema.KindWrite, "/w/st3hJZn1", "")
	late.Repeat, late.Count = true, 2
	argument := &schema.KernelEvent{Kind: schema.KindExec, PID: 4321, Value: "/bin/make",
		Argv: []string{"make", "key=/w/id.Prod01"}}
	for name, c := range map[string]struct {
		events []*schema.KernelEvent
		want   []string
	}{
		"renamed": {[]*schema.KernelEvent{file("/w/.f.3hJZn1"),
			event(schema.KindWrite, "/w/.f.3hJZn1", ""), event(schema.KindRename, "/w/.f.3hJZn1", "/w/f")},
			[]string{"/w/.f.<random>", "/w/f"}},
		"rsync's": {[]*schema.KernelEvent{ofRsync, event(schema.KindChmod, "/w/.f.C8yNRv", ""),
			event(schema.KindRename, "/w/.f.C8yNRv", "/w/f")}, []string{"/w/.f.<random>", "/w/f"}},
		"after a dot": {[]*schema.KernelEvent{file("/w/a-b.MWDYk2"),
			event(schema.KindUnlink, "/w/a-b.MWDYk2", "")}, []string{"/w/a-b.<random>"}},
		"a repeat told late": {[]*schema.KernelEvent{file("/w/st3hJZn1"),
			event(schema.KindUnlink, "/w/st3hJZn1", ""), late}, []string{"/w/st<random>"}},
		"left": {[]*schema.KernelEvent{file("/w/key.Prod01"),
			event(schema.KindWrite, "/w/key.Prod01", "")}, []string{"/w/key.Prod01"}},
		"spelled": {[]*schema.KernelEvent{argument, file("/w/id.Prod01"),
			event(schema.KindUnlink, "/w/id.Prod01", "")}, []string{"/w/id.Prod01"}},
		"a directory": {[]*schema.KernelEvent{mkdir("/w/deb.OHHk1b", 0o700),
			event(schema.KindOpen, "/w/deb.OHHk1b/control", ""), event(schema.KindRmdir, "/w/deb.OHHk1b", ""),
			event(schema.KindOpen, "/w/deb.OHHk1b/x", "")},
			[]string{"/w/deb.<random>", "/w/deb.<random>/control", "/w/deb.OHHk1b/x"}},
		"a directory that stays": {[]*schema.KernelEvent{mkdir("/w/deb.OHHk1b", 0o700),
			event(schema.KindOpen, "/w/deb.OHHk1b/control", "")}, []string{"/w/deb.OHHk1b", "/w/deb.OHHk1b/control"}},
		"in a directory of its own": {[]*schema.KernelEvent{mkdir("/w/d.OHHk1b", 0o700),
			mkdir("/w/d.OHHk1b/e.WQ7k1b", 0o700), file("/w/d.OHHk1b/e.WQ7k1b/ccAb1Cdu.s"),
			event(schema.KindUnlink, "/w/d.OHHk1b/e.WQ7k1b/ccAb1Cdu.s", ""),
			event(schema.KindRmdir, "/w/d.OHHk1b/e.WQ7k1b", ""), event(schema.KindRmdir, "/w/d.OHHk1b", "")},
			[]string{"/w/d.<random>", "/w/d.<random>/e.<random>", "/w/d.<random>/e.<random>/cc<random>.s"}},
		"in one that stays": {[]*schema.KernelEvent{mkdir("/w/d.OHHk1b", 0o700), file("/w/d.OHHk1b/f.WQ7k1b"),
			event(schema.KindUnlink, "/w/d.OHHk1b/f.WQ7k1b", "")}, []string{"/w/d.OHHk1b", "/w/d.OHHk1b/f.<random>"}},
		"in one with a new name": {[]*schema.KernelEvent{mkdir("/w/d.OHHk1b", 0o700), file("/w/d.OHHk1b/f.WQ7k1b"),
			event(schema.KindRename, "/w/d.OHHk1b", "/w/kept")},
			[]string{"/w/d.<random>", "/w/d.<random>/f.WQ7k1b", "/w/kept"}},
		"rustc's": {[]*schema.KernelEvent{mkdir("/w/incremental/x-34d/s-hoe6-1yy6rr1-working", 0o777),
			event(schema.KindOpen, "/w/incremental/x-34d/s-hoe6-1yy6rr1-working/dep", ""),
			event(schema.KindRename, "/w/incremental/x-34d/s-hoe6-1yy6rr1-working",
				"/w/incremental/x-34d/s-hoe6-1yy6rr1-9dw")},
			[]string{"/w/incremental/x-34d/s-<random>", "/w/incremental/x-34d/s-<random>-working",
				"/w/incremental/x-34d/s-<random>-working/dep"}},
		"a repeat in one with a new name": {[]*schema.KernelEvent{mkdir("/w/d.OHHk1b", 0o700),
			event(schema.KindWrite, "/w/d.OHHk1b/x", ""), event(schema.KindRename, "/w/d.OHHk1b", "/w/kept"),
			{Kind: schema.KindWrite, PID: 9, Value: "/w/d.OHHk1b/x", Repeat: true, Count: 2}},
			[]string{"/w/d.<random>", "/w/d.<random>/x", "/w/kept"}},
		"in one with a new name below another that stays": {[]*schema.KernelEvent{mkdir("/w/x-60uhtr", 0o700),
			mkdir("/w/x-60uhtr/d.OHHk1b", 0o700), file("/w/x-60uhtr/d.OHHk1b/f.WQ7k1b"),
			event(schema.KindRename, "/w/x-60uhtr/d.OHHk1b", "/w/kept")},
			[]string{"/w/kept", "/w/x-60uhtr", "/w/x-60uhtr/d.<random>", "/w/x-60uhtr/d.<random>/f.WQ7k1b"}},
		"a long number": {[]*schema.KernelEvent{mkdir("/w/go-build1234567890", 0o700),
			event(schema.KindRmdir, "/w/go-build1234567890", "")}, []string{"/w/go-build<random>"}},
		"a link": {[]*schema.KernelEvent{event(schema.KindLink, "/dev/shm/x",
			"/dev/shm/sem.mp-ogdnqnzn"), event(schema.KindUnlink, "/dev/shm/sem.mp-ogdnqnzn", "")},
			[]string{"/dev/shm/sem.mp-<random>", "/dev/shm/x"}},
		"rustc's objects": {[]*schema.KernelEvent{{Kind: schema.KindOpen, PID: 9,
			Value: "/w/x-3146.2bk6.0pg8mjs.rcgu.o", Flags: 0o1101, Created: true, HasResult: true},
			event(schema.KindUnlink, "/w/x-3146.2bk6.0pg8mjs.rcgu.o", "")}, []string{"/w/x-3146.2bk6.<random>.rcgu.o"}},
		"an object that was there": {[]*schema.KernelEvent{{Kind: schema.KindOpen, PID: 9,
			Value: "/w/x-3146.2bk6.0pg8mjs.rcgu.o", Flags: 0o1101, HasResult: true},
			event(schema.KindUnlink, "/w/x-3146.2bk6.0pg8mjs.rcgu.o", "")}, []string{"/w/x-3146.2bk6.0pg8mjs.rcgu.o"}},
		"spelled after it was made": {[]*schema.KernelEvent{file("/w/ccOSDTPX.res"),
			{Kind: schema.KindExec, PID: 9, Value: "/bin/as", Argv: []string{"as", "/w/ccOSDTPX.ltrans0.o"}},
			{Kind: schema.KindOpen, PID: 9, Value: "/w/ccOSDTPX.ltrans0.o", Flags: 0o1102, Created: true,
				HasResult: true},
			event(schema.KindUnlink, "/w/ccOSDTPX.ltrans0.o", ""), event(schema.KindUnlink, "/w/ccOSDTPX.res", "")},
			[]string{"/w/cc<random>.ltrans0.o", "/w/cc<random>.res"}},
		"in no directory": {[]*schema.KernelEvent{{Kind: schema.KindOpen, PID: 9,
			Value: "/w/61/tmp_obj_sfvifs", Flags: 0o302, HasResult: true, Result: enoent}},
			[]string{"/w/61/tmp_obj_<random>"}},
		"a semaphore": {[]*schema.KernelEvent{file("/dev/shm/sem.EDFOTT"),
			event(schema.KindLink, "/dev/shm/sem.EDFOTT", "/dev/shm/sem.worker"),
			event(schema.KindUnlink, "/dev/shm/sem.EDFOTT", ""), event(schema.KindUnlink, "/dev/shm/sem.worker", "")},
			[]string{"/dev/shm/sem.<random>", "/dev/shm/sem.worker"}},
		"written after it was gone": {[]*schema.KernelEvent{file("/w/deb.kUMv75"),
			event(schema.KindUnlink, "/w/deb.kUMv75", ""),
			{Kind: schema.KindWrite, PID: 9, Value: "/w/deb.kUMv75", Marks: schema.MarkDeleted}},
			[]string{"/w/deb.<random>"}},
		"a pid in a hash": {[]*schema.KernelEvent{event(schema.KindOpen,
			"/w/0c/fbf08886fca9a91cb4321ec8734c84fcbe52c9f1", "")},
			[]string{"/w/0c/fbf08886fca9a91cb4321ec8734c84fcbe52c9f1"}},
		"a pid": {[]*schema.KernelEvent{file("/w/temp-4321.rdb"),
			fileEvent(schema.KindOpen, "/w/temp-4321.rdb", "")}, []string{"/w/temp-<pid>.rdb"}},
		"a number with a pid": {[]*schema.KernelEvent{file("/w/temp-43210.rdb"),
			event(schema.KindOpen, "/w/4321/x", "")}, []string{"/w/4321/x", "/w/temp-43210.rdb"}},
		"a lock of GnuPG's": {[]*schema.KernelEvent{event(schema.KindLink, "/h/.#lk0x000055c051b3b400.vm.4321",
			"/h/.#lk0x000055c051b3b400.vm.4321x")},
			[]string{"/h/.#lk0x<address>.vm.<pid>", "/h/.#lk0x<address>.vm.<pid>x"}},
		"cgroups of mcp in it": {[]*schema.KernelEvent{event(schema.KindOpen,
			"/sys/fs/cgroup/a/assay-run/run_01m80w/agent/assay-run/mcp-01M81BYMH6K7BQ3B5VGK3ATX6K/agent/x", "")},
			[]string{"/sys/fs/cgroup/a/assay-run/<run>/agent/assay-run/<mcp>/agent/x"}},
		"one that is named so": {[]*schema.KernelEvent{event(schema.KindOpen, "/home/assay-run/mcp-notes/x", "")},
			[]string{"/home/assay-run/mcp-notes/x"}},
		"a run's cgroup": {[]*schema.KernelEvent{event(schema.KindOpen, "/sys/fs/cgroup/a/assay-run/run_01m80w/agent/x",
			"")}, []string{"/sys/fs/cgroup/a/assay-run/<run>/agent/x"}},
	} {
		if diff := cmp.Diff(c.want, surfaceOf(t, c.events...).FilesystemPaths); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Many files may wait for a directory, and more than there is room for have the name
// that they were given.
func TestManyFilesInADirectoryThatGoes(t *testing.T) {
	for _, n := range []int{1000, maxHeld + 10} {
		events := []*schema.KernelEvent{{Kind: schema.KindMkdir, PID: 9, Value: "/w/d.OHHk1b", HasResult: true}}
		for i := range n {
			events = append(events, fileEvent(schema.KindOpen, fmt.Sprintf("/w/d.OHHk1b/%d", i), ""))
		}
		events = append(events, fileEvent(schema.KindRmdir, "/w/d.OHHk1b", ""))
		var random, exact int
		for _, p := range surfaceOf(t, events...).FilesystemPaths {
			if strings.HasPrefix(p, "/w/d.<random>") {
				random++
			} else if strings.HasPrefix(p, "/w/d.OHHk1b") {
				exact++
			}
		}
		if random+exact != n+1 || random > 0 && exact > 0 || random > 0 != (n < maxHeld) {
			t.Errorf("of %d files, %d lines are random and %d exact", n, random, exact)
		}
	}
}

// What the kernel calls a file that was made without a name is no name that
// somebody gave a file.
func TestFilesWithoutNames(t *testing.T) {
	marked := func(kind schema.KernelKind, path string, marks schema.Marks) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: kind, PID: 10, Value: path, Marks: marks}
	}
	linked := marked(schema.KindLink, "/w/#3", schema.MarkUnreachable)
	linked.Target = "/w/named"
	got := surfaceOf(t, marked(schema.KindOpen, "/w/#1", schema.MarkDeleted),
		marked(schema.KindWrite, "/w/#2", schema.MarkDeleted), linked,
		marked(schema.KindOpen, "/w/#4", 0), marked(schema.KindUnlink, "/w/#5", 0),
		marked(schema.KindOpen, "/w/#6#", schema.MarkDeleted),
		marked(schema.KindOpen, "/w/a#7", schema.MarkDeleted), marked(schema.KindOpen, "/w/", schema.MarkDeleted),
		marked(schema.KindExec, "/w/#8", schema.MarkDeleted))
	if diff := cmp.Diff([]string{"/w/", "/w/#4", "/w/#5", "/w/#6#", "/w/#<random>", "/w/a#7", "/w/named"},
		got.FilesystemPaths); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/w/#<random>"}, got.ProcessExecs); diff != "" {
		t.Error(diff)
	}
}

func TestNormalizedPaths(t *testing.T) {
	const (
		object   = "/w/.git/objects/1a/496d8482142c84ebb60214d3cc5897d1234567"
		goOutput = "/tmp/cache/5c/5c496d8482142c84ebb60214d3cc58971234567-d"
	)
	for path, want := range map[string]string{
		"/proc/10/status":                       "/proc/self/status",
		"/proc/11/status":                       "/proc/<pid>/status",
		"/proc/11":                              "/proc/<pid>",
		"/proc/10/task/12/comm":                 "/proc/self/task/<tid>/comm",
		"/proc/11/fd/3":                         "/proc/<pid>/fd/<fd>",
		"/proc/meminfo":                         "/proc/meminfo",
		"/proc/sys/kernel/1":                    "/proc/sys/kernel/1",
		"/proc/1x/y":                            "/proc/1x/y",
		"/dev/pts/3":                            "/dev/pts/<n>",
		"/dev/pts/ptmx":                         "/dev/pts/ptmx",
		"/tmp/tmp.AbCdEfGhIj/x":                 "/tmp/tmp.<random>/x",
		"/tmp/tmpab12_cd9":                      "/tmp/tmp<random>",
		"/tmp/tmpab12_cd9.py":                   "/tmp/tmp<random>.py",
		"/tmp/go-build1234567890/b001/exe/main": "/tmp/go-build<random>/b001/exe/main",
		"/tmp/.tmpAbC123/x":                     "/tmp/.tmp<random>/x",
		"/tmp/ccAbC123.o":                       "/tmp/cc<random>.o",
		"/tmp/ccAbC123.txt":                     "/tmp/ccAbC123.txt",
		"/tmp/secret.txt":                       "/tmp/secret.txt",
		"/tmp/report-2024.txt":                  "/tmp/report-2024.txt",
		"/home/u/tmp.AbCdEfGhIj":                "/home/u/tmp.AbCdEfGhIj",
		"/w/.git/objects/12/tmp_obj_aB3dE6":     "/w/.git/objects/12/tmp_obj_<random>",
		"/w/bare.git/objects/12/tmp_obj_aB3dE6": "/w/bare.git/objects/12/tmp_obj_<random>",
		"/w/b.git/objects/tmp_objdir-incoming-FlUuYb/0c/fb": "/w/b.git/objects/tmp_objdir-incoming-<random>/0c/fb",
		"/w/.git/objects/pack/.tmp-25840-pack-3258ce4.idx":  "/w/.git/objects/pack/.tmp-<random>-pack-3258ce4.idx",
		"/w/.git/tMi5gmV":                  "/w/.git/t<random>",
		"/tmp/tmp.AbCdEfGhIj/.git/tMi5gmV": "/tmp/tmp.<random>/.git/t<random>",
		"/w/.git/refs/tMi5gmV":             "/w/.git/refs/tMi5gmV",
		"/w/#42":                           "/w/#42",
		"/tmp/testing":                     "/tmp/testing",
		"/w/go-build1234567890":            "/w/go-build1234567890",
		"pipe:[5767729]":                   "pipe:[<n>]",
		"socket:[5767729]":                 "socket:[<n>]",
		"pipe:[1]/../chosen":               "pipe:[1]/../chosen",
		// hashes, whose end is digits by chance
		object:   object,
		goOutput: goOutput,
	} {
		if got := normalizePath(path, 10); got != want {
			t.Errorf("%s becomes %s, want %s", path, got, want)
		}
		if again := normalizePath(want, 10); again != want {
			t.Errorf("%s is not stable: %s", want, again)
		}
	}
}

func TestAStringOfTheDocumentIsAsTheEncoderHasIt(t *testing.T) {
	for b := range 256 {
		s := "/a" + string([]byte{byte(b)}) + "z"
		want, err := schema.Line(s)
		if err != nil {
			t.Fatal(err)
		}
		var c countWriter
		if got := string(c.encode(s)) + "\n"; got != string(want) {
			t.Errorf("byte %d: %s, want %s", b, got, want)
		}
	}
}

// BenchmarkAdd is what an open of a file of its own costs.
func BenchmarkAdd(b *testing.B) {
	for _, dir := range []string{"/dev/shm/bench/files/", "/home/user/project/node_modules/package/lib/"} {
		b.Run(dir, func(b *testing.B) {
			bl := New("r", b.TempDir())
			defer bl.Close()
			e := schema.KernelEvent{Kind: schema.KindOpen, PID: 12345, HasResult: true, Result: 3,
				Class: schema.ClassAgent}
			names := make([]string, 300_000)
			for i := range names {
				names[i] = dir + strconv.Itoa(i)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				e.Value = names[i%len(names)]
				i++
				if err := bl.Add(&e, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
