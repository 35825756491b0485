//go:build linux && amd64

package truthtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// attacks are the rows of docs/truth.md on attacks, by how they begin, each with the tests or scripts that make them
// and what those call them.
var attacks = []struct {
	row   string
	tests []string
	cases []string
}{
	{"a thread changes the name during `unlink`", []string{"TestNamesAreTheKernelsCopies"}, []string{"flipped"}},
	{"an asynchronous read with `O_DIRECT`", []string{"TestNamesAreTheKernelsCopies"}, []string{"read-into"}},
	{"a thread, a `clone` with shared memory", []string{"TestNamesChangedDuringTheCall"},
		[]string{"changed-by-thread", "changed-by-clone", "changed-in-shared", "changed-in-file"}},
	{"a thread puts another file", []string{"TestFilesPutOnNewDescriptors", "TestFilesPutWhereTheNameLedBefore"},
		[]string{"replaced", "replaced-known"}},
	{"makes files of its own below `/proc`", []string{"TestFalseProc"}, []string{"false_proc"}},
	{"a thread changes the name of an extended", []string{"TestWhatIsReadFromSharedMemoryIsClaimed"},
		[]string{"attribute-shared"}},
	{"another process exchanges directories", []string{"TestDirectoriesChangedOnTheWay"},
		[]string{"exchanged", "swapped-link"}},
	{"makes a directory in a file system (FUSE)", []string{"TestNamesInAFileSystemOfTheRunAreClaimed"},
		[]string{"changing"}},
	{"a third process changes so many", []string{"TestDirectoriesChangedOnTheWay"},
		[]string{"exchanged-among-many"}},
	{"both names of a `rename`", []string{"TestTwoNamesFromOnePlace"}, []string{"one-name-twice"}},
	{"a thread changes the current directory", []string{"TestDirectoriesChangedOnTheWay"}, []string{"moved-cwd"}},
	{"the only task of a run exchanges", []string{"TestDirectoriesChangedOnTheWay"}, []string{"exchanged-alone"}},
	{"another process renames a directory", []string{"TestChangesThatWereWaitedForAreNoDoubt"}, nil},
	{"`chmod`, `chown`, `truncate`", []string{"TestChangesThroughLinks"}, []string{"through-links"}},
	{"a thread changes the flags of `openat2`", []string{"TestFlippedModes", "TestFlippedNamespaces"},
		[]string{"flipped-modes", "flipped-namespaces"}},
	{"`openat2` with a size", []string{"TestOddArguments"}, []string{"odd-arguments"}},
	{"a name that is too long", []string{"TestOddArguments"}, []string{"odd-arguments"}},
	{"an open file whose name is removed", []string{"TestOddArguments"}, []string{"odd-arguments"}},
	{"a run passes a descriptor to itself", []string{"TestSecondControlMessage"}, []string{"second-control"}},
	{"a server outside hands a file over", []string{"TestFilesHandedOver"},
		[]string{"served", "served_by_datagram", "served_before_connecting", "listens_for_others"}},
	{"a thread could have hidden", []string{"TestFilesHandedOver"}, []string{"served_bytes_by_thread"}},
	{"a connected socket is inherited, received", []string{"TestSocketsFromElsewhere", "TestInheritedSockets",
		"TestInheritedSocketsInIOUring", "TestSocketsTakenFromProcesses"},
		[]string{"received", "received_behind", "inherited", "uring-inherited", "taken"}},
	{"a connected socket comes behind", []string{"TestSocketsReceivedByIOUring"}, []string{"uring-received"}},
	{"one of them is read by `TCP_ZEROCOPY", []string{"TestInheritedSockets", "TestInheritedSocketsInIOUring"},
		[]string{"inherited", "uring-inherited"}},
	{"a packet socket is made as", []string{"TestPeerSetNeedsEveryWayOut"}, []string{"other_packet"}},
	{"begins with a ring of io_uring", []string{"TestPowersAtTheStart"}, []string{"unused"}},
	{"a DNS question goes over one", []string{"TestQuestionsOverSocketsFromElsewhere"}, []string{"handed_question"}},
	{"a server of MPTCP announces", []string{"TestAddressesThatServersAnnounce"}, []string{"announced"}},
	{"a connected socket is inherited and not used", []string{"TestDescriptorsAtTheStart"}, []string{"unused"}},
	{"a process with threads receives it", []string{"TestSocketsFromElsewhere"}, []string{"received_by_thread"}},
	{"a process outside gets a listener", []string{"TestSocketsFromElsewhere"}, []string{"listener_given_away"}},
	{"a process outside gets a socket", []string{"TestSocketsConnectedByOthers"}, []string{"given_away"}},
	{"opens `core_pattern` to write", []string{"TestReachingBeyondTheRun"},
		[]string{"second_proc", "bound_helper", "other_root"}},
	{"opens `register` of a `binfmt_misc`", []string{"TestReachingBeyondTheRun"}, []string{"other_binfmt"}},
	{"makes a call for which the kernel starts", []string{"TestProgramsThatTheKernelStarts"},
		[]string{"asks-the-kernel", "crash"}},
	{"crashes, and the kernel writes", []string{"run_evasion.txtar"}, []string{"core_dump"}},
	{"opens the memory of a process outside", []string{"TestReachingBeyondTheRun", "TestPowersAtTheStart"},
		[]string{"second_proc", "memory_read", "read_memory"}},
	{"loads a kernel module, or a BPF", []string{"TestReachingBeyondTheRun", "TestPowersBeyondTheHooks"},
		[]string{"bpf_tracing", "a module", "another kernel"}},
	{"moves a process from outside", []string{"TestReachingBeyondTheRun"}, []string{"moved_in"}},
	{"loads a BPF program that packets", []string{"TestPeerSetNeedsEveryWayOut"}, []string{"bpf_packets"}},
	{"changes interfaces, routes or rules", []string{"TestNetworksThatWereChanged"},
		[]string{"a tunnel", "a route", "an address by ioctl"}},
	{"mounts a file system that is not", []string{"TestPeerSetNeedsEveryWayOut", "TestPowersBeyondTheHooks"},
		[]string{"unknown_file_system", "one that a server refused"}},
	{"makes a tunnel of another device", []string{"TestPeerSetNeedsEveryWayOut"}, []string{"other_tun"}},
	{"changes the limits, the priority", []string{"TestActsOnProcessesOutside", "TestVariants"},
		[]string{"limited", "priority", "scheduled", "process_madvise", "move_pages"}},
	{"names a process outside with `F_SETOWN`", []string{"TestActsOnProcessesOutside"}, []string{"owned"}},
	{"gives a process outside a limit", []string{"TestActsOnProcessesOutside"}, []string{"overrun"}},
	{"has the kernel signal a process outside", []string{"TestActsOnProcessesOutside", "TestCgroupsOfOthersKilled"},
		[]string{"resized", "killed_by_cgroup"}},
	{"runs while a timer of a process", []string{"TestActsOnProcessesOutside"}, []string{"waited_for_timers"}},
	{"changes the priority of all processes", []string{"TestActsOnTheRecorder"},
		[]string{"everyone", "oom_score", "taken_from"}},
	{"does one of these to the recorder", []string{"TestActsOnTheRecorder"},
		[]string{"limited", "owned", "stop", "priority"}},
	{"kills the recorder's guard", []string{"TestActsOnTheRecorder"}, []string{"guard"}},
	{"sends the recorder a signal or traces it", []string{"TestActsOnTheRecorder"},
		[]string{"namespace", "stop", "ptrace"}},
}

