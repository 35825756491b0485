package schema

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"
)

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

// text returns the field that a key of "raw" names, nil when there is none.
func (e *KernelEvent) text(name string) *string {
	switch name {
	case "value":
		return &e.Value
	case "target":
		return &e.Target
	case "given":
		return &e.Given
	case "target_given":
		return &e.TargetGiven
	case "exe":
		return &e.Exe
	case "cwd":
		return &e.Cwd
	case "local":
		return &e.Local
	case "remote":
		return &e.Remote
	}
	list, index, _ := strings.Cut(name, ".")
	ss := e.Argv
	if list == "env_keys" {
		ss = e.EnvKeys
	} else if list != "argv" {
		return nil
	}
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || i >= len(ss) || strconv.Itoa(i) != index {
		return nil
	}
	return &ss[i]
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
