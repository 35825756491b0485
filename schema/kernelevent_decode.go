package schema

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// kernelLine is a line as it is written; a pointer tells absent from zero.
type kernelLine struct {
	Schema       string            `json:"schema"`
	RunID        string            `json:"run_id"`
	Seq          *uint64           `json:"seq"`
	TNS          *int64            `json:"t_ns"`
	PID          *uint32           `json:"pid"`
	TID          *uint32           `json:"tid"`
	ExecID       uint64            `json:"exec_id"`
	EventType    *uint16           `json:"event_type"`
	Kind         string            `json:"kind"`
	Value        *string           `json:"value"`
	Flags        uint64            `json:"flags"`
	Mode         uint32            `json:"mode"`
	Resolve      uint64            `json:"resolve"`
	ReturnValue  *int64            `json:"return_value"`
	AccessMode   *string           `json:"access_mode"`
	Operations   []string          `json:"operation_flags"`
	Status       *string           `json:"status"`
	Errno        *string           `json:"errno"`
	Class        *string           `json:"class"`
	PathSource   *string           `json:"path_source"`
	Count        *uint64           `json:"count"`
	TFirstNS     *int64            `json:"t_first_ns"`
	TLastNS      *int64            `json:"t_last_ns"`
	BytesOut     uint64            `json:"bytes_out"`
	BytesIn      uint64            `json:"bytes_in"`
	PPID         uint32            `json:"ppid"`
	ParentExecID uint64            `json:"parent_exec_id"`
	CgroupID     uint64            `json:"cgroup_id"`
	Target       string            `json:"target"`
	Given        string            `json:"given"`
	TargetGiven  string            `json:"target_given"`
	Arguments    *string           `json:"arguments"`
	Exe          string            `json:"exe"`
	Cwd          string            `json:"cwd"`
	Argv         []string          `json:"argv"`
	EnvKeys      []string          `json:"env_keys"`
	ExitCode     *uint8            `json:"exit_code"`
	Signal       *string           `json:"signal"`
	CoreDumped   bool              `json:"core_dumped"`
	Marks        []string          `json:"marks"`
	Destination  *string           `json:"network_destination"`
	Port         *uint64           `json:"network_port"`
	RuleID       uint64            `json:"rule_id"`
	Protocol     string            `json:"protocol"`
	Local        string            `json:"local"`
	Remote       string            `json:"remote"`
	Names        []string          `json:"names"`
	DNS          *DNSMessage       `json:"dns"`
	Call         string            `json:"call"`
	Args         []uint64          `json:"args"`
	Truncated    []string          `json:"truncated"`
	ToolCallID   string            `json:"tool_call_id"`
	BoundBy      string            `json:"bound_by"`
	Check        string            `json:"check"`
	Phase        *string           `json:"phase"`
	Late         bool              `json:"late"`
	Raw          map[string]string `json:"raw"`
}

// DecodeKernelEvent reads one line, without its newline, into e, which it
// overwrites. Both kernel_event.v1 and the closed v0 form are read; v0 leaves
// what only v1 has at its default.
//
// It is strict: unknown, repeated and missing keys, wrong types, and derived
// values that contradict what they derive from are errors. Strings of e do not
// refer to line. e may be used again for the next line; slices in it are new
// for each.
func DecodeKernelEvent(line []byte, e *KernelEvent) error {
	if decodeFast(line, e) {
		return nil
	}
	return decodeSlow(line, e)
}

func decodeSlow(line []byte, e *KernelEvent) error {
	var l kernelLine
	if err := json.Unmarshal(line, &l, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("kernel event: %w", err)
	}
	if err := l.event(e); err != nil {
		return fmt.Errorf("kernel event: %w", err)
	}
	return nil
}

func (l *kernelLine) event(e *KernelEvent) error {
	v0 := l.Schema == KernelEventV0
	switch {
	case !v0 && l.Schema != KernelEventV1:
		return fmt.Errorf("schema is %q, want %q or %q", l.Schema, KernelEventV1, KernelEventV0)
	case l.RunID == "":
		return errors.New(`"run_id" is missing or empty`)
	case l.Seq == nil || l.PID == nil || l.EventType == nil || l.Kind == "":
		return errors.New(`one of "seq", "pid", "event_type" and "kind" is missing`)
	case v0 != (l.TNS == nil):
		return errors.New(`"t_ns" belongs in kernel_event.v1, and only there`)
	}
	*e = KernelEvent{
		RunID: l.RunID, Seq: *l.Seq, PID: *l.PID, ExecID: l.ExecID, Kind: KernelKind(*l.EventType),
		Flags: l.Flags, Mode: l.Mode, Resolve: l.Resolve, BytesOut: l.BytesOut, BytesIn: l.BytesIn,
		PPID: l.PPID, ParentExecID: l.ParentExecID, CgroupID: l.CgroupID, Target: l.Target, Given: l.Given, TargetGiven: l.TargetGiven, Exe: l.Exe, Cwd: l.Cwd,
		Argv: l.Argv, EnvKeys: l.EnvKeys, RuleID: l.RuleID, Protocol: l.Protocol, Local: l.Local, Remote: l.Remote,
		Names: l.Names, DNS: l.DNS, Call: l.Call, Args: l.Args, ToolCallID: l.ToolCallID, BoundBy: l.BoundBy, Late: l.Late, Check: l.Check,
	}
	if l.Arguments != nil {
		if *l.Arguments != "claimed" {
			return fmt.Errorf("arguments is %q, want \"claimed\"", *l.Arguments)
		}
		e.Claimed = true
	}
	e.TID = e.PID
	if l.TNS != nil {
		e.TNS = *l.TNS
	}
	if l.TID != nil {
		e.TID = *l.TID
	}
	if l.Value != nil {
		e.Value = *l.Value
	}
	if err := l.call(e, v0); err != nil {
		return err
	}
	if err := l.details(e); err != nil {
		return err
	}
	return l.restore(e)
}

