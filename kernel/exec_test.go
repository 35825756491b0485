//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

func init() {
	children["memfd-exec"] = func([]string) {
		fd, err := unix.MemfdCreate("payload", 0)
		check("memfd", err)
		b, err := os.ReadFile("/bin/true")
		check("read", err)
		unix.Write(fd, b)
		check("exec", syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", fd), []string{"true"}, nil))
	}
}

func TestLongArguments(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes int
		cut   bool
	}{{"inline", 3000, false}, {"one chunk", 9000, false}, {"100 KiB", 100 << 10, false},
		{"200 KiB", 200 << 10, true}} {
		t.Run(c.name, func(t *testing.T) {
			s := observe(t, Config{})
			args := []string{"", strings.Repeat("x", 70000%c.bytes), ""}
			for n := len(args[1]); n < c.bytes; n += 100 {
				args = append(args, strings.Repeat("y", 99))
			}
			s.run(s.command("/bin/true", args...))
			s.end()
			e := s.find(schema.KindExec, nil)[0]
			if e.Truncated&schema.FieldArgv != 0 != c.cut {
				t.Errorf("truncated %v, want %v", e.Truncated&schema.FieldArgv != 0, c.cut)
			}
			want := append([]string{"/bin/true"}, args...)
			for i, a := range e.Argv {
				if i >= len(want) || a != want[i] && !(c.cut && i == len(e.Argv)-1) {
					t.Fatalf("argument %d: %.20q", i, a)
				}
			}
			if !c.cut && len(e.Argv) != len(want) {
				t.Errorf("%d arguments of %d", len(e.Argv), len(want))
			}
		})
	}
}

func TestEnvironmentKeysOnly(t *testing.T) {
	s := observe(t, Config{})
	c := s.command("/bin/true")
	c.Env = []string{"A=secret1", "EMPTY=", "LONG=" + strings.Repeat("secret2", 2000), "TRACEPARENT=00-ab-cd-01",
		"B=secret3=x", "noequals",
		"ASSAY_TOOL_CALL_ID=call-7"}
	s.run(c)
	s.end()
	e := s.find(schema.KindExec, nil)[0]
	if got := strings.Join(e.EnvKeys, " "); got != "A EMPTY LONG TRACEPARENT B ASSAY_TOOL_CALL_ID" {
		t.Errorf("keys %q", got)
	}
	if e.CallInEnv != "call-7" || e.Traceparent != "00-ab-cd-01" || e.Truncated&schema.FieldEnvKeys != 0 ||
		e.Marks&schema.MarkUnreadable != 0 {
		t.Errorf("%s", describe(e))
	}
}

// A tool call's id is read whole and wherever it stands, or not at all.
func TestToolCallIDInALargeEnvironment(t *testing.T) {
	names := 20_000
	if testing.Short() {
		names = 4000
	}
	many := make([]string, names)
	for i := range many {
		many[i] = fmt.Sprintf("NAME_%05d=value", i)
	}
	longest := strings.Repeat("x", 128)
	for name, c := range map[string]struct {
		env []string
		id  string
		cut bool
	}{
		"after more names than are kept": {append(slices.Clip(many[:1000]), "ASSAY_TOOL_CALL_ID=call-7"), "call-7",
			true},
		"after many more":         {append(slices.Clip(many), "ASSAY_TOOL_CALL_ID=call-7"), "call-7", true},
		"of the longest there is": {[]string{"ASSAY_TOOL_CALL_ID=" + longest}, longest, false},
		"longer than that":        {[]string{"ASSAY_TOOL_CALL_ID=" + longest + "x"}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := observe(t, Config{})
			cmd := s.command("/bin/true")
			cmd.Env = c.env
			s.run(cmd)
			s.end()
			if e := s.find(schema.KindExec, nil)[0]; e.CallInEnv != c.id ||
				e.Truncated&schema.FieldEnvKeys != 0 != c.cut || e.Marks&schema.MarkUnreadable != 0 {
				t.Errorf("id %q, truncated %v; want %q, %v", e.ToolCallID, e.Truncated&schema.FieldEnvKeys != 0, c.id,
					c.cut)
			}
		})
	}
}

func TestMemfdExec(t *testing.T) {
	s, _, err := observed(t, "memfd-exec", nil)
	if err != nil {
		t.Fatal(err)
	}
	execs := s.find(schema.KindExec, nil)
	if last := execs[len(execs)-1]; last.Marks&schema.MarkMemfd == 0 || last.Value != "/memfd:payload" {
		t.Errorf("%s", describe(last))
	}
}
