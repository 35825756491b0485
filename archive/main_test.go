package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/schema"
)

// childEnv makes the test binary play a process that is killed: "record" or
// "recover", then the spool directory and the output.
const childEnv = "ARCHIVE_TEST_CHILD"

func TestMain(m *testing.M) {
	if args := strings.Split(os.Getenv(childEnv), ":"); len(args) == 3 {
		if err := playChild(args[0], args[1], args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(leaktest.Of(m).Run())
}

// playChild records a run, writing one byte to stdout for every lifecycle line
// that was accepted, or recovers one, or is killed while it writes a file.
func playChild(what, dir, output string) error {
	if what == "write" {
		return Replace(dir, func(w io.Writer) error {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			return errors.Join(self.Kill(), errors.New("still alive"))
		})
	}
	if what == "recover" {
		_, err := Recover(context.Background(), dir, testRunID, RecoverOptions{})
		return err
	}
	t := &testing.T{}
	run := schema.Run{
		RunID: testRunID, Platform: "linux", AgentShim: "none", Command: []string{"x"}, EnvKeys: []string{},
		Capture: true, Kernel: "auto", Output: output,
	}
	s, err := CreateSpool(dir, run)
	if err != nil {
		return err
	}
	for i := range 300 {
		err := s.Append(schema.EventsPath, func(b []byte, seq uint64) []byte {
			if seq == 0 {
				return fmt.Appendf(b, `{"schema":%q,"run_id":%q,"seq":0,"type":"run_started","agent_shim":"none","command":["x"],"env_keys":[],"window_elapsed_ms":0}`, schema.EventV0, testRunID)
			}
			return fmt.Appendf(b, `{"schema":%q,"run_id":%q,"seq":%d,"type":"signal_forwarded"}`, schema.EventV0,
				testRunID, seq)
		})
		if err != nil {
			return err
		}
		os.Stdout.Write([]byte{'.'})
		for range 40 {
			s.Append(schema.KernelPath, func(b []byte, seq uint64) []byte { return kernelLine(b, testRunID, seq) })
		}
		if i%100 == 99 {
			s.Sync()
		}
	}
	finish(t, s)
	_, err = s.Seal(context.Background())
	return err
}

func childCmd(what, dir, output string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what+":"+dir+":"+output)
	cmd.Stderr = os.Stderr
	return cmd
}

// killAfter runs the child for so long, then SIGKILLs it, and returns what it
// had written.
func killAfter(t *testing.T, cmd *exec.Cmd, d time.Duration) (acked int) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(d, func() { cmd.Process.Kill() })
	cmd.Wait()
	timer.Stop()
	return out.Len()
}
