package schema

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// member is one member of a kernel event's line.
type member struct {
	key string // what is written before its value: `,"seq":`
	in  forms
	codec
}

func (m *member) name() string { return m.key[2 : len(m.key)-2] }

// forms say which forms of a line have a member, and which need it.
type forms uint8

const (
	inV0 forms = 1 << iota // the closed v0 form may have it; kernel_event.v1 has all
	neededV0
	neededV1

	needed       = inV0 | neededV0 | neededV1
	v1Only forms = 0
)

// codec takes the value of a member into a line, and out of one.
type codec struct {
	// has reports whether an event has the member. Nil: write knows.
	has func(e *KernelEvent) bool
	// write appends the key and the value, and neither where the value is the default. bad reports whether a
	// string of it was not UTF-8. Nil: the member before it writes it, or [AppendJSON] itself.
	write func(dst []byte, key string, e *KernelEvent) (_ []byte, bad bool)
	// read reads the value. What depends on other members is left to [kernelDecoder.rules].
	read func(d *kernelDecoder) error
	// text or texts are set where the strings are the kernel's bytes, which "raw" has if they are not UTF-8.
	text  func(e *KernelEvent) *string
	texts func(e *KernelEvent) []string
}

// kernelMembers are the members of a line, in the order they are written: how each is written and read, and which
// forms have it. Most lines have none of those from [commonMembers] on.
var kernelMembers = [...]member{
	{`,"schema":`, needed, codec{write: writeSchema, read: readSchema}},
	{`,"run_id":`, needed, codec{write: writeRunID, read: readRunID}},
	{`,"seq":`, needed, number(0, func(e *KernelEvent) *uint64 { return &e.Seq })},
	{`,"t_ns":`, neededV1, integer(func(e *KernelEvent) *int64 { return &e.TNS })},
	{`,"pid":`, needed, number(0, func(e *KernelEvent) *uint32 { return &e.PID })},
	{`,"tid":`, v1Only, number(0, func(e *KernelEvent) *uint32 { return &e.TID }).where(hasTID)},
	{`,"exec_id":`, v1Only, count(1, func(e *KernelEvent) *uint64 { return &e.ExecID })},
	{`,"event_type":`, needed, number(0, func(e *KernelEvent) *KernelKind { return &e.Kind })},
	{`,"kind":`, needed, codec{write: writeKind, read: func(d *kernelDecoder) error { return d.part(&d.kind) }}},
	{`,"value":`, needed, codec{write: writeValue, read: readValue, text: valueOf}},
	{`,"flags":`, inV0, number(0, func(e *KernelEvent) *uint64 { return &e.Flags }).where(hasFlags)},
	{`,"mode":`, inV0, number(0, func(e *KernelEvent) *uint32 { return &e.Mode }).where(hasMode)},
	{`,"resolve":`, inV0, count(1, func(e *KernelEvent) *uint64 { return &e.Resolve })},
	{`,"created":`, v1Only, constant("true", func(e *KernelEvent) *bool { return &e.Created }).where(isOpen)},
	{`,"return_value":`, inV0, integer(func(e *KernelEvent) *int64 { return &e.Result }).where(hasResult)},
	{`,"access_mode":`, inV0, derived((*KernelEvent).access, func(d *kernelDecoder) *[]byte { return &d.access })},
	{`,"operation_flags":`, inV0, codec{has: hasOperations, write: writeOperations, read: readOperations}},
	{`,"status":`, inV0, derived((*KernelEvent).status, func(d *kernelDecoder) *[]byte { return &d.status })},
	{`,"errno":`, v1Only, codec{has: hasErrno, write: writeErrno, read: func(d *kernelDecoder) error { return d.part(&d.errno) }}},
	{`,"class":`, v1Only, derived((*KernelEvent).class, func(d *kernelDecoder) *[]byte { return &d.class })},
	{`,"path_source":`, v1Only, derived((*KernelEvent).pathSource, func(d *kernelDecoder) *[]byte { return &d.source })},
	{`,"count":`, v1Only, codec{has: isRepeat, write: writeRepeat, read: count(1, countOf).read}},
	{`,"t_first_ns":`, v1Only, codec{read: integer(func(e *KernelEvent) *int64 { return &e.TFirstNS }).read}},
	{`,"t_last_ns":`, v1Only, codec{read: integer(func(e *KernelEvent) *int64 { return &e.TLastNS }).read}},
	{`,"bytes_out":`, v1Only, count(1, func(e *KernelEvent) *uint64 { return &e.BytesOut })},
	{`,"bytes_in":`, v1Only, count(1, func(e *KernelEvent) *uint64 { return &e.BytesIn })},

	{`,"ppid":`, v1Only, count(1, func(e *KernelEvent) *uint32 { return &e.PPID })},
	{`,"parent_exec_id":`, v1Only, count(1, func(e *KernelEvent) *uint64 { return &e.ParentExecID })},
	{`,"cgroup_id":`, inV0, count(0, func(e *KernelEvent) *uint64 { return &e.CgroupID })},
	{`,"target":`, v1Only, text(func(e *KernelEvent) *string { return &e.Target })},
	{`,"given":`, v1Only, text(func(e *KernelEvent) *string { return &e.Given })},
	{`,"target_given":`, v1Only, text(func(e *KernelEvent) *string { return &e.TargetGiven })},
	{`,"arguments":`, v1Only, constant(`"claimed"`, func(e *KernelEvent) *bool { return &e.Claimed })},
	{`,"directory":`, v1Only, constant(`"claimed"`, func(e *KernelEvent) *bool { return &e.DirectoryClaimed })},
	{`,"exe":`, v1Only, text(func(e *KernelEvent) *string { return &e.Exe })},
	{`,"cwd":`, v1Only, text(func(e *KernelEvent) *string { return &e.Cwd })},
	{`,"argv":`, v1Only, texts(func(e *KernelEvent) *[]string { return &e.Argv })},
	{`,"env_keys":`, v1Only, texts(func(e *KernelEvent) *[]string { return &e.EnvKeys })},
	{`,"exit_code":`, v1Only, codec{write: writeEnding, read: readExitCode}},
	{`,"signal":`, v1Only, codec{read: func(d *kernelDecoder) error { return d.part(&d.signal) }}},
	{`,"core_dumped":`, v1Only, codec{read: func(d *kernelDecoder) error { return d.only("true") }}},
	{`,"marks":`, v1Only, set(markNames[:], func(e *KernelEvent) *Marks { return &e.Marks })},
	{`,"network_destination":`, inV0, codec{write: writeDestination, read: readDestination}},
	{`,"network_port":`, inV0, codec{read: func(d *kernelDecoder) error { return d.unsigned(&d.port) }}},
	{`,"rule_id":`, inV0, count(0, func(e *KernelEvent) *uint64 { return &e.RuleID })},
	{`,"protocol":`, v1Only, ours(func(e *KernelEvent) *string { return &e.Protocol })},
	{`,"local":`, v1Only, text(func(e *KernelEvent) *string { return &e.Local })},
	{`,"peers":`, v1Only, count(1, func(e *KernelEvent) *uint64 { return &e.Peers })},
	{`,"remote":`, v1Only, text(func(e *KernelEvent) *string { return &e.Remote })},
	{`,"names":`, v1Only, codec{write: writeNames, read: readNames}},
	{`,"dns":`, v1Only, codec{write: writeDNS, read: readDNS}},
	{`,"call":`, v1Only, ours(func(e *KernelEvent) *string { return &e.Call })},
	{`,"args":`, v1Only, codec{write: writeArgs, read: readArgs}},
	{`,"truncated":`, v1Only, set(fieldNames[:], func(e *KernelEvent) *Fields { return &e.Truncated })},
	{`,"tool_call_id":`, v1Only, ours(func(e *KernelEvent) *string { return &e.ToolCallID })},
	{`,"bound_by":`, v1Only, ours(func(e *KernelEvent) *string { return &e.BoundBy })},
	{`,"check":`, v1Only, ours(func(e *KernelEvent) *string { return &e.Check })},
	{`,"phase":`, v1Only, constant(`"baseline"`, func(e *KernelEvent) *bool { return &e.Baseline })},
	{`,"container_id":`, v1Only, ours(func(e *KernelEvent) *string { return &e.ContainerID })},
	{`,"late":`, v1Only, constant("true", func(e *KernelEvent) *bool { return &e.Late })},
	{`,"raw":`, v1Only, codec{read: readRaw}},
}

