package shim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// Restrict puts the calling thread, and what it executes or starts, under a
// Landlock ruleset: the caller has locked it to its goroutine. The error names
// what failed.
func Restrict(r *Ruleset) error {
	c := &compiler{plan: Plan{Landlock: r}}
	c.begin()
	c.do(Landlock, "prctl PR_SET_NO_NEW_PRIVS", c.noNewPrivs)
	c.rules()
	c.restrict()
	for _, l := range c.Outcome(c.list.Run()).Layers {
		if l.State != Enforced {
			return errors.New(l.Reason)
		}
	}
	return nil
}

// rules makes the Landlock ruleset, of paths that the command's user may be
// unable to open.
func (c *compiler) rules() {
	r := c.plan.Landlock
	if r == nil {
		return
	}
	attr := c.structure(int(unsafe.Sizeof(unix.LandlockRulesetAttr{})), r.FS)
	c.l.Put(attr+8, r.Net)
	c.l.Put(attr+16, r.Scoped)
	c.do(Landlock, "landlock_create_ruleset", func() {
		c.l.Call(unix.SYS_LANDLOCK_CREATE_RULESET, attr, int(unsafe.Sizeof(unix.LandlockRulesetAttr{})), 0).Into(c.ruleset)
	})
	none := c.l.Label()
	c.l.If(steps.Value(c.ruleset), negative, negative, none)
	// A rule allows: the command can do less without one, never more. Which one
	// is missing would be told by nobody, though.
	c.do(Landlock, "landlock_add_rule", func() {
		for _, p := range r.Paths {
			c.addPath(p)
		}
		for _, p := range r.Ports {
			rule := c.structure(16, p.Access)
			c.l.Put(rule+8, uint64(p.Port))
			c.addRule(fmt.Sprintf("port %d", p.Port), landlockRuleNetPort, rule)
		}
	})
	c.l.At(none)
}

func (c *compiler) addRule(words string, kind int, rule steps.Ref) steps.Step {
	return c.call(words, unix.SYS_LANDLOCK_ADD_RULE, steps.Value(c.ruleset), kind, rule, 0)
}

// restrict puts this process, and so what it starts, under the ruleset.
func (c *compiler) restrict() {
	if c.plan.Landlock == nil {
		return
	}
	none := c.l.Label()
	c.l.If(steps.Value(c.ruleset), negative, negative, none)
	c.do(Landlock, "landlock_restrict_self", func() {
		c.l.Call(unix.SYS_LANDLOCK_RESTRICT_SELF, steps.Value(c.ruleset), c.plan.Landlock.Log)
		c.close(c.ruleset)
	})
	c.l.At(none)
}

const landlockRuleNetPort = 2 // LANDLOCK_RULE_NET_PORT

// fileAccess are the rights that a file, rather than a directory, can have.
const fileAccess = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
	unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

func (c *compiler) addPath(p PathRule) {
	next, done, file := c.l.Label(), c.l.Label(), c.l.Label()
	rule := c.structure(16, p.Access) // struct landlock_path_beneath_attr, with the descriptor at 8
	fd := rule + 8
	opened := c.call(p.Path, unix.SYS_OPENAT, unix.AT_FDCWD, p.Path, unix.O_PATH|unix.O_CLOEXEC, 0).Into(fd)
	// The kernel tells a file from a directory: it refuses to give one rights of the other.
	added := c.addRule(p.Path, unix.LANDLOCK_RULE_PATH_BENEATH, rule)
	added.On(file, unix.EINVAL)
	if p.Optional {
		opened.On(next, unix.ENOENT, unix.EACCES)
		added.On(done, unix.EBADFD) // a pipe or a socket, which no rule is about
	}
	c.l.Goto(done)
	c.l.At(file)
	if p.Access&fileAccess != 0 {
		c.l.Set(rule, p.Access&fileAccess)
		c.addRule(p.Path, unix.LANDLOCK_RULE_PATH_BENEATH, rule)
	}
	c.l.At(done)
	c.close(fd)
	c.l.At(next)
}

// words32 are integers of 32 bits in the list's data.
func (c *compiler) words32(values ...uint32) steps.Ref {
	var b []byte
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return c.l.Bytes(b)
}
