package schema

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

// rare reports whether any field is set that most events leave out.
func (e *KernelEvent) rare() bool {
	return e.PPID != 0 || e.ParentExecID != 0 || e.CgroupID != 0 || e.Target != "" || e.Given != "" ||
		e.TargetGiven != "" || e.Claimed || e.DirectoryClaimed || e.Truncated != 0 || e.Marks != 0 ||
		e.Kind == KindExit || e.Kind == KindConnectBlocked || e.Protocol != "" || e.Local != "" || e.Peers != 0 ||
		e.Remote != "" ||
		e.Names != nil || e.DNS != nil || e.Exe != "" || e.Cwd != "" || e.Argv != nil || e.EnvKeys != nil ||
		e.Call != "" || e.Args != nil || e.RuleID != 0 || e.ToolCallID != "" || e.BoundBy != "" || e.Check != "" ||
		e.ContainerID != "" || e.Late
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