func valueOf(e *KernelEvent) *string    { return &e.Value }
func countOf(e *KernelEvent) *uint64    { return &e.Count }
func hasTID(e *KernelEvent) bool        { return e.TID != e.PID && e.TID != 0 }
func hasFlags(e *KernelEvent) bool      { return e.Flags != 0 || e.Kind == KindOpen }
func hasMode(e *KernelEvent) bool       { return e.Mode != 0 || e.Kind == KindOpen && e.Creates() }
func isOpen(e *KernelEvent) bool        { return e.Kind == KindOpen }
func hasResult(e *KernelEvent) bool     { return e.HasResult }
func hasOperations(e *KernelEvent) bool { return e.Kind == KindOpen && e.Flags&operationBits != 0 }
func hasErrno(e *KernelEvent) bool      { return e.HasResult && e.Result < 0 }
func isRepeat(e *KernelEvent) bool      { return e.Repeat }

// commonMembers is how many members come before ppid, the first that most lines do not have.
const commonMembers = 26

// AppendJSON appends e as one kernel_event.v1 object, without a newline, and
// returns the extended buffer. It allocates only to grow dst.
//
// A string that is not UTF-8 is written with U+FFFD for each byte that is
// wrong, so that every line is valid JSON, and its exact bytes stand in the
// object "raw", in base64, under the field's name ("value", "target", "given", "target_given", "exe",
// "cwd", "local", "remote") or its name and index ("argv.2", "env_keys.0").
// [DecodeKernelEvent] restores them: no byte is lost.
func AppendJSON(dst []byte, e *KernelEvent) []byte {
	members := kernelMembers[:]
	if !e.rare() {
		members = kernelMembers[:commonMembers]
	}
	anyBad := false
	for i := range members {
		m := &members[i]
		if m.write == nil || m.has != nil && !m.has(e) {
			continue
		}
		var bad bool
		dst, bad = m.write(dst, m.key, e)
		anyBad = anyBad || bad
	}
	if anyBad {
		dst = appendRaw(dst, e)
	}
	return append(dst, '}')
}

