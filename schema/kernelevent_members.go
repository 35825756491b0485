package schema

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

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
		if e.Created = d.word("true"); !e.Created {
			err = errors.New("is not true")
		}
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
	default:
		err = d.rare(m)
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
