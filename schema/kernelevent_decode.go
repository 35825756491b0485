package schema

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"
)

// DecodeKernelEvent reads one line, without its newline, into e, which it
// overwrites. It is what every reader of the kernel layer uses. Both
// kernel_event.v1 and the closed v0 form are read; v0 leaves what only v1 has at
// its default and sets V0.
//
// It accepts what the JSON Schemas accept, unless a derived value contradicts what
// it derives from or a number does not fit its field. Errors wrap [ErrSyntax],
// [ErrDuplicateKey] or [ErrSchema], and leave e in any state. Strings of e do not
// refer to line. e may be used again for the next line; slices in it are new for
// each.
func DecodeKernelEvent(line []byte, e *KernelEvent) error {
	d := kernelDecoder{scanner: scanner{b: line}, e: e, run: e.RunID}
	*e = KernelEvent{}
	err := d.line()
	if err == nil {
		return nil
	}
	if serr := checkSyntax(line); serr != nil {
		return serr
	}
	if errors.Is(err, errNotJSON) {
		// The scanner is as strict as JSON is, so this is a defect of ours.
		return fmt.Errorf("%w: the line cannot be read", ErrSchema)
	}
	return fmt.Errorf("%w: %s", ErrSchema, oneLine(err.Error()))
}

// kernelDecoder reads one line. Its scanner finds the members, member reads each, and rules checks what they say
// against each other.
type kernelDecoder struct {
	scanner
	e    *KernelEvent
	run  string // the run id of the line before, whose string is used again
	have members

	// What follows from other members, and is held against them.
	kind, access, status, errno, host []byte
	ops, port                         uint64

	exit   uint64
	signal []byte
	raw    map[string]string
}