// appendRaw writes the exact bytes of every string that is not UTF-8.
func appendRaw(dst []byte, e *KernelEvent) []byte {
	dst = append(dst, `,"raw":`...)
	sep := byte('{')
	for i := range kernelMembers {
		m := &kernelMembers[i]
		if m.text != nil {
			if s := *m.text(e); !utf8.ValidString(s) {
				dst = append(append(append(dst, sep, '"'), m.name()...), `":"`...)
				dst = append(base64.StdEncoding.AppendEncode(dst, []byte(s)), '"')
				sep = ','
			}
		}
		if m.texts == nil {
			continue
		}
		for j, s := range m.texts(e) {
			if !utf8.ValidString(s) {
				dst = append(append(append(dst, sep, '"'), m.name()...), '.')
				dst = append(strconv.AppendInt(dst, int64(j), 10), `":"`...)
				dst = append(base64.StdEncoding.AppendEncode(dst, []byte(s)), '"')
				sep = ','
			}
		}
	}
	return append(dst, '}')
}

// where leaves the member out of an event of which has is false.
func (c codec) where(has func(*KernelEvent) bool) codec {
	c.has = has
	return c
}

// number is a whole number that is always written; least is the least that may be read.
func number[T ~uint16 | ~uint32 | ~uint64](least uint64, field func(*KernelEvent) *T) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			return strconv.AppendUint(append(dst, key...), uint64(*field(e)), 10), false
		},
		read: func(d *kernelDecoder) error {
			v, err := d.whole(least, uint64(^T(0)))
			*field(d.e) = T(v)
			return err
		},
	}
}

// count is a number that is left out when it is 0.
func count[T ~uint32 | ~uint64](least uint64, field func(*KernelEvent) *T) codec {
	c := number(least, field)
	c.write = func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
		if n := *field(e); n != 0 {
			dst = strconv.AppendUint(append(dst, key...), uint64(n), 10)
		}
		return dst, false
	}
	return c
}

