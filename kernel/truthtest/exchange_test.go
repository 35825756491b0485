//go:build linux && amd64

package truthtest

import (
	"os"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

const directorySpot = "a directory or symbolic link on the way of a name may have led elsewhere while the kernel " +
	"used it: another task of the run may have changed it during the call, or it is on FUSE or a network file " +
	"system; such events say directory=claimed"

// A name whose way another task changed while the kernel used it is the right one, or its
// directory is claimed. What the only task of a run changes is no doubt.
func TestDirectoriesChangedOnTheWay(t *testing.T) {
	for _, c := range []struct {
		name    string
		claimed bool
	}{{"exchanged", true}, {"swapped-link", true}, {"moved-cwd", true}, {"exchanged-alone", false},
		{"exchanged-among-many", true}} {
		t.Run(c.name, func(t *testing.T) {
			need(t)
			dir := t.TempDir()
			// Whoever exchanges them reports that soon after, also on a busy machine.
			r := recordWith(t, dir, []string{"--kernel-buffer", "64MiB"}, nil, "nice", "-n", "-20", helper, c.name)
			if c.claimed {
				r.claims(t, schema.CodeBlindSpot)
			} else {
				r.claims(t)
			}
			made := map[string]string{} // by the last part
			out, _, _ := strings.Cut(r.out, "assay-run: ")
			for name := range strings.FieldsSeq(out) {
				made[name[strings.LastIndexByte(name, '/')+1:]] = dir + "/" + name
			}
			var all, wrong, claimed int
			for i := range r.events {
				e := &r.events[i]
				last := e.Value[strings.LastIndexByte(e.Value, '/')+1:]
				if e.Kind != schema.KindMkdir || made[last] == "" || e.Failed() {
					continue
				}
				all++
				if e.DirectoryClaimed {
					claimed++
				} else if e.Value != made[last] {
					wrong++
				}
			}
			if all != len(made) || all < 100 || wrong > 0 {
				t.Errorf("%d directories, %d in the layer, %d with the wrong name and no mark", len(made), all, wrong)
			}
			if got := blindSpot(t, r, directorySpot); got != c.claimed || claimed > 0 != c.claimed {
				t.Errorf("%d are claimed, and the blind spot is exercised: %v; want %v", claimed, got, c.claimed)
			}
			t.Logf("%d of %d are claimed", claimed, all)
		})
	}
}

// Commands that follow each other in a shell change nothing while another goes its way.
func TestChangesBeforeAProcessBeganAreNoDoubt(t *testing.T) {
	need(t)
	const commands = "mkdir a; mv a b; ln -s b l; mkdir l/c; mv l m; touch m/c/f; rm -r m/c"
	r := record(t, t.TempDir(), nil, "/bin/sh", "-c", commands)
	r.claims(t)
	for i := range r.events {
		if e := &r.events[i]; e.DirectoryClaimed {
			t.Errorf("the directory of %s %s is claimed", e.Kind, e.Value)
		}
	}
}

// Who waits for another's change and then uses the name is in no doubt: for its end, or for word over a pipe.
func TestChangesThatWereWaitedForAreNoDoubt(t *testing.T) {
	need(t, "/usr/bin/python3")
	const script = `
import os, select
os.makedirs("a/d"); open("a/d/f", "w").close()
down, up = os.pipe(), os.pipe()
def other(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid
def renames():
    for i in range(10):
        select.select([down[0]], [], [])
        os.read(down[0], 1)
        os.rename("a", "b"); os.rename("b", "a")
        os.write(up[1], b"x")
for i in range(10):
    os.waitpid(other(lambda: (os.rename("a", "b"), os.rename("b", "a"))), 0)
    os.chmod("a/d/f", 0o600)
pid = other(renames)
for i in range(10):
    os.write(down[1], b"x")
    select.select([up[0]], [], [])
    os.chmod("a/d/f", 0o644)
    os.read(up[0], 1)
os.waitpid(pid, 0)
`
	r := record(t, t.TempDir(), nil, "/usr/bin/python3", "-c", script)
	r.claims(t)
	changes := 0
	for i := range r.events {
		e := &r.events[i]
		if e.DirectoryClaimed {
			t.Errorf("the directory of %s %s is claimed", e.Kind, e.Value)
		}
		if e.Kind == schema.KindChmod {
			changes++
		}
	}
	if changes != 20 || blindSpot(t, r, directorySpot) {
		t.Errorf("%d changes, the blind spot is exercised: %v", changes, blindSpot(t, r, directorySpot))
	}
}

// The same for threads, whichever call they wait in, and for a thread that begins after the change.
func TestChangesThatThreadsWaitedForAreNoDoubt(t *testing.T) {
	need(t, "/usr/bin/python3")
	const script = `
import fcntl, os, signal, socket, threading, time
os.makedirs("a/d"); open("a/d/f", "w").close()
def change():
    os.rename("a", "b"); os.rename("b", "a")
def use():
    os.chmod("a/d/f", 0o600)
def after(wait, tell):
    ready = threading.Event()
    def waits():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        use(); ready.set(); wait(); use()
    thread = threading.Thread(target=waits)
    thread.start(); ready.wait(); time.sleep(0.02)
    change(); tell(thread)
    thread.join()
    use()
event = threading.Event()
after(event.wait, lambda _: event.set())
down, up = os.pipe()
after(lambda: os.read(down, 1), lambda _: os.write(up, b"x"))
one, other = socket.socketpair()
after(lambda: one.recv(1), lambda _: other.send(b"x"))
after(lambda: one.recvmsg(1), lambda _: other.send(b"x"))
after(lambda: signal.sigwait([signal.SIGUSR1]), lambda t: signal.pthread_kill(t.ident, signal.SIGUSR1))
held, wanted = open("lock", "w"), open("lock", "w")
fcntl.flock(held, fcntl.LOCK_EX)
after(lambda: fcntl.flock(wanted, fcntl.LOCK_EX), lambda _: fcntl.flock(held, fcntl.LOCK_UN))
change()
fresh = threading.Thread(target=use)
fresh.start(); fresh.join()
`
	r := record(t, t.TempDir(), nil, "/usr/bin/python3", "-c", script)
	r.claims(t)
	changes := 0
	for i := range r.events {
		e := &r.events[i]
		if e.DirectoryClaimed {
			t.Errorf("the directory of %s %s is claimed", e.Kind, e.Value)
		}
		if e.Kind == schema.KindChmod {
			changes++
		}
	}
	if changes < 13 { // repeats of one thread are one event
		t.Errorf("%d changes, want 13 or more", changes)
	}
}

// In a file system of a process's own, which can lead each name elsewhere, every name is doubtful.
func TestNamesInAFileSystemOfTheRunAreClaimed(t *testing.T) {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip(err)
	}
	r := reach(t, "changing")
	r.claims(t, schema.CodeBlindSpot)
	made := 0
	for i := range r.events {
		if e := &r.events[i]; e.Kind == schema.KindMkdir && strings.HasSuffix(e.Value, "/m/d/new") {
			made++
			if !e.DirectoryClaimed || e.Failed() {
				t.Errorf("%s: claimed %v, %s", e.Value, e.DirectoryClaimed, e.Errno())
			}
		}
	}
	if made != 1 {
		t.Errorf("%d directories", made)
	}
}