func (d *kernelDecoder) line() error {
	next := member(0)
	err := d.object(func(key []byte) error {
		m, ok := memberOf(key, next)
		if !ok {
			return fmt.Errorf("key %.100q is not known", key)
		}
		if d.have.has(m) {
			return fmt.Errorf("key %q is repeated", key)
		}
		d.have |= 1 << m
		next = m + 1
		if err := d.member(m); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err == nil {
		err = d.end()
	}
	if err == nil {
		err = d.rules()
	}
	return err
}

// text reads a string of at least min bytes.
func (d *kernelDecoder) text(min int) (string, error) {
	s, err := d.str()
	if err == nil && len(s) < min {
		err = errors.New("is empty")
	}
	return string(s), err
}

// texts reads an array of at least min strings; it is not nil.
func (d *kernelDecoder) texts(min int) ([]string, error) {
	list := []string{}
	err := d.array(func() error {
		s, err := d.str()
		list = append(list, string(s))
		return err
	})
	if err == nil && len(list) < min {
		err = errors.New("is empty")
	}
	return list, err
}

// set reads an array of one or more different names into the bits of a set.
func (d *kernelDecoder) set(names []string) (set uint8, err error) {
	err = d.array(func() error {
		s, err := d.str()
		if err != nil {
			return err
		}
		i := slices.Index(names, string(s))
		if i < 0 || set&(1<<i) != 0 {
			return fmt.Errorf("%.100q is not known, or repeated", s)
		}
		set |= 1 << i
		return nil
	})
	if err == nil && set == 0 {
		err = errors.New("is empty")
	}
	return set, err
}

// only reads a value that can be nothing but true.
func (d *kernelDecoder) only() error {
	if !d.word("true") {
		return errors.New("is not true")
	}
	return nil
}

// unsigned reads a whole number between least and most.
func (d *kernelDecoder) unsigned(least, most uint64) (uint64, error) {
	n, err := d.number()
	if err != nil {
		return 0, err
	}
	v, ok := natural(n)
	switch {
	case !ok || v < least:
		return 0, fmt.Errorf("%.40s is not a whole number from %d to %d", n, least, most)
	case v > most:
		return 0, fmt.Errorf("%w: %d, at most %d", errRange, v, most)
	}
	return v, nil
}

func (d *kernelDecoder) uint32(least uint64) (uint32, error) {
	v, err := d.unsigned(least, math.MaxUint32)
	return uint32(v), err
}

func (d *kernelDecoder) uint64(least uint64) (uint64, error) {
	return d.unsigned(least, math.MaxUint64)
}

func (d *kernelDecoder) int64() (int64, error) {
	n, err := d.number()
	if err != nil {
		return 0, err
	}
	return signed(n)
}

// member is a key of a kernel event, members a set of them.
type (
	member  uint8
	members uint64
)

func (s members) has(m member) bool { return s&(1<<m) != 0 }

// The members, those of most lines first, in the order they are written.
const (
	mSchema member = iota
	mRunID
	mSeq
	mTNS
	mPID
	mTID
	mExecID
	mEventType
	mKind
	mValue
	mFlags
	mMode
	mResolve
	mCreated
	mReturnValue
	mAccessMode
	mOperationFlags
	mStatus
	mErrno
	mClass
	mPathSource
	mCount
	mTFirstNS
	mTLastNS
	mBytesOut
	mBytesIn
	mPPID
	mParentExecID
	mCgroupID
	mTarget
	mGiven
	mTargetGiven
	mArguments
	mDirectory
	mExe
	mCwd
	mArgv
	mEnvKeys
	mExitCode
	mSignal
	mCoreDumped
	mMarks
	mNetworkDestination
	mNetworkPort
	mRuleID
	mProtocol
	mLocal
	mPeers
	mRemote
	mNames
	mDNS
	mCall
	mArgs
	mTruncated
	mToolCallID
	mBoundBy
	mCheck
	mPhase
	mContainerID
	mLate
	mRaw
	numMembers
)

var memberNames = [numMembers]string{
	mSchema: "schema", mRunID: "run_id", mSeq: "seq", mTNS: "t_ns", mPID: "pid", mTID: "tid", mExecID: "exec_id",
	mEventType: "event_type", mKind: "kind", mValue: "value", mFlags: "flags", mMode: "mode", mResolve: "resolve",
	mCreated:     "created",
	mReturnValue: "return_value", mAccessMode: "access_mode", mOperationFlags: "operation_flags", mStatus: "status",
	mErrno: "errno", mClass: "class", mPathSource: "path_source", mCount: "count", mTFirstNS: "t_first_ns",
	mTLastNS: "t_last_ns", mBytesOut: "bytes_out", mBytesIn: "bytes_in", mPPID: "ppid", mParentExecID: "parent_exec_id",
	mCgroupID: "cgroup_id", mTarget: "target", mGiven: "given", mTargetGiven: "target_given", mArguments: "arguments",
	mDirectory: "directory",
	mExe:       "exe", mCwd: "cwd", mArgv: "argv", mEnvKeys: "env_keys",
	mExitCode: "exit_code", mSignal: "signal", mCoreDumped: "core_dumped", mMarks: "marks",
	mNetworkDestination: "network_destination", mNetworkPort: "network_port", mRuleID: "rule_id", mProtocol: "protocol",
	mLocal: "local", mPeers: "peers", mRemote: "remote", mNames: "names", mDNS: "dns", mCall: "call", mArgs: "args",
	mTruncated: "truncated", mToolCallID: "tool_call_id", mBoundBy: "bound_by", mCheck: "check", mPhase: "phase",
	mContainerID: "container_id", mLate: "late", mRaw: "raw",
}

var memberIndex = sync.OnceValue(func() map[string]member {
	index := make(map[string]member, numMembers)
	for m, name := range memberNames {
		index[name] = member(m)
	}
	return index
})

// memberOf finds a key, most often close behind the one before it.
func memberOf(key []byte, after member) (m member, ok bool) {
	for m = after; m < min(after+6, numMembers); m++ {
		if memberNames[m] == string(key) {
			return m, true
		}
	}
	m, ok = memberIndex()[string(key)]
	return m, ok
}

const (
	requiredMembers = members(1<<mSchema | 1<<mRunID | 1<<mSeq | 1<<mPID | 1<<mEventType | 1<<mKind | 1<<mValue)
	v0Members       = requiredMembers | 1<<mFlags | 1<<mMode | 1<<mResolve | 1<<mReturnValue | 1<<mAccessMode |
		1<<mOperationFlags |
		1<<mStatus | 1<<mCgroupID | 1<<mNetworkDestination | 1<<mNetworkPort | 1<<mRuleID
)

// member reads the value of one member. What v0 has otherwise is left to rules.
func (d *kernelDecoder) member(m member) (err error) {
	e := d.e
	var n uint64
	var s []byte
	var set uint8
	switch m {
	case mSchema:
		if s, err = d.str(); err == nil && string(s) != KernelEventV1 && string(s) != KernelEventV0 {
			err = fmt.Errorf("is %.100q, want %q or %q", s, KernelEventV1, KernelEventV0)
		}
		e.V0 = string(s) == KernelEventV0
	case mRunID:
		if s, err = d.str(); string(s) == d.run {
			e.RunID = d.run // one string for all lines of a run
		} else {
			e.RunID = string(s)
		}
		if err == nil && !isRunID(e.RunID) {
			err = errors.New("is not one or more ASCII letters, digits, '_' or '-'")
		}
	case mSeq:
		e.Seq, err = d.uint64(0)
	case mTNS:
		e.TNS, err = d.int64()
	case mPID:
		e.PID, err = d.uint32(0)
	case mTID:
		e.TID, err = d.uint32(0)
	case mExecID:
		e.ExecID, err = d.uint64(1)
	case mEventType:
		n, err = d.unsigned(0, math.MaxUint16)
		e.Kind = KernelKind(n)
	case mKind:
		d.kind, err = d.str()
	case mValue:
		if !d.word("null") {
			e.Value, err = d.text(0)
		}
	case mFlags:
		e.Flags, err = d.uint64(0)
	case mMode:
		e.Mode, err = d.uint32(0)
	case mResolve:
		e.Resolve, err = d.uint64(1)
	case mCreated:
		e.Created, err = true, d.only()
	case mReturnValue:
		e.HasResult = true
		e.Result, err = d.int64()
	case mAccessMode:
		d.access, err = d.str()
	case mOperationFlags:
		d.ops, err = d.operations()
	case mStatus:
		d.status, err = d.str()
	case mErrno:
		d.errno, err = d.str()
	case mCount:
		e.Repeat = true
		e.Count, err = d.uint64(1)
	case mTFirstNS:
		e.TFirstNS, err = d.int64()
	case mTLastNS:
		e.TLastNS, err = d.int64()
	case mBytesOut:
		e.BytesOut, err = d.uint64(1)
	case mBytesIn:
		e.BytesIn, err = d.uint64(1)
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

// operations reads operation_flags into bits as [operations] has them: in its
// order, none of them twice.
func (d *kernelDecoder) operations() (set uint64, err error) {
	next := 0
	err = d.array(func() error {
		s, err := d.str()
		if err != nil {
			return err
		}
		for next < len(operations) && operations[next].name != string(s) {
			next++
		}
		if next == len(operations) {
			return fmt.Errorf("%.64q is not known, or not in its place", s)
		}
		set |= operations[next].bits
		return nil
	})
	return set, err
}

// isRunID holds what the schemas ask of a run id.
func isRunID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return s != ""
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

// errContradiction is wrapped by what the JSON Schemas cannot say: a value that
// does not follow from what it derives from.
var errContradiction = errors.New("it contradicts itself")

func contradiction(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errContradiction, fmt.Sprintf(format, args...))
}

// rules checks the members against each other.
func (d *kernelDecoder) rules() error {
	e := d.e
	if !d.have.has(mTID) {
		e.TID = e.PID
	}
	want := requiredMembers
	if !e.V0 {
		want |= 1 << mTNS
	}
	if missing := want &^ d.have; missing != 0 {
		return fmt.Errorf("key %q is missing", memberNames[bits.TrailingZeros64(uint64(missing))])
	}
	if e.V0 {
		if more := d.have &^ v0Members; more != 0 {
			return fmt.Errorf("key %q is not one of %s", memberNames[bits.TrailingZeros64(uint64(more))], KernelEventV0)
		}
	} else if err := d.presence(); err != nil {
		return err
	}
	if err := d.derived(); err != nil {
		return err
	}
	if err := d.ending(); err != nil {
		return err
	}
	return d.restore()
}

// presence is what v1 says about members that come together.
func (d *kernelDecoder) presence() error {
	has := d.have.has
	open, failed := d.e.Kind == KindOpen, d.e.HasResult && d.e.Result < 0
	switch {
	case open != has(mAccessMode) || open && !has(mFlags):
		return errors.New("an openat has access_mode and flags, and nothing else has access_mode")
	case has(mCreated) && (!open || failed):
		return errors.New("created belongs to an openat that succeeded")
	case has(mOperationFlags) && d.ops == 0:
		return errors.New("operation_flags is empty")
	case has(mErrno) != failed:
		return errors.New("errno belongs to a return_value below 0, and only there")
	case has(mCount) != has(mTFirstNS) || has(mCount) != has(mTLastNS):
		return errors.New("count, t_first_ns and t_last_ns come together")
	case has(mExitCode) && has(mSignal):
		return errors.New("exit_code and signal do not come together")
	case has(mCgroupID) && d.e.CgroupID == 0, has(mRuleID) && d.e.RuleID == 0, has(mNetworkDestination) &&
		len(d.host) == 0:
		return errors.New("cgroup_id, rule_id and network_destination are left out when there is none")
	case has(mCoreDumped) && !has(mSignal):
		return contradiction("core_dumped stands without a signal")
	case has(mPhase) && !has(mCheck):
		return contradiction("phase stands without a check")
	}
	return nil
}

// derived holds what follows from the kind, the flags, the result and the value
// against what the line says.
func (d *kernelDecoder) derived() error {
	e, has := d.e, d.have.has
	want := e.Kind.String()
	if e.V0 && !e.Kind.v0() {
		want = "event_" + strconv.Itoa(int(e.Kind))
	}
	if string(d.kind) != want {
		return contradiction("kind is %.64q, but event_type %d is %q", d.kind, e.Kind, want)
	}
	if has(mStatus) && string(d.status) == attempted {
		if e.Attempted = true; e.HasResult || e.V0 {
			return contradiction("status is %q, and there is a return_value", attempted)
		}
		if has(mExitCode) || has(mSignal) {
			return contradiction("status is %q, and there is an exit_code or a signal", attempted)
		}
	} else if has(mStatus) {
		if !e.HasResult {
			return errors.New("status needs a return_value")
		}
		if want := statusOf(e.Result); string(d.status) != want {
			return contradiction("status is %.64q, but return_value %d is %q", d.status, e.Result, want)
		}
	}
	if has(mErrno) && string(d.errno) != e.Errno() {
		return contradiction("errno is %.64q, but return_value %d is %q", d.errno, e.Result, e.Errno())
	}
	if has(mAccessMode) && string(d.access) != accessMode(e.Flags) {
		return contradiction("access_mode is %.64q, but flags %d are %q", d.access, e.Flags, accessMode(e.Flags))
	}
	if has(mOperationFlags) && d.ops != e.Flags&(openCreat|openTrunc|openAppend|openExcl) {
		return contradiction("operation_flags do not follow from flags %d", e.Flags)
	}
	if has(mNetworkDestination) || has(mNetworkPort) {
		host, port, ok := splitEndpoint(e.Value)
		if !ok || !has(mNetworkDestination) || !has(mNetworkPort) || string(d.host) != host || d.port != port {
			return contradiction("network_destination and network_port do not follow from value")
		}
	}
	return nil
}

// attempted is the status of a call that was seen before it was made.
const attempted = "attempted"

// statusOf derives status from a return_value.
func statusOf(result int64) string {
	if result < 0 {
		return "error"
	}
	return "success"
}

// ending makes the wait status of exit_code, or of signal and core_dumped.
func (d *kernelDecoder) ending() error {
	d.e.WaitStatus = uint32(d.exit) << 8
	if !d.have.has(mSignal) {
		return nil
	}
	sig, ok := parseSignal(string(d.signal))
	if !ok {
		return contradiction("signal %.64q is none of Linux", d.signal)
	}
	if d.e.WaitStatus = sig; d.have.has(mCoreDumped) {
		d.e.WaitStatus |= 0x80
	}
	return nil
}

// restore puts the exact bytes of raw back.
func (d *kernelDecoder) restore() error {
	for name, text := range d.raw {
		field := d.e.text(name)
		if field == nil {
			return contradiction("raw %.100q names no field of this event", name)
		}
		raw, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil {
			return contradiction("raw %.100q is not base64", name)
		}
		if utf8.Valid(raw) || *field != replaceInvalid(raw) {
			return contradiction("raw %.100q is not what the field shows", name)
		}
		*field = string(raw)
	}
	return nil
}

// replaceInvalid is what [AppendJSON] makes of bytes that are not UTF-8.
func replaceInvalid(b []byte) string {
	out := make([]byte, 0, len(b)+8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		out = utf8.AppendRune(out, r) // RuneError for a wrong byte
		b = b[n:]
	}
	return string(out)
}