// integer is a number that may be negative.
func integer(field func(*KernelEvent) *int64) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			return strconv.AppendInt(append(dst, key...), *field(e), 10), false
		},
		read: func(d *kernelDecoder) error {
			n, err := d.number()
			if err == nil {
				*field(d.e), err = signed(n)
			}
			return err
		},
	}
}

// derived is a string that follows from other members: it needs no escape, and is left out when it is empty. What is
// read is held against them by rules.
func derived(from func(*KernelEvent) string, to func(*kernelDecoder) *[]byte) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			if s := from(e); s != "" {
				dst = append(append(dst, key...), '"')
				dst = append(append(dst, s...), '"')
			}
			return dst, false
		},
		read: func(d *kernelDecoder) error { return d.part(to(d)) },
	}
}

// text is a string of the kernel's bytes that is left out when it is empty.
func text(field func(*KernelEvent) *string) codec {
	c := ours(field)
	c.text = field
	c.write = func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
		s := *field(e)
		if s == "" {
			return dst, false
		}
		return appendString(append(dst, key...), s)
	}
	return c
}

// ours is a string that the recorder makes, and so UTF-8, and that is left out when it is empty.
func ours(field func(*KernelEvent) *string) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			if s := *field(e); s != "" {
				dst, _ = appendString(append(dst, key...), s)
			}
			return dst, false
		},
		read: func(d *kernelDecoder) error { return d.full(field(d.e)) },
	}
}

// texts are strings of the kernel's bytes. They are left out when they are nil.
func texts(field func(*KernelEvent) *[]string) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) { return appendTexts(dst, key, *field(e)) },
		read:  func(d *kernelDecoder) error { return d.texts(field(d.e)) },
		texts: func(e *KernelEvent) []string { return *field(e) },
	}
}

// constant is left out, or has one value.
func constant(value string, field func(*KernelEvent) *bool) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			if *field(e) {
				dst = append(append(dst, key...), value...)
			}
			return dst, false
		},
		read: func(d *kernelDecoder) error { *field(d.e) = true; return d.only(value) },
	}
}

// set has the names of the bits of a set, and is left out when that is empty.
func set[T ~uint8](names []string, field func(*KernelEvent) *T) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			set := *field(e)
			if set == 0 {
				return dst, false
			}
			dst = append(dst, key...)
			sep := `["`
			for i, n := range names {
				if set&(1<<i) != 0 {
					dst = append(append(dst, sep...), n...)
					sep = `","`
				}
			}
			return append(dst, `"]`...), false
		},
		read: func(d *kernelDecoder) error {
			set, err := d.names(names)
			*field(d.e) = T(set)
			return err
		},
	}
}

func appendTexts(dst []byte, key string, texts []string) (_ []byte, anyBad bool) {
	if texts == nil {
		return dst, false
	}
	dst = append(append(dst, key...), '[')
	for i, s := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		var bad bool
		dst, bad = appendString(dst, s)
		anyBad = anyBad || bad
	}
	return append(dst, ']'), anyBad
}

func writeSchema(dst []byte, _ string, _ *KernelEvent) ([]byte, bool) {
	return append(dst, `{"schema":"`+KernelEventV1+`"`...), false
}

func readSchema(d *kernelDecoder) error {
	s, err := d.str()
	if d.e.V0 = string(s) == KernelEventV0; err == nil && !d.e.V0 && string(s) != KernelEventV1 {
		err = fmt.Errorf("is %.100q, want %q or %q", s, KernelEventV1, KernelEventV0)
	}
	return err
}

func writeRunID(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	dst, _ = appendString(append(dst, key...), e.RunID)
	return dst, false
}

func readRunID(d *kernelDecoder) error {
	s, err := d.str()
	if d.e.RunID = d.run; string(s) != d.run { // one string for all lines of a run
		d.e.RunID = string(s)
	}
	if err == nil && !isRunID(d.e.RunID) {
		err = errors.New("is not one or more ASCII letters, digits, '_' or '-'")
	}
	return err
}

func writeKind(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	if int(e.Kind) >= len(kindNames) || kindNames[e.Kind] == "" { // without garbage
		dst = append(append(dst, key...), `"event_`...)
		return append(strconv.AppendUint(dst, uint64(e.Kind), 10), '"'), false
	}
	dst = append(append(dst, key...), '"')
	return append(append(dst, kindNames[e.Kind]...), '"'), false
}

