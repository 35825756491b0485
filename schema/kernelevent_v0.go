package schema

import "strconv"

// AppendJSONv0 appends e as one closed kernel_event.v0 object, without a
// newline. It writes nothing and returns false for what v0 has no place for:
// an event of a class other than agent, which v0's capture left out as well, one
// that was only attempted, and the repeats of an event that has its own line. The
// caller counts them as filtered and coalesced.
//
// openat, connect, exec, file_blocked and connect_blocked keep their names;
// the kinds of v1 are event_<event_type> with the same value, as v0 has it for
// ids it does not know. Strings that are not UTF-8 have U+FFFD for each wrong
// byte: v0 has no place for the exact ones.
func AppendJSONv0(dst []byte, e *KernelEvent) ([]byte, bool) {
	if e.Class != ClassAgent || e.Repeat || e.Attempted {
		return dst, false
	}
	dst = append(dst, `{"schema":"assay.runner.kernel_event.v0","run_id":`...)
	dst, _ = appendString(dst, e.RunID)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, e.Seq, 10)
	dst = append(dst, `,"pid":`...)
	dst = strconv.AppendUint(dst, uint64(e.PID), 10)
	if e.Kind.v0() {
		dst = appendKind(dst, e.Kind)
	} else {
		dst = append(dst, `,"event_type":`...)
		dst = strconv.AppendUint(dst, uint64(e.Kind), 10)
		dst = append(dst, `,"kind":"event_`...)
		dst = strconv.AppendUint(dst, uint64(e.Kind), 10)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"value":`...)
	dst, _ = appendValue(dst, e.Value)
	switch e.Kind {
	case KindOpen:
		dst = appendUint(dst, `,"flags":`, e.Flags)
		if e.Creates() {
			dst = append(dst, `,"mode":`...)
			dst = strconv.AppendUint(dst, uint64(e.Mode), 10)
		}
		dst = appendUint(dst, `,"resolve":`, e.Resolve)
		if e.HasResult {
			dst = append(dst, `,"return_value":`...)
			dst = strconv.AppendInt(dst, e.Result, 10)
		}
		dst = appendASCII(dst, `,"access_mode":`, accessMode(e.Flags))
		dst = appendOperations(dst, e.Flags)
		if e.HasResult && e.Result >= 0 {
			dst = append(dst, `,"status":"success"`...)
		} else if e.HasResult {
			dst = append(dst, `,"status":"error"`...)
		}
	case KindConnectBlocked:
		dst = appendUint(dst, `,"cgroup_id":`, e.CgroupID)
		dst = appendDestination(dst, e.Value)
		dst = appendUint(dst, `,"rule_id":`, e.RuleID)
	}
	return append(dst, '}'), true
}
