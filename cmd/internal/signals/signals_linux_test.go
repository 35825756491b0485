package signals

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// child in the environment makes the test binary catch, send itself what that names, and print what came.
const child = "ASSAY_TEST_SIGNALS"

func TestMain(m *testing.M) {
	if list := os.Getenv(child); list != "" {
		began := time.Now()
		caught := Catch()
		caught.Wait()
		if list == flood {
			floodSelf(caught)
			os.Exit(0)
		}
		for word := range strings.FieldsSeq(list) {
			var n syscall.Signal
			fmt.Sscan(word, (*int)(&n))
			_ = unix.Kill(os.Getpid(), n)
			time.Sleep(10 * time.Millisecond)
			if before := caught.Ended(); before.After(began) && n == syscall.SIGTERM {
				fmt.Print("early ") // nobody has received it
			}
			select {
			case got := <-caught.C:
				fmt.Printf("%d ", int(got.(syscall.Signal)))
			case <-time.After(lost):
				fmt.Printf("(%d) ", int(n))
				os.Exit(0)
			}
		}
		if caught.Ended().After(began) {
			fmt.Print("ended ")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// flood in the environment makes the test binary flood itself before it looks at what came.
const flood = "flood"

// lost is when a signal counts as lost. None is late by itself: only a busy machine delays one.
const lost = 2 * time.Minute

// floodSelf sends far more than the channel holds, then others, and prints which came.
func floodSelf(caught *Caught) {
	for range 100_000 {
		_ = unix.Kill(os.Getpid(), syscall.SIGUSR1)
	}
	for _, n := range []syscall.Signal{syscall.SIGUSR2, syscall.SIGTERM, 40} {
		_ = unix.Kill(os.Getpid(), n)
	}
	came := map[os.Signal]bool{}
	for late := time.After(lost); len(came) < 4; {
		select {
		case n := <-caught.C:
			came[n] = true
			continue
		case <-late:
		}
		break
	}
	fmt.Print(came[syscall.SIGUSR1], came[syscall.SIGUSR2], came[syscall.SIGTERM], came[syscall.Signal(40)])
}

// Any process of the same user can send as many as it likes: a signal that comes behind
// them must end the run nevertheless.
func TestAFloodHidesNoOtherSignal(t *testing.T) {
	if got, want := sent(t, flood), "true true true true"; got != want {
		t.Errorf("SIGUSR1, SIGUSR2, SIGTERM and SIGRTMIN+6 came: %s, want %s", got, want)
	}
}

// TestEnded tells what ends a run from what its command may want to hear.
func TestEnded(t *testing.T) {
	for signals, want := range map[string]string{
		"15": "15 ended", "2": "2", "2 2": "2 2 ended", "1 3 10 2": "1 3 10 2", "2 15": "2 15 ended",
	} {
		if got := sent(t, signals); got != want {
			t.Errorf("after %s: %q, want %q", signals, got, want)
		}
	}
}

// sent is what a child says of the signals that it sends itself: the first that does not come
// is in parentheses, and the last.
func sent(t *testing.T, all string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), child+"="+all)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestEverySignalThatCanBePassedOnComes(t *testing.T) {
	all := "1 2 3 6 10 12 14 15 18 20 24 25 26 28 29"
	for n := 35; n <= 64; n++ {
		all += fmt.Sprint(" ", n)
	}
	if got, want := sent(t, all), all+" ended"; got != want { // SIGTERM is one of them
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestASignalThatWasBlockedAtTheStartComes(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set, old := unix.Sigset_t{}, unix.Sigset_t{}
	set.Val[0] = 1<<(unix.SIGUSR1-1) | 1<<(40-1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }()
	if got, want := sent(t, "10 40 12 41"), "10 40 12 41"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
