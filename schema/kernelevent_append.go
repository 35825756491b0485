package schema

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

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

func appendRare(dst []byte, e *KernelEvent, valid bool) []byte {
	dst = appendUint(dst, `,"ppid":`, uint64(e.PPID))
	dst = appendUint(dst, `,"parent_exec_id":`, e.ParentExecID)
	dst = appendUint(dst, `,"cgroup_id":`, e.CgroupID)
	dst = appendText(dst, `,"target":`, e.Target, &valid)
	dst = appendText(dst, `,"given":`, e.Given, &valid)
	dst = appendText(dst, `,"target_given":`, e.TargetGiven, &valid)
	if e.Claimed {
		dst = append(dst, `,"arguments":"claimed"`...)
	}
	if e.DirectoryClaimed {
		dst = append(dst, `,"directory":"claimed"`...)
	}
	dst = appendText(dst, `,"exe":`, e.Exe, &valid)
	dst = appendText(dst, `,"cwd":`, e.Cwd, &valid)
	dst = appendTexts(dst, `,"argv":[`, e.Argv, &valid)
	dst = appendTexts(dst, `,"env_keys":[`, e.EnvKeys, &valid)
	if e.Kind == KindExit && !e.Attempted {
		dst = appendWaitStatus(dst, e.WaitStatus)
	}
	dst = appendNames(dst, `,"marks":["`, uint8(e.Marks), markNames[:])
	if e.Kind == KindConnectBlocked {
		dst = appendDestination(dst, e.Value)
	}
	dst = appendUint(dst, `,"rule_id":`, e.RuleID)
	var ours bool // fields that the recorder itself makes: always UTF-8
	dst = appendText(dst, `,"protocol":`, e.Protocol, &ours)
	dst = appendText(dst, `,"local":`, e.Local, &valid)
	dst = appendUint(dst, `,"peers":`, e.Peers)
	dst = appendText(dst, `,"remote":`, e.Remote, &valid)
	dst = appendTexts(dst, `,"names":[`, e.Names, &ours)
	if e.DNS != nil {
		dst = appendDNS(dst, e.DNS)
	}
	dst = appendText(dst, `,"call":`, e.Call, &ours)
	if e.Args != nil {
		dst = append(dst, `,"args":[`...)
		for i, a := range e.Args {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, a, 10)
		}
		dst = append(dst, ']')
	}
	dst = appendNames(dst, `,"truncated":["`, uint8(e.Truncated), fieldNames[:])
	dst = appendText(dst, `,"tool_call_id":`, e.ToolCallID, &ours)
	dst = appendText(dst, `,"bound_by":`, e.BoundBy, &ours)
	dst = appendText(dst, `,"check":`, e.Check, &ours)
	if e.Baseline {
		dst = append(dst, `,"phase":"baseline"`...)
	}
	dst = appendText(dst, `,"container_id":`, e.ContainerID, &ours)
	if e.Late {
		dst = append(dst, `,"late":true`...)
	}
	if !valid {
		dst = appendRaw(dst, e)
	}
	return dst
}

// appendNames writes the names of the bits of a set that is not empty.
func appendNames(dst []byte, sep string, set uint8, names []string) []byte {
	if set == 0 {
		return dst
	}
	for i, n := range names {
		if set&(1<<i) != 0 {
			dst = append(dst, sep...)
			dst = append(dst, n...)
			sep = `","`
		}
	}
	return append(dst, `"]`...)
}

// appendWaitStatus writes what wait(2) packs into a status: the low seven bits
// are the signal, bit 7 the core dump, the next eight the exit code.
func appendWaitStatus(dst []byte, s uint32) []byte {
	sig := s & 0x7f
	if sig == 0 {
		dst = append(dst, `,"exit_code":`...)
		return strconv.AppendUint(dst, uint64(s>>8&0xff), 10)
	}
	dst = appendASCII(dst, `,"signal":`, SignalName(sig))
	if s&0x80 != 0 {
		dst = append(dst, `,"core_dumped":true`...)
	}
	return dst
}

// splitEndpoint cuts "ip:port" or "[ip6]:port"; ok is false for anything else.
func splitEndpoint(s string) (host string, port uint64, ok bool) {
	for i := len(s) - 1; i > 0; i-- {
		if s[i] != ':' {
			continue
		}
		port, err := strconv.ParseUint(s[i+1:], 10, 16)
		host = s[:i]
		if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
			host = host[1 : len(host)-1]
		}
		return host, port, err == nil
	}
	return "", 0, false
}

func appendDestination(dst []byte, value string) []byte {
	host, port, ok := splitEndpoint(value)
	if !ok {
		return dst
	}
	dst = append(dst, `,"network_destination":`...)
	dst, _ = appendString(dst, host)
	dst = append(dst, `,"network_port":`...)
	return strconv.AppendUint(dst, port, 10)
}

func appendDNS(dst []byte, m *DNSMessage) []byte {
	var ours bool
	dst = append(dst, `,"dns":{"type":`...)
	dst, _ = appendString(dst, m.Type)
	if m.Response {
		dst = append(dst, `,"response":true`...)
	}
	dst = appendText(dst, `,"rcode":`, m.RCode, &ours)
	for i, a := range m.Answers {
		if i == 0 {
			dst = append(dst, `,"answers":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst, _ = appendString(dst, a.Name)
		dst = append(dst, `,"type":`...)
		dst, _ = appendString(dst, a.Type)
		dst = appendText(dst, `,"data":`, a.Data, &ours)
		dst = append(dst, '}')
	}
	if len(m.Answers) > 0 {
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// appendRaw writes the exact bytes of every string that is not UTF-8.
func appendRaw(dst []byte, e *KernelEvent) []byte {
	sep := `,"raw":{"`
	one := func(name string, i int, s string) {
		if utf8.ValidString(s) {
			return
		}
		dst = append(dst, sep...)
		sep = `,"`
		dst = append(dst, name...)
		if i >= 0 {
			dst = append(dst, '.')
			dst = strconv.AppendInt(dst, int64(i), 10)
		}
		dst = append(dst, `":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, []byte(s))
		dst = append(dst, '"')
	}
	one("value", -1, e.Value)
	one("target", -1, e.Target)
	one("given", -1, e.Given)
	one("target_given", -1, e.TargetGiven)
	one("exe", -1, e.Exe)
	one("cwd", -1, e.Cwd)
	one("local", -1, e.Local)
	one("remote", -1, e.Remote)
	for i, s := range e.Argv {
		one("argv", i, s)
	}
	for i, s := range e.EnvKeys {
		one("env_keys", i, s)
	}
	if sep == `,"` {
		dst = append(dst, '}')
	}
	return dst
}
