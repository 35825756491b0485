package surface

import (
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// Any bytes can be a name, also without a directory: one that a call was refused with is in the record as it was given.
func TestAnyNameIsTaken(t *testing.T) {
	parts := []string{"", "/", "123", "x", ".git", "s-", "s-1-2-3", "_logs", "incremental", "hsperfdata_", "2", "\xff",
		"tmp"}
	s := New("run_1", "")
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				for _, kind := range []schema.KernelKind{schema.KindOpen, schema.KindUnlink, schema.KindExec} {
					for _, result := range []int64{3, enoent} {
						err := s.Add(&schema.KernelEvent{Kind: kind, PID: 123, ExecID: 2,
							Value: strings.Join([]string{a, b, c}, "/"),
							Flags: 0o302, HasResult: true, Result: result}, "")
						if err == nil {
							err = s.Add(&schema.KernelEvent{Kind: kind, PID: 123,
								Value: strings.TrimPrefix(a+"/"+b+"/"+c, "/"), HasResult: true,
								Marks: schema.MarkRelative, Result: result}, "")
						}
						if err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
	}
}

// A name loses a part only if the run made it where nothing was, it is gone, and the part
// fits a generator; or by a known maker's whole pattern.
func TestWhatCountsAsRandom(t *testing.T) {
	const pid = 4321
	nofollow := uint64(0o400000)
	if runtime.GOARCH == "arm64" {
		nofollow = 0o100000
	}
	file := func(path string, flags uint64, mode uint32) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindOpen, PID: pid, ExecID: 2, Value: path, Flags: flags, Mode: mode,
			Created: true, HasResult: true, Result: 3}
	}
	event := func(kind schema.KernelKind, path string) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: kind, PID: pid, ExecID: 2, Value: path, HasResult: true}
	}
	excl := func(path string) *schema.KernelEvent { return file(path, 0o2000302, 0o600) }
	read := func(path string) *schema.KernelEvent { return event(schema.KindOpen, path) }
	mkdir := func(path string) *schema.KernelEvent { return event(schema.KindMkdir, path) }
	private := func(path string) *schema.KernelEvent {
		e := mkdir(path)
		e.Mode = 0o700
		return e
	}
	gone := func(path string) *schema.KernelEvent { return event(schema.KindUnlink, path) }
	rmdir := func(path string) *schema.KernelEvent { return event(schema.KindRmdir, path) }
	rename := func(from, to string) *schema.KernelEvent {
		e := event(schema.KindRename, from)
		e.Target = to
		return e
	}
	run := func(path string, argv ...string) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindExec, PID: pid, ExecID: 2, Value: path, Argv: argv, HasResult: true}
	}
	perl := run("/usr/bin/perl", "perl")
	exclNoFollow := file("/tmp/q_WeRtYuIo", 0o2000302|nofollow, 0o600)
	for name, c := range map[string]struct {
		events []*schema.KernelEvent
		want   []string
	}{
		"digits that are read": {[]*schema.KernelEvent{read("/tmp/x/customer-200002.db"),
			read("/tmp/x/customer-1002003004.db")},
			[]string{"/tmp/x/customer-1002003004.db", "/tmp/x/customer-200002.db"}},
		"digits that are written and stay": {[]*schema.KernelEvent{file("/tmp/order-20260117", 0o1101, 0o644),
			excl("/tmp/order-1234567890")}, []string{"/tmp/order-1234567890", "/tmp/order-20260117"}},
		"a date that comes and goes": {[]*schema.KernelEvent{excl("/tmp/order-20260118"),
			gone("/tmp/order-20260118")}, []string{"/tmp/order-20260118"}},
		"a count that comes and goes": {[]*schema.KernelEvent{excl("/tmp/customer-200002"),
			gone("/tmp/customer-200002")}, []string{"/tmp/customer-200002"}},
		"a number of Go's": {[]*schema.KernelEvent{excl("/tmp/x1234567890.go"),
			gone("/tmp/x1234567890.go")}, []string{"/tmp/x<random>.go"}},
		"a number of Java's": {[]*schema.KernelEvent{file("/tmp/x98765432109876543210.tmp", 0o302,
			0o666), gone("/tmp/x98765432109876543210.tmp")}, []string{"/tmp/x98765432109876543210.tmp"}},
		"a smaller number of Java's": {[]*schema.KernelEvent{file("/tmp/x9876543210987654321.tmp", 0o302,
			0o666), gone("/tmp/x9876543210987654321.tmp")}, []string{"/tmp/x<random>.tmp"}},
		"not made exclusively": {[]*schema.KernelEvent{file("/tmp/x1234567890", 0o1102, 0o600),
			gone("/tmp/x1234567890"), file("/w/fooA1b2C3", 0o1102, 0o600), gone("/w/fooA1b2C3")},
			[]string{"/tmp/x1234567890", "/w/fooA1b2C3"}},
		"upper-case hexadecimal": {[]*schema.KernelEvent{read(
			"/tmp/5C496D8482142C84EBB60214D3CC58971234567"), excl("/tmp/BACKUP_DEADBEEF00123456"),
			read("/tmp/BACKUP_DEADBEEF00123457")},
			[]string{"/tmp/5C496D8482142C84EBB60214D3CC58971234567", "/tmp/BACKUP_DEADBEEF00123456",
				"/tmp/BACKUP_DEADBEEF00123457"}},
		"executed": {[]*schema.KernelEvent{excl("/tmp/fooAbC123"), run("/tmp/fooAbC123"),
			gone("/tmp/fooAbC123")}, []string{"/tmp/fooAbC123"}},
		"executed in a directory of chance": {[]*schema.KernelEvent{mkdir("/tmp/d-AbC123"), excl("/tmp/d-AbC123/run"),
			run("/tmp/d-AbC123/run"), gone("/tmp/d-AbC123/run"), rmdir("/tmp/d-AbC123")},
			[]string{"/tmp/d-AbC123", "/tmp/d-AbC123/run"}},
		"executed in one of go build": {[]*schema.KernelEvent{mkdir("/tmp/go-build123456789"),
			excl("/tmp/go-build123456789/x"), run("/tmp/go-build123456789/x")},
			[]string{"/tmp/go-build<random>", "/tmp/go-build<random>/x"}},
		"its own pid, read": {[]*schema.KernelEvent{read("/data/customer-4321.db")},
			[]string{"/data/customer-4321.db"}},
		"its own pid, left": {[]*schema.KernelEvent{excl("/data/report-4321.csv")},
			[]string{"/data/report-4321.csv"}},
		"its own pid, gone": {[]*schema.KernelEvent{mkdir("/tmp/GMfifo4321"),
			rmdir("/tmp/GMfifo4321")}, []string{"/tmp/GMfifo<pid>"}},
		"Python's directory": {[]*schema.KernelEvent{private("/tmp/x_ddfv3_4v"), rmdir("/tmp/x_ddfv3_4v"),
			private("/tmp/x_baseline"), rmdir("/tmp/x_baseline")}, []string{"/tmp/x_<random>", "/tmp/x_baseline"}},
		"what Python compiled": {[]*schema.KernelEvent{file("/w/__pycache__/m.cpython-311.pyc.139833414606064", 0o301,
			0o644), rename("/w/__pycache__/m.cpython-311.pyc.139833414606064", "/w/__pycache__/m.cpython-311.pyc")},
			[]string{"/w/__pycache__/m.cpython-311.pyc", "/w/__pycache__/m.cpython-311.pyc.<random>"}},
		"what was called so": {[]*schema.KernelEvent{read("/w/m.pyc.139833414606064")},
			[]string{"/w/m.pyc.139833414606064"}},
		"rustc's session": {[]*schema.KernelEvent{read("/w/inc/m-3o9wsa7jpx311/s-hoftz1bi0m-16vfixd.lock"),
			read("/w/inc/m-3o9wsa7jpx311/s-hoftz1bi0m-16vfixd-48kdv9cgd7sqzkj3tcrwexb9w/dep-graph.bin")},
			[]string{"/w/inc/m-3o9wsa7jpx311/s-<random>.lock", "/w/inc/m-3o9wsa7jpx311/s-<random>/dep-graph.bin"}},
		"no session": {[]*schema.KernelEvent{read("/w/s-2026-01-17"), read("/w/s-one-two.lock")},
			[]string{"/w/s-2026-01-17", "/w/s-one-two.lock"}},
		"Ruby's mktmpdir": {[]*schema.KernelEvent{mkdir("/tmp/d20260117-4321-1ab2c3"),
			excl("/tmp/d20260117-4321-1ab2c3/f"), gone("/tmp/d20260117-4321-1ab2c3/f"),
			rmdir("/tmp/d20260117-4321-1ab2c3")}, []string{"/tmp/d<random>", "/tmp/d<random>/f"}},
		"Ruby's, with a suffix, left": {[]*schema.KernelEvent{mkdir("/w/job-20260117-4321-9zq.d")},
			[]string{"/w/job-<random>.d"}},
		"a report that looks like Ruby's": {[]*schema.KernelEvent{read("/tmp/report-20260117-12-final.txt"),
			mkdir("/tmp/d20260117-99-abc")}, []string{"/tmp/d20260117-99-abc", "/tmp/report-20260117-12-final.txt"}},
		"Perl's tempfile": {[]*schema.KernelEvent{perl, exclNoFollow, gone("/tmp/q_WeRtYuIo")},
			[]string{"/tmp/<random>"}},
		"Perl's tempdir": {[]*schema.KernelEvent{perl, mkdir("/tmp/passwordXY"),
			rmdir("/tmp/passwordXY")}, []string{"/tmp/<random>"}},
		"Perl's, between others": {[]*schema.KernelEvent{perl, excl("/tmp/abNV_2xyzxyz.dat"),
			gone("/tmp/abNV_2xyzxyz.dat"), excl("/tmp/x-Ab1_"), gone("/tmp/x-Ab1_")},
			[]string{"/tmp/ab<random>.dat", "/tmp/x-<random>"}},
		"the same of another program": {[]*schema.KernelEvent{mkdir("/tmp/passwordXY"),
			rmdir("/tmp/passwordXY")}, []string{"/tmp/pass<random>"}},
		"git stash": {[]*schema.KernelEvent{file("/w/.git/index.stash.77.lock", 0o302, 0o666),
			rename("/w/.git/index.stash.77.lock", "/w/.git/index.stash.77"), read("/w/.git/index.stash.77"),
			gone("/w/.git/index.stash.77")}, []string{"/w/.git/index.stash.<pid>", "/w/.git/index.stash.<pid>.lock"}},
		"mkdtemp before a suffix": {[]*schema.KernelEvent{mkdir("/tmp/t-AbC123-work"),
			excl("/tmp/t-AbC123-work/f"), gone("/tmp/t-AbC123-work/f"), rmdir("/tmp/t-AbC123-work"),
			mkdir("/tmp/u-XyZ987.d"), rmdir("/tmp/u-XyZ987.d")},
			[]string{"/tmp/t-<random>-work", "/tmp/t-<random>-work/f", "/tmp/u-<random>.d"}},
		"beside a directory of chance": {[]*schema.KernelEvent{mkdir("/tmp/t-AbC123"),
			file("/tmp/t-AbC123.sock", 0o1101, 0o644), gone("/tmp/t-AbC123.sock"),
			file("/tmp/t-AbC124.sock", 0o1101, 0o644), gone("/tmp/t-AbC124.sock"), rmdir("/tmp/t-AbC123")},
			[]string{"/tmp/t-<random>", "/tmp/t-<random>.sock", "/tmp/t-AbC124.sock"}},
		"a directory beside one of chance": {[]*schema.KernelEvent{private("/tmp/t-SLQSEE"),
			mkdir("/tmp/t-SLQSEE.build"), rmdir("/tmp/t-SLQSEE.build"), rmdir("/tmp/t-SLQSEE"),
			mkdir("/tmp/t-SLQSES.build"), rmdir("/tmp/t-SLQSES.build")},
			[]string{"/tmp/t-<random>", "/tmp/t-<random>.build", "/tmp/t-SLQSES.build"}},
		"sessions of rustc": {[]*schema.KernelEvent{file(
			"/w/target/debug/incremental/x-0a1b/s-hd9mh1qd2x-0k9zvyy.lock", 0o102, 0o600),
			mkdir("/w/target/debug/incremental/x-0a1b/s-hd9mh1qd2x-0k9zvyy-working"),
			read("/w/target/debug/incremental/x-0a1b/s-hd9mh1qd2x-0k9zvyy-20jr9ln/dep-graph.bin")},
			[]string{"/w/target/debug/incremental/x-0a1b/s-<random>-working",
				"/w/target/debug/incremental/x-0a1b/s-<random>.lock",
				"/w/target/debug/incremental/x-0a1b/s-<random>/dep-graph.bin"}},
		"a log of npm's": {[]*schema.KernelEvent{file(
			"/w/cache/_logs/2026-11-22T12_19_43_012Z-debug-0.log", 0o101, 0o644),
			read("/c/_logs/2026-11-22T12_19_43_012Z-other.log")},
			[]string{"/c/_logs/2026-11-22T12_19_43_012Z-other.log", "/w/cache/_logs/<random>-debug-0.log"}},
		"performance data of Java's": {[]*schema.KernelEvent{file("/tmp/hsperfdata_root/4321", 0o102, 0o600),
			gone("/tmp/hsperfdata_root/4321"), read("/tmp/data_root/4321")},
			[]string{"/tmp/data_root/4321", "/tmp/hsperfdata_root/<pid>"}},
		"a number of Java's, only written": {[]*schema.KernelEvent{file("/tmp/x9876543210987654321.y", 0o301, 0o600),
			gone("/tmp/x9876543210987654321.y")}, []string{"/tmp/x<random>.y"}},
		"sqlite's": {[]*schema.KernelEvent{file("/var/tmp/etilqs_0123456789abcdef",
			0o2400302, 0o600), gone("/var/tmp/etilqs_0123456789abcdef")}, []string{"/var/tmp/etilqs_<random>"}},
		"digits where letters are as likely": {[]*schema.KernelEvent{read("/tmp/tmp12345678"), read("/tmp/cc123456.s"),
			excl("/w/foo123456"), gone("/w/foo123456")},
			[]string{"/tmp/cc123456.s", "/tmp/tmp12345678", "/w/foo123456"}},
		"words that programs use as a prefix": {[]*schema.KernelEvent{read("/tmp/sortV2Data"), read("/tmp/sedAb12Cd")},
			[]string{"/tmp/sedAb12Cd", "/tmp/sortV2Data"}},
	} {
		if diff := cmp.Diff(c.want, surfaceOf(t, c.events...).FilesystemPaths); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What was executed has its name, unless a known maker's whole pattern says otherwise.
func TestProgramsHaveTheirNames(t *testing.T) {
	exec := func(path string) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindExec, PID: 10, Value: path, HasResult: true}
	}
	got := surfaceOf(t, exec("/tmp/x/customer-200002"), exec("/tmp/job-1234567890/run"),
		exec("/tmp/go-build1234567890/b001/exe/main"),
		exec("/tmp/tmp.AbCdEfGh1j/run"), exec("/tmp/01a2032c-ba26-77a1-8abb-ee065ddf1b2f/run"))
	want := []string{"/tmp/01a2032c-ba26-77a1-8abb-ee065ddf1b2f/run", "/tmp/go-build<random>/b001/exe/main",
		"/tmp/job-1234567890/run", "/tmp/tmp.<random>/run", "/tmp/x/customer-200002"}
	if diff := cmp.Diff(want, got.ProcessExecs); diff != "" {
		t.Error(diff)
	}
}