func writeValue(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	dst = append(dst, key...)
	if e.Value == "" {
		return append(dst, "null"...), false
	}
	return appendString(dst, e.Value)
}

func readValue(d *kernelDecoder) error {
	if d.word("null") {
		return nil
	}
	s, err := d.str()
	d.e.Value = string(s)
	return err
}

var operations = [...]struct {
	bits uint64
	name string
}{{openCreat, "create"}, {openTrunc, "truncate"}, {openAppend, "append"}, {openExcl, "exclusive"}}

const operationBits = openCreat | openTrunc | openAppend | openExcl

func writeOperations(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	dst = append(dst, key...)
	sep := `["`
	for _, op := range operations {
		if e.Flags&op.bits != 0 {
			dst = append(append(dst, sep...), op.name...)
			sep = `","`
		}
	}
	return append(dst, `"]`...), false
}

// readOperations reads operation_flags into bits as [operations] has them: in its
// order, none of them twice.
func readOperations(d *kernelDecoder) error {
	next := 0
	return d.array(func() error {
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
		d.ops |= operations[next].bits
		return nil
	})
}

func writeErrno(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	n := -e.Result
	dst = append(append(dst, key...), '"')
	if n > 0 && n < int64(len(errnoNames)) && errnoNames[n] != "" {
		return append(append(dst, errnoNames[n]...), '"'), false
	}
	return append(strconv.AppendInt(append(dst, "errno_"...), n, 10), '"'), false // without garbage
}

// writeRepeat writes count, t_first_ns and t_last_ns.
func writeRepeat(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	dst = strconv.AppendUint(append(dst, key...), e.Count, 10)
	dst = strconv.AppendInt(append(dst, `,"t_first_ns":`...), e.TFirstNS, 10)
	return strconv.AppendInt(append(dst, `,"t_last_ns":`...), e.TLastNS, 10), false
}

// writeEnding writes what wait(2) packs into a status: the low seven bits are the signal, bit 7 the core dump, the next
// eight the exit code.
func writeEnding(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	s := e.WaitStatus
	switch {
	case e.Kind != KindExit || e.Attempted:
	case s&0x7f == 0:
		dst = strconv.AppendUint(append(dst, key...), uint64(s>>8&0xff), 10)
	case s&0x80 == 0:
		dst = append(append(append(dst, `,"signal":"`...), SignalName(s&0x7f)...), '"')
	default:
		dst = append(append(append(dst, `,"signal":"`...), SignalName(s&0x7f)...), `","core_dumped":true`...)
	}
	return dst, false
}

func readExitCode(d *kernelDecoder) (err error) {
	d.exit, err = d.whole(0, 255)
	return err
}

// writeDestination writes network_destination and network_port.
func writeDestination(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	if e.Kind != KindConnectBlocked {
		return dst, false
	}
	host, port, ok := splitEndpoint(e.Value)
	if !ok {
		return dst, false
	}
	dst, _ = appendString(append(dst, key...), host)
	return strconv.AppendUint(append(dst, `,"network_port":`...), port, 10), false
}

func readDestination(d *kernelDecoder) error { return d.part(&d.host) }

// writeNames writes what the recorder knows, and so is UTF-8.
func writeNames(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	dst, _ = appendTexts(dst, key, e.Names)
	return dst, false
}

func readNames(d *kernelDecoder) error {
	err := d.texts(&d.e.Names)
	if err == nil && len(d.e.Names) == 0 {
		err = errEmpty
	}
	return err
}

func writeDNS(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	m := e.DNS
	if m == nil {
		return dst, false
	}
	dst, _ = appendString(append(append(dst, key...), `{"type":`...), m.Type)
	if m.Response {
		dst = append(dst, `,"response":true`...)
	}
	if m.RCode != "" {
		dst, _ = appendString(append(dst, `,"rcode":`...), m.RCode)
	}
	sep := `,"answers":[{"name":`
	for _, a := range m.Answers {
		dst, _ = appendString(append(dst, sep...), a.Name)
		dst, _ = appendString(append(dst, `,"type":`...), a.Type)
		if a.Data != "" {
			dst, _ = appendString(append(dst, `,"data":`...), a.Data)
		}
		dst = append(dst, '}')
		sep = `,{"name":`
	}
	if len(m.Answers) > 0 {
		dst = append(dst, ']')
	}
	return append(dst, '}'), false
}