// Each row of the table has a test, and nothing is tested that the table does not have.
func TestTheTableOfAttacks(t *testing.T) {
	doc := string(must(os.ReadFile("../../docs/truth.md")))
	var rows []string
	inside := false
	for line := range strings.Lines(doc) {
		switch {
		case strings.HasPrefix(line, "| attack |"):
			inside = true
		case !strings.HasPrefix(line, "|"):
			inside = false
		case inside && !strings.HasPrefix(line, "|---"):
			rows = append(rows, strings.TrimPrefix(line, "| "))
		}
	}
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", "../*_test.go", "../layer/*_test.go"} {
		for _, name := range must(filepath.Glob(pattern)) {
			if name != "table_test.go" {
				code.Write(must(os.ReadFile(name)))
			}
		}
	}
	var want []string
	for _, a := range attacks {
		want = append(want, a.row)
		for _, name := range a.tests {
			if strings.HasSuffix(name, ".txtar") {
				code.Write(must(os.ReadFile("../../cmd/assay-run/testdata/script/" + name)))
			} else if !strings.Contains(code.String(), "\nfunc "+name+"(t *testing.T)") {
				t.Errorf("%s: there is no %s", a.row, name)
			}
		}
		for _, name := range a.cases {
			if !strings.Contains(code.String(), `"`+name+`"`) && !strings.Contains(code.String(), " "+name+" ") {
				t.Errorf("%s: no test has the case %s", a.row, name)
			}
		}
	}
	for i, row := range rows {
		if at := slices.IndexFunc(want, func(w string) bool { return strings.HasPrefix(row, w) }); at >= 0 {
			rows[i] = want[at]
		}
	}
	if d := cmp.Diff(want, rows); d != "" {
		t.Errorf("rows of docs/truth.md (-tested +there):\n%s", d)
	}
}
