package schema

import "strconv"

// AppendJSON appends e as one kernel_event.v1 object, without a newline, and
// returns the extended buffer. It allocates only to grow dst.
//
// A string that is not UTF-8 is written with U+FFFD for each byte that is
// wrong, so that every line is valid JSON, and its exact bytes stand in the
// object "raw", in base64, under the field's name ("value", "target", "given", "target_given", "exe",
// "cwd", "local", "remote") or its name and index ("argv.2", "env_keys.0").
// [DecodeKernelEvent] restores them: no byte is lost.
func AppendJSON(dst []byte, e *KernelEvent) []byte {
	dst = append(dst, `{"schema":"assay.runner.kernel_event.v1","run_id":`...)
	dst, _ = appendString(dst, e.RunID)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, e.Seq, 10)
	dst = append(dst, `,"t_ns":`...)
	dst = strconv.AppendInt(dst, e.TNS, 10)
	dst = append(dst, `,"pid":`...)
	dst = strconv.AppendUint(dst, uint64(e.PID), 10)
	if e.TID != e.PID {
		dst = appendUint(dst, `,"tid":`, uint64(e.TID))
	}
	dst = appendUint(dst, `,"exec_id":`, e.ExecID)
	dst = appendKind(dst, e.Kind)
	dst = append(dst, `,"value":`...)
	dst, bad := appendValue(dst, e.Value)
	dst = appendCall(dst, e)
	if e.Class != ClassAgent {
		dst = appendASCII(dst, `,"class":`, e.Class.String())
	}
	if e.UserMemory {
		dst = append(dst, `,"path_source":"user_memory"`...)
	} else if e.KernelCopy {
		dst = append(dst, `,"path_source":"kernel_copy"`...)
	}
	if e.Repeat {
		dst = append(dst, `,"count":`...)
		dst = strconv.AppendUint(dst, e.Count, 10)
		dst = append(dst, `,"t_first_ns":`...)
		dst = strconv.AppendInt(dst, e.TFirstNS, 10)
		dst = append(dst, `,"t_last_ns":`...)
		dst = strconv.AppendInt(dst, e.TLastNS, 10)
	}
	dst = appendUint(dst, `,"bytes_out":`, e.BytesOut)
	dst = appendUint(dst, `,"bytes_in":`, e.BytesIn)
	if e.rare() {
		dst = appendRare(dst, e, !bad)
	} else if bad {
		dst = appendRaw(dst, e)
	}
	return append(dst, '}')
}

// appendKind writes the number and the name of a kind.
func appendKind(dst []byte, k KernelKind) []byte {
	dst = append(dst, `,"event_type":`...)
	dst = strconv.AppendUint(dst, uint64(k), 10)
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return appendASCII(dst, `,"kind":`, kindNames[k])
	}
	dst = append(dst, `,"kind":"event_`...)
	dst = strconv.AppendUint(dst, uint64(k), 10)
	return append(dst, '"')
}

// appendCall writes a call's arguments and its result.
func appendCall(dst []byte, e *KernelEvent) []byte {
	open := e.Kind == KindOpen
	if open {
		dst = append(dst, `,"flags":`...)
		dst = strconv.AppendUint(dst, e.Flags, 10)
	} else {
		dst = appendUint(dst, `,"flags":`, e.Flags)
	}
	if e.Mode != 0 || open && e.Creates() {
		dst = append(dst, `,"mode":`...)
		dst = strconv.AppendUint(dst, uint64(e.Mode), 10)
	}
	dst = appendUint(dst, `,"resolve":`, e.Resolve)
	if open && e.Created {
		dst = append(dst, `,"created":true`...)
	}
	if e.HasResult {
		dst = append(dst, `,"return_value":`...)
		dst = strconv.AppendInt(dst, e.Result, 10)
	}
	if open {
		dst = appendASCII(dst, `,"access_mode":`, accessMode(e.Flags))
		dst = appendOperations(dst, e.Flags)
	}
	switch {
	case e.Attempted:
		dst = append(dst, `,"status":"attempted"`...)
	case !e.HasResult:
	case e.Result >= 0:
		dst = append(dst, `,"status":"success"`...)
	default:
		dst = append(dst, `,"status":"error","errno":"`...)
		if n := -e.Result; n > 0 && n < int64(len(errnoNames)) && errnoNames[n] != "" {
			dst = append(dst, errnoNames[n]...)
		} else {
			dst = append(dst, "errno_"...)
			dst = strconv.AppendInt(dst, n, 10)
		}
		dst = append(dst, '"')
	}
	return dst
}

// accessMode derives v0's access_mode from open flags (O_ACCMODE).
func accessMode(flags uint64) string {
	switch flags & 3 {
	case 0:
		return "read"
	case 1:
		return "write"
	case 2:
		return "read_write"
	}
	return "unknown"
}

var operations = [...]struct {
	bits uint64
	name string
}{{openCreat, "create"}, {openTrunc, "truncate"}, {openAppend, "append"}, {openExcl, "exclusive"}}

func appendOperations(dst []byte, flags uint64) []byte {
	if flags&(openCreat|openTrunc|openAppend|openExcl) == 0 {
		return dst
	}
	sep := `,"operation_flags":["`
	for _, op := range operations {
		if flags&op.bits != 0 {
			dst = append(dst, sep...)
			dst = append(dst, op.name...)
			sep = `","`
		}
	}
	return append(dst, `"]`...)
}

func appendUint(dst []byte, key string, n uint64) []byte {
	if n == 0 {
		return dst
	}
	dst = append(dst, key...)
	return strconv.AppendUint(dst, n, 10)
}

// appendASCII writes a string that needs no escape.
func appendASCII(dst []byte, key, s string) []byte {
	dst = append(dst, key...)
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// appendText writes a string that is not empty, and clears valid when it is
// not UTF-8.
func appendText(dst []byte, key, s string, valid *bool) []byte {
	if s == "" {
		return dst
	}
	dst = append(dst, key...)
	dst, bad := appendString(dst, s)
	if bad {
		*valid = false
	}
	return dst
}

func appendTexts(dst []byte, key string, ss []string, valid *bool) []byte {
	if ss == nil {
		return dst
	}
	dst = append(dst, key...)
	for i, s := range ss {
		if i > 0 {
			dst = append(dst, ',')
		}
		var bad bool
		if dst, bad = appendString(dst, s); bad {
			*valid = false
		}
	}
	return append(dst, ']')
}