func readDNS(d *kernelDecoder) error {
	m := &DNSMessage{}
	d.e.DNS = m
	return d.closed([]string{"type", "response", "rcode", "answers"}, 1, func(i int) error {
		switch i {
		case 0:
			return d.text(&m.Type)
		case 1:
			m.Response = true
			return d.only("true")
		case 2:
			return d.full(&m.RCode)
		}
		err := d.array(func() error {
			m.Answers = append(m.Answers, DNSAnswer{})
			a := &m.Answers[len(m.Answers)-1]
			return d.closed([]string{"name", "type", "data"}, 2, func(i int) error {
				switch i {
				case 0:
					return d.text(&a.Name)
				case 1:
					return d.text(&a.Type)
				}
				return d.full(&a.Data)
			})
		})
		if err == nil && len(m.Answers) == 0 {
			err = errEmpty
		}
		return err
	})
}

func writeArgs(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	if e.Args == nil {
		return dst, false
	}
	dst = append(append(dst, key...), '[')
	for i, a := range e.Args {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, a, 10)
	}
	return append(dst, ']'), false
}

func readArgs(d *kernelDecoder) error {
	d.e.Args = []uint64{}
	return d.array(func() error {
		var n uint64
		err := d.unsigned(&n)
		d.e.Args = append(d.e.Args, n)
		return err
	})
}

// readRaw reads the exact bytes of strings, in base64, by the name of a field.
func readRaw(d *kernelDecoder) error {
	d.raw = make(map[string]string)
	err := d.object(func(key []byte) error {
		name := string(key)
		if _, twice := d.raw[name]; twice {
			return fmt.Errorf("key %.100q is repeated", name)
		}
		var text string
		err := d.full(&text)
		d.raw[name] = text
		return err
	})
	if err == nil && len(d.raw) == 0 {
		err = errEmpty
	}
	return err
}

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
	d := kernelDecoders.Get().(*kernelDecoder)
	err := d.line(line, e)
	*d = kernelDecoder{}
	kernelDecoders.Put(d)
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

var kernelDecoders = sync.Pool{New: func() any { return new(kernelDecoder) }}

// kernelDecoder reads one line. Its scanner finds the members, [kernelMembers] says how each is read, and rules checks
// what they say against each other.
type kernelDecoder struct {
	scanner
	e    *KernelEvent
	run  string // the run id of the line before, whose string is used again
	have members

	// What follows from other members, and is held against them; nil where the line does not have it.
	kind, access, status, errno, class, source, host []byte
	ops, port                                        uint64

	exit   uint64
	signal []byte
	raw    map[string]string
}

// members are a set of members, by their places in [kernelMembers].
type members uint64

func (s members) has(some members) bool { return s&some != 0 }

// What rules ask of the members, as [kernelMembers] has it.
var (
	v0Members = membersThat(func(m *member) bool { return m.in&inV0 != 0 })
	v0Needs   = membersThat(func(m *member) bool { return m.in&neededV0 != 0 })
	v1Needs   = membersThat(func(m *member) bool { return m.in&neededV1 != 0 })

	theTID        = membersNamed("tid")
	theFlags      = membersNamed("flags")
	theOperations = membersNamed("operation_flags")
	theResult     = membersNamed("return_value")
	theCount      = membersNamed("count")
	theFirstTime  = membersNamed("t_first_ns")
	theLastTime   = membersNamed("t_last_ns")
	theCgroup     = membersNamed("cgroup_id")
	theRule       = membersNamed("rule_id")
	theExitCode   = membersNamed("exit_code")
	theCoreDump   = membersNamed("core_dumped")
	thePort       = membersNamed("network_port")
)

func membersThat(are func(m *member) bool) (set members) {
	for i := range kernelMembers {
		if are(&kernelMembers[i]) {
			set |= 1 << i
		}
	}
	return set
}

func membersNamed(name string) members {
	return membersThat(func(m *member) bool { return m.name() == name })
}