// call checks what derives from the kind, the flags and the result.
func (l *kernelLine) call(e *KernelEvent, v0 bool) error {
	want := e.Kind.String()
	if v0 && !e.Kind.v0() {
		want = "event_" + strconv.Itoa(int(e.Kind))
	}
	if l.Kind != want {
		return fmt.Errorf("kind is %q, but event_type %d is %q", l.Kind, e.Kind, want)
	}
	if l.ReturnValue != nil {
		e.HasResult, e.Result = true, *l.ReturnValue
	}
	if l.Status != nil && (!e.HasResult || (*l.Status == "success") != (e.Result >= 0) || *l.Status != "success" && *l.Status != "error") {
		return fmt.Errorf("status %q does not follow from return_value", *l.Status)
	}
	if l.Errno != nil && (*l.Errno == "" || *l.Errno != e.Errno()) {
		return fmt.Errorf("errno %q does not follow from return_value", *l.Errno)
	}
	if l.AccessMode != nil && *l.AccessMode != accessMode(e.Flags) {
		return fmt.Errorf("access_mode %q does not follow from flags", *l.AccessMode)
	}
	var ops []string
	for _, op := range operations {
		if e.Flags&op.bits != 0 {
			ops = append(ops, op.name)
		}
	}
	if l.Operations != nil && strings.Join(ops, ",") != strings.Join(l.Operations, ",") {
		return fmt.Errorf("operation_flags %q do not follow from flags", l.Operations)
	}
	if l.Destination != nil || l.Port != nil {
		host, port, ok := splitEndpoint(e.Value)
		if !ok || l.Destination == nil || l.Port == nil || *l.Destination != host || *l.Port != port {
			return errors.New("network_destination and network_port do not follow from value")
		}
	}
	return nil
}

// details reads what is written in words.
func (l *kernelLine) details(e *KernelEvent) error {
	if l.Class != nil {
		c, ok := ParseClass(*l.Class)
		if !ok {
			return fmt.Errorf("class %q is not known", *l.Class)
		}
		e.Class = c
	}
	if l.PathSource != nil {
		if *l.PathSource != "user_memory" && *l.PathSource != "kernel_object" {
			return fmt.Errorf("path_source %q is not known", *l.PathSource)
		}
		e.UserMemory = *l.PathSource == "user_memory"
	}
	if l.Count != nil || l.TFirstNS != nil || l.TLastNS != nil {
		if l.Count == nil || l.TFirstNS == nil || l.TLastNS == nil {
			return errors.New(`"count", "t_first_ns" and "t_last_ns" come together`)
		}
		e.Repeat, e.Count, e.TFirstNS, e.TLastNS = true, *l.Count, *l.TFirstNS, *l.TLastNS
	}
	if l.Signal != nil {
		sig, ok := parseSignal(*l.Signal)
		if !ok || l.ExitCode != nil {
			return fmt.Errorf("signal %q is not known, or stands beside exit_code", *l.Signal)
		}
		e.WaitStatus = sig
		if l.CoreDumped {
			e.WaitStatus |= 0x80
		}
	} else if l.ExitCode != nil {
		e.WaitStatus = uint32(*l.ExitCode) << 8
	}
	if l.Phase != nil {
		if *l.Phase != "baseline" || l.Check == "" {
			return fmt.Errorf("phase %q is not known, or stands without a check", *l.Phase)
		}
		e.Baseline = true
	}
	set, err := parseNames(l.Marks, markNames[:])
	if err != nil {
		return fmt.Errorf("marks: %w", err)
	}
	e.Marks = Marks(set)
	if set, err = parseNames(l.Truncated, fieldNames[:]); err != nil {
		return fmt.Errorf("truncated: %w", err)
	}
	e.Truncated = Fields(set)
	return nil
}

func parseNames(ss, names []string) (set uint8, err error) {
next:
	for _, s := range ss {
		for i, n := range names {
			if s == n {
				set |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("%q is not known", s)
	}
	return set, nil
}

// restore puts the exact bytes of "raw" back.
func (l *kernelLine) restore(e *KernelEvent) error {
	for name, text := range l.Raw {
		raw, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil {
			return fmt.Errorf("raw %q: %w", name, err)
		}
		field := e.text(name)
		if field == nil {
			return fmt.Errorf("raw %q names no field of this event", name)
		}
		if utf8.Valid(raw) || *field != replaceInvalid(raw) {
			return fmt.Errorf("raw %q contradicts the field", name)
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
