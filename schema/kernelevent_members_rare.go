package schema

import (
	"errors"
	"fmt"
)

// rare reads the members that most lines do not have.
func (d *kernelDecoder) rare(m member) (err error) {
	e := d.e
	var n uint64
	var set uint8
	var s []byte
	switch m {
	case mClass:
		s, err = d.str()
		class, ok := ParseClass(string(s))
		if err == nil && (!ok || class == ClassAgent) {
			err = fmt.Errorf("%.64q is not known", s)
		}
		e.Class = class
	case mPathSource:
		if s, err = d.str(); err != nil {
			return err
		}
		e.UserMemory, e.KernelCopy = string(s) == "user_memory", string(s) == "kernel_copy"
		if !e.UserMemory && !e.KernelCopy {
			err = fmt.Errorf("is %.64q, want \"user_memory\" or \"kernel_copy\"", s)
		}
	case mPPID:
		e.PPID, err = d.uint32(1)
	case mParentExecID:
		e.ParentExecID, err = d.uint64(1)
	case mCgroupID:
		e.CgroupID, err = d.uint64(0)
	case mTarget:
		e.Target, err = d.text(1)
	case mGiven:
		e.Given, err = d.text(1)
	case mTargetGiven:
		e.TargetGiven, err = d.text(1)
	case mArguments:
		e.Claimed, err = true, d.constant("claimed")
	case mDirectory:
		e.DirectoryClaimed, err = true, d.constant("claimed")
	case mExe:
		e.Exe, err = d.text(1)
	case mCwd:
		e.Cwd, err = d.text(1)
	case mArgv:
		e.Argv, err = d.texts(0)
	case mEnvKeys:
		e.EnvKeys, err = d.texts(0)
	case mExitCode:
		d.exit, err = d.unsigned(0, 255)
	case mSignal:
		d.signal, err = d.str()
	case mCoreDumped:
		err = d.only()
	case mMarks:
		set, err = d.set(markNames[:])
		e.Marks = Marks(set)
	case mNetworkDestination:
		d.host, err = d.str()
	case mNetworkPort:
		d.port, err = d.uint64(0)
	case mRuleID:
		e.RuleID, err = d.uint64(0)
	case mProtocol:
		e.Protocol, err = d.text(1)
	case mLocal:
		e.Local, err = d.text(1)
	case mPeers:
		e.Peers, err = d.uint64(1)
	case mRemote:
		e.Remote, err = d.text(1)
	case mNames:
		e.Names, err = d.texts(1)
	case mDNS:
		e.DNS, err = d.dns()
	case mCall:
		e.Call, err = d.text(1)
	case mArgs:
		e.Args = []uint64{}
		err = d.array(func() error {
			n, err = d.uint64(0)
			e.Args = append(e.Args, n)
			return err
		})
	case mTruncated:
		set, err = d.set(fieldNames[:])
		e.Truncated = Fields(set)
	case mToolCallID:
		e.ToolCallID, err = d.text(1)
	case mBoundBy:
		e.BoundBy, err = d.text(1)
	case mCheck:
		e.Check, err = d.text(1)
	case mPhase:
		e.Baseline, err = true, d.constant("baseline")
	case mContainerID:
		e.ContainerID, err = d.text(1)
		if err == nil && !isContainerID(e.ContainerID) {
			err = errors.New("is not 64 lower-case hex digits")
		}
	case mLate:
		e.Late, err = true, d.only()
	case mRaw:
		d.raw, err = d.rawTexts()
	}
	return err
}

// constant reads the one text that a member can have.
func (d *kernelDecoder) constant(want string) error {
	s, err := d.str()
	if err == nil && string(s) != want {
		err = fmt.Errorf("is %.64q, want %q", s, want)
	}
	return err
}

// dns reads the message of a dns event.
func (d *kernelDecoder) dns() (*DNSMessage, error) {
	m := &DNSMessage{}
	err := d.closed([]string{"type", "response", "rcode", "answers"}, 1, func(i int) (err error) {
		switch i {
		case 0:
			m.Type, err = d.text(0)
		case 1:
			m.Response, err = true, d.only()
		case 2:
			m.RCode, err = d.text(1)
		case 3:
			err = d.array(func() error {
				a, err := d.dnsAnswer()
				m.Answers = append(m.Answers, a)
				return err
			})
			if err == nil && len(m.Answers) == 0 {
				err = errors.New("is empty")
			}
		}
		return err
	})
	return m, err
}

func (d *kernelDecoder) dnsAnswer() (a DNSAnswer, err error) {
	err = d.closed([]string{"name", "type", "data"}, 2, func(i int) (err error) {
		switch i {
		case 0:
			a.Name, err = d.text(0)
		case 1:
			a.Type, err = d.text(0)
		case 2:
			a.Data, err = d.text(1)
		}
		return err
	})
	return a, err
}

// closed reads an object that has no keys but these, each once at most, and the
// first required of them. value reads the value of the key with an index.
func (d *kernelDecoder) closed(keys []string, required int, value func(i int) error) error {
	var have members
	err := d.object(func(key []byte) error {
		for i, k := range keys {
			if k == string(key) && !have.has(member(i)) {
				have |= 1 << i
				return value(i)
			}
		}
		return fmt.Errorf("key %.100q is not known, or repeated", key)
	})
	if want := members(1)<<required - 1; err == nil && have&want != want {
		err = fmt.Errorf("one of %q is missing", keys[:required])
	}
	return err
}

// rawTexts reads the member raw: base64 by the name of a field.
func (d *kernelDecoder) rawTexts() (map[string]string, error) {
	raw := make(map[string]string)
	err := d.object(func(key []byte) (err error) {
		name := string(key)
		if _, twice := raw[name]; twice {
			return fmt.Errorf("key %.100q is repeated", name)
		}
		raw[name], err = d.text(1)
		return err
	})
	if err == nil && len(raw) == 0 {
		err = errors.New("is empty")
	}
	return raw, err
}

// isContainerID holds what the schema asks of the id of a container.
func isContainerID(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 64
}
