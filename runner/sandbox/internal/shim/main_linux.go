package shim

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// exitShim is the exit status of a shim that could not do its work.
const exitShim = 125

// entered tells whether this program becomes a shim when it is started as one.
var entered bool

// ErrNone is what a program gets that cannot become a shim.
var ErrNone = errors.New(`this program cannot start the helper process that a sandbox needs: import _ "github.com/assay-run/assay-run/runner/sandbox/reexec" in its main package`)

// Available is nil, or ErrNone.
func Available() error {
	if !entered {
		return ErrNone
	}
	return nil
}

// Enter becomes the shim that this process was started as, and then exits. It
// returns where it was not.
func Enter() {
	entered = true
	if len(os.Args) == 4 && os.Args[0] == Name && os.Args[1] == Arg {
		os.Exit(Main(os.Args))
	}
}

// Is reports whether argv is a shim's. It does not tell whose program it is:
// compare the executable.
func Is(argv []string) bool { return len(argv) == 4 && argv[0] == Name && argv[1] == Arg }

// Main is the shim's process.
func Main(args []string) int {
	control, err1 := strconv.Atoi(args[2])
	planFD, err2 := strconv.Atoi(args[3])
	if errors.Join(err1, err2) != nil || control < 3 || planFD < 3 {
		return exitShim
	}
	unix.CloseOnExec(control)
	unix.CloseOnExec(planFD)
	s := &shim{conn: &Conn{os.NewFile(uintptr(control), "control")}}
	plan := os.NewFile(uintptr(planFD), "plan")
	data, err := io.ReadAll(io.NewSectionReader(plan, 0, 1<<24))
	if err != nil || json.Unmarshal(data, &s.plan) != nil {
		return exitShim
	}
	if s.plan.Clone != 0 {
		return s.again(control, planFD)
	}
	plan.Close()
	return s.run()
}

// shim is the state of Main.
type shim struct {
	plan    Plan
	conn    *Conn
	reports map[string]*Report
	order   []string
	ops     []string
	stopped string // the layer that ended it all
	ruleset int    // Landlock's; 0 for none
	missing []Unusable
}

// errStop ends the shim because a layer that is needed failed.
var errStop = errors.New("a layer failed")

// enter says that a layer is being built.
func (s *shim) enter(layer string) {
	if s.reports == nil {
		s.reports = map[string]*Report{}
	}
	if s.reports[layer] == nil {
		s.reports[layer] = &Report{Layer: layer, State: Enforced}
		s.order = append(s.order, layer)
	}
}

// do performs one operation of a layer. An error of it degrades the layer, or
// is errStop where the plan does not allow that.
func (s *shim) do(layer, op string, f func() error) error {
	if slices.Contains(s.plan.Without, layer) {
		return nil
	}
	s.enter(layer)
	s.ops = append(s.ops, op)
	err := error(unix.EPERM)
	if s.plan.Fail != op {
		err = f()
	}
	if err == nil {
		return nil
	}
	r := s.reports[layer]
	if r.State == Enforced {
		r.State, r.Reason = Degraded, op+": "+err.Error()
		var errno unix.Errno
		if errors.As(err, &errno) {
			r.Errno = int(errno)
		}
	}
	if !s.plan.Degrade {
		s.stopped = layer
		return errStop
	}
	return nil
}

func (s *shim) tell() error {
	m := Message{Kind: KindLayers, Stopped: s.stopped, Unusable: s.missing}
	for _, name := range s.order {
		m.Layers = append(m.Layers, *s.reports[name])
	}
	if s.plan.Probe {
		m.Operations = s.ops
	}
	return s.conn.Send(m, -1)
}

// run builds the layers, and starts the command from the thread that has them
// all. The other threads of an init keep what they have: above all the main
// one, which /proc takes for the process.
func (s *shim) run() int {
	code := make(chan int)
	pid := make(chan int)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends here
		err := s.build()
		if terr := s.tell(); err != nil || terr != nil {
			code <- exitShim
			return
		}
		switch {
		case s.plan.Probe:
			code <- 0
		case s.plan.Init:
			if child, err := s.start(); err != nil {
				code <- s.failed(err)
			} else {
				pid <- child
			}
		default:
			code <- s.failed(syscall.Exec(s.plan.Path, s.plan.Args, exactEnviron()))
		}
	}()
	select {
	case c := <-code:
		return c
	case child := <-pid:
		return s.wait(child)
	}
}

func (s *shim) failed(err error) int {
	m := Message{Kind: KindFailed, Op: "fork/exec"}
	var errno unix.Errno
	if errors.As(err, &errno) {
		m.Errno = int(errno)
	}
	_ = s.conn.Send(m, -1)
	return exitShim
}

// build is all layers, in the one order in which each can still do its part.
func (s *shim) build() error {
	for _, step := range []func() error{s.process, s.mounts, s.network, s.rules, s.privileges, s.restrict, s.filter} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// process keeps the shim itself out of the command's reach, and everything that
// it was not given out of the command's hands.
func (s *shim) process() error {
	err := s.do(Privileges, "prctl PR_SET_DUMPABLE", func() error {
		if !s.plan.Init {
			return nil // exec makes it dumpable again, and the command's own
		}
		return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	})
	if err != nil {
		return err
	}
	return s.do(Privileges, "close_range", func() error {
		return unix.CloseRange(uint(3+s.plan.Keep), ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC)
	})
}

// exactEnviron is the environment that was given, which os.Environ would tidy.
func exactEnviron() []string {
	return syscall.Environ()
}
