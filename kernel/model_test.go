package kernel

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// renamed are calls whose row in the table has another name than the kernel's lists: most are the 32-bit table's, where
// a call that changed its width has one name for each.
var renamed = map[string]string{
	"_llseek": "_llseek", "waitpid": "wait4", "umount": "umount", "mmap2": "mmap", "mmap": "old_mmap",
	"newfstatat": "newfstatat", "fstatat": "newfstatat", "_newselect": "select", "sync_file_range2": "sync_file_range",
	"pread": "pread64", "pwrite": "pwrite64", "renameat": "renameat", "clock_getres_time64": "clock_getres_time64",
}

// TestModelHasEveryCall compares the table with the kernel's own lists: the headers of linux-libc-dev, and those from
// which golang.org/x/sys was made. A newer one with more calls fails it.
func TestModelHasEveryCall(t *testing.T) {
	t.Parallel()
	lists := 0
	for column, list := range [][]string{
		{"/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "zsysnum_linux_amd64.go"},
		{"/usr/include/x86_64-linux-gnu/asm/unistd_32.h", "zsysnum_linux_386.go"},
		{"/usr/include/asm-generic/unistd.h", "zsysnum_linux_arm64.go"},
	} {
		have := map[int]string{}
		for name, c := range modelCalls() {
			for _, n := range c.numbers(column) {
				if have[n] != "" {
					t.Errorf("column %d: %d is %s and %s", column, n, have[n], name)
				}
				have[n] = name
			}
		}
		if have[noRow] != "" {
			t.Errorf("column %d: %s has the number that stands for every larger one", column, have[noRow])
		}
		headers, _ := filepath.Glob(list[0])
		if out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output(); err == nil {
			headers = append(headers, filepath.Join(strings.TrimSpace(string(out)), "unix", list[1]))
		}
		for _, h := range headers {
			lists++
			text, err := os.ReadFile(h)
			if err != nil {
				t.Fatal(err)
			}
			for _, wrong := range differences(have, text, filepath.Dir(h) == "/usr/include/asm-generic") {
				t.Errorf("%s: %s", h, wrong)
			}
			newer := append(text, []byte("\n#define __NR_made_up 499\n")...)
			if got := differences(have, newer, true); !slices.Equal(got, []string{"the table lacks made_up (499)"}) {
				t.Errorf("%s with one call more: %q", h, got)
			}
		}
	}
	if lists == 0 {
		t.Skip("neither linux-libc-dev nor golang.org/x/sys is here")
	}
}

// differences are the calls of a header that the table lacks or calls otherwise. generic: the header also has those of
// machines with 32 bits.
func differences(have map[int]string, header []byte, generic bool) (list []string) {
	for n, name := range callsIn(header) {
		switch is := have[n]; {
		case generic && n >= 403 && n <= 423:
		case is == "":
			list = append(list, fmt.Sprintf("the table lacks %s (%d)", name, n))
		case !sameCall(is, name):
			list = append(list, fmt.Sprintf("%d is %s, and %s in the table", n, name, is))
		}
	}
	return list
}

// callsIn reads the numbers of system calls in a header or in a file of golang.org/x/sys.
func callsIn(text []byte) map[int]string {
	calls := map[int]string{}
	line := regexp.MustCompile(`^(?:#define __NR(?:3264)?_|\s+SYS_)(\w+)\s+(?:= )?\s*(\d+)`)
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		m := line.FindStringSubmatch(s.Text())
		if m == nil {
			continue
		}
		name := strings.ToLower(m[1])
		if name == "syscalls" || name == "arch_specific_syscall" {
			continue
		}
		n, _ := strconv.Atoi(m[2])
		if calls[n] == "" {
			calls[n] = name
		}
	}
	return calls
}

// sameCall reports whether the name in the kernel's list is that of the row, but for its width.
func sameCall(row, name string) bool {
	if row == name || renamed[name] == row {
		return true
	}
	bare := func(s string) string {
		for _, suffix := range []string{"_time64", "64", "32"} {
			s = strings.TrimSuffix(s, suffix)
		}
		return s
	}
	return bare(row) == bare(name) || bare(row) == bare(strings.TrimSuffix(name, "2"))
}

// TestModelRows holds the table's form: each row has a reason, what is open says for which claims, and what is the
// caller's own opens none.
func TestModelRows(t *testing.T) {
	t.Parallel()
	if n := len(operationRows()); n > operationsMost {
		t.Errorf("%d operations, of %d", n, operationsMost)
	}
	rows := operationRows()
	for i := 1; i < len(rows); i++ {
		if rows[i-1].key == rows[i].key {
			t.Errorf("two rows of operation %#x", rows[i].key)
		}
	}
	names := map[string]bool{}
	for _, r := range Model() {
		name := r.Call + " " + r.Operation
		if names[name] && r.Call != "setsockopt" { // MCAST_* of IPv4 and IPv6
			t.Errorf("two rows of %s", name)
		}
		names[name] = true
		if r.Why == "" {
			t.Errorf("%s: no reason", name)
		}
		if open := r.Account == AccountOpen; open != (len(r.Claims) > 0) && r.Account != AccountRecorded {
			t.Errorf("%s: %s, and opens %v", name, r.Account, r.Claims)
		}
		for _, c := range r.Claims {
			if !slices.Contains(everything, c) {
				t.Errorf("%s opens %q, which is no claim", name, c)
			}
		}
	}
	if d := ModelDigest(); len(d) != len("sha256:")+64 {
		t.Errorf("digest %s", d)
	}
	if testing.Verbose() {
		fmt.Println(len(Model()), "rows")
	}
}

// The bits of own operations say the same as the rows, and leave out what has no row.
func TestOwnOperationsHaveBits(t *testing.T) {
	t.Parallel()
	rows, bits := map[uint64]Account{}, 0
	for _, r := range operationRows() {
		rows[r.key] = r.account
	}
	for at, word := range ownOperations() {
		for op := range small {
			if word>>op&1 == 0 {
				continue
			}
			bits++
			if a := rows[uint64(at/small)<<56|uint64(at%small)<<32|uint64(op)]; a != AccountOwn {
				t.Errorf("operation %d of level %d of table %d is %s", op, at%small, at/small, a)
			}
		}
	}
	if bits < 150 {
		t.Errorf("%d operations have a bit", bits)
	}
}