// first is the name of the first member of a set that is not empty.
func (s members) first() string { return kernelMembers[bits.TrailingZeros64(uint64(s))].name() }

var memberIndex = sync.OnceValue(func() map[string]int {
	index := make(map[string]int, len(kernelMembers))
	for i := range kernelMembers {
		index[kernelMembers[i].name()] = i
	}
	return index
})

// memberOf finds a key, most often close behind the one before it.
func memberOf(key []byte, after int) (i int, ok bool) {
	for i := after; i < min(after+6, len(kernelMembers)); i++ {
		if kernelMembers[i].name() == string(key) {
			return i, true
		}
	}
	i, ok = memberIndex()[string(key)]
	return i, ok
}

func (d *kernelDecoder) line(line []byte, e *KernelEvent) error {
	*d = kernelDecoder{scanner: scanner{b: line}, e: e, run: e.RunID}
	*e = KernelEvent{}
	next := 0
	err := d.object(func(key []byte) error {
		i, ok := memberOf(key, next)
		if !ok {
			return fmt.Errorf("key %.100q is not known", key)
		}
		if d.have.has(1 << i) {
			return fmt.Errorf("key %q is repeated", key)
		}
		d.have |= 1 << i
		next = i + 1
		if err := kernelMembers[i].read(d); err != nil {
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

var errEmpty = errors.New("is empty")

// text reads a string, which may be empty.
func (d *kernelDecoder) text(to *string) error {
	s, err := d.str()
	*to = string(s)
	return err
}

// full reads a string that is not empty.
func (d *kernelDecoder) full(to *string) error {
	err := d.text(to)
	if err == nil && *to == "" {
		err = errEmpty
	}
	return err
}

// part reads a string that may be a part of the line.
func (d *kernelDecoder) part(to *[]byte) (err error) {
	*to, err = d.str()
	return err
}

// texts reads an array of strings; it is not nil.
func (d *kernelDecoder) texts(to *[]string) error {
	*to = []string{}
	return d.array(func() error {
		s, err := d.str()
		*to = append(*to, string(s))
		return err
	})
}

// names reads an array of one or more different names into the bits of a set.
func (d *kernelDecoder) names(names []string) (set uint8, err error) {
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
		err = errEmpty
	}
	return set, err
}

// only reads a value that can be nothing but this one: true, or a string.
func (d *kernelDecoder) only(value string) error {
	if value == "true" {
		if !d.word(value) {
			return errors.New("is not true")
		}
		return nil
	}
	s, err := d.str()
	if want := value[1 : len(value)-1]; err == nil && string(s) != want {
		err = fmt.Errorf("is %.64q, want %q", s, want)
	}
	return err
}

// closed reads an object that has no keys but these, each once at most, and the
// first required of them. value reads the value of the key with an index.
func (d *kernelDecoder) closed(keys []string, required int, value func(i int) error) error {
	have := 0
	err := d.object(func(key []byte) error {
		i := slices.Index(keys, string(key))
		if i < 0 || have&(1<<i) != 0 {
			return fmt.Errorf("key %.100q is not known, or repeated", key)
		}
		have |= 1 << i
		return value(i)
	})
	if want := 1<<required - 1; err == nil && have&want != want {
		err = fmt.Errorf("one of %q is missing", keys[:required])
	}
	return err
}

// whole reads a whole number between least and most.
func (d *kernelDecoder) whole(least, most uint64) (uint64, error) {
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

func (d *kernelDecoder) unsigned(to *uint64) (err error) {
	*to, err = d.whole(0, math.MaxUint64)
	return err
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
	if !d.have.has(theTID) {
		e.TID = e.PID
	}
	e.HasResult, e.Repeat = d.have.has(theResult), d.have.has(theCount)
	needs := v1Needs
	if e.V0 {
		needs = v0Needs
	}
	if missing := needs &^ d.have; missing != 0 {
		return fmt.Errorf("key %q is missing", missing.first())
	}
	if !e.V0 {
		if err := d.presence(); err != nil {
			return err
		}
	} else if more := d.have &^ v0Members; more != 0 {
		return fmt.Errorf("key %q is not one of %s", more.first(), KernelEventV0)
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
	e, has := d.e, d.have.has
	open, failed := e.Kind == KindOpen, e.HasResult && e.Result < 0
	switch {
	case open != (d.access != nil) || open && !has(theFlags):
		return errors.New("an openat has access_mode and flags, and nothing else has access_mode")
	case e.Created && (!open || failed):
		return errors.New("created belongs to an openat that succeeded")
	case has(theOperations) && d.ops == 0:
		return errors.New("operation_flags is empty")
	case failed != (d.errno != nil):
		return errors.New("errno belongs to a return_value below 0, and only there")
	case e.Repeat != has(theFirstTime) || e.Repeat != has(theLastTime):
		return errors.New("count, t_first_ns and t_last_ns come together")
	case has(theExitCode) && d.signal != nil:
		return errors.New("exit_code and signal do not come together")
	case has(theCgroup) && e.CgroupID == 0, has(theRule) && e.RuleID == 0, d.host != nil && len(d.host) == 0:
		return errors.New("cgroup_id, rule_id and network_destination are left out when there is none")
	case has(theCoreDump) && d.signal == nil:
		return contradiction("core_dumped stands without a signal")
	case e.ContainerID != "" && !isContainerID(e.ContainerID):
		return errors.New("container_id: is not 64 lower-case hex digits")
	case e.Baseline && e.Check == "":
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
	var known bool
	if e.Class, known = ParseClass(string(d.class)); d.class != nil && (!known || e.Class == ClassAgent) {
		return fmt.Errorf("class: %.64q is not known", d.class)
	}
	e.UserMemory, e.KernelCopy = string(d.source) == "user_memory", string(d.source) == "kernel_copy"
	if d.source != nil && !e.UserMemory && !e.KernelCopy {
		return fmt.Errorf("path_source: is %.64q, want \"user_memory\" or \"kernel_copy\"", d.source)
	}
	switch {
	case d.status == nil:
	case string(d.status) == attempted:
		if e.Attempted = true; e.HasResult || e.V0 {
			return contradiction("status is %q, and there is a return_value", attempted)
		}
		if has(theExitCode) || d.signal != nil {
			return contradiction("status is %q, and there is an exit_code or a signal", attempted)
		}
	case !e.HasResult:
		return errors.New("status needs a return_value")
	case string(d.status) != e.status():
		return contradiction("status is %.64q, but return_value %d is %q", d.status, e.Result, e.status())
	}
	if d.errno != nil && string(d.errno) != e.Errno() {
		return contradiction("errno is %.64q, but return_value %d is %q", d.errno, e.Result, e.Errno())
	}
	if d.access != nil && string(d.access) != accessMode(e.Flags) {
		return contradiction("access_mode is %.64q, but flags %d are %q", d.access, e.Flags, accessMode(e.Flags))
	}
	if has(theOperations) && d.ops != e.Flags&operationBits {
		return contradiction("operation_flags do not follow from flags %d", e.Flags)
	}
	if d.host != nil || has(thePort) {
		host, port, ok := splitEndpoint(e.Value)
		if !ok || d.host == nil || !has(thePort) || string(d.host) != host || d.port != port {
			return contradiction("network_destination and network_port do not follow from value")
		}
	}
	return nil
}

// ending makes the wait status of exit_code, or of signal and core_dumped.
func (d *kernelDecoder) ending() error {
	d.e.WaitStatus = uint32(d.exit) << 8
	if d.signal == nil {
		return nil
	}
	sig, ok := parseSignal(string(d.signal))
	if !ok {
		return contradiction("signal %.64q is none of Linux", d.signal)
	}
	if d.e.WaitStatus = sig; d.have.has(theCoreDump) {
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

// attempted is the status of a call that was seen before it was made.
const attempted = "attempted"

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

// splitEndpoint cuts "ip:port" or "[ip6]:port"; ok is false for anything else.
func splitEndpoint(s string) (host string, port uint64, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 {
		return "", 0, false
	}
	port, err := strconv.ParseUint(s[i+1:], 10, 16)
	host = s[:i]
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	return host, port, err == nil
}

// isRunID reports whether a run id is as the schemas want it.
func isRunID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return s != ""
}

// isContainerID reports whether the id of a container is as the schema wants it.
func isContainerID(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 64
}
