package schema

import (
	"bytes"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Record is one decoded line of a layer. The line's schema decides which one of its pointers is set.
// Kernel is valid until the next line is decoded; the others stay valid.
type Record struct {
	Schema string
	RunID  string
	Seq    uint64
	Event  *Event
	Kernel *KernelEvent
	Policy *PolicyEvent
	SDK    *SDKEvent
	Turn   *Turn
	Call   *CallEvent
	Model  *ModelEvent
}

// LineDecoder decodes the lines of one layer. It is not safe for concurrent use.
//
// It accepts what [Validate] accepts, and for kernel events what [DecodeKernelEvent] accepts.
// An integer above 2^63-1 is decoded as 2^63-1, except in seq, index and lines.
type LineDecoder struct {
	id     string
	kernel KernelEvent
	in     jsontext.Decoder // of the other layers
}

// NewLineDecoder returns a decoder for the layer at a path in the bundle, such as [TurnsPath].
func NewLineDecoder(layer string) *LineDecoder { return &LineDecoder{id: lineSchemas[layer]} }

// lineSchemas are the schemas of the layers' lines. Kernel events of version 0 are
// accepted where those of version 1 are.
var lineSchemas = map[string]string{
	EventsPath: EventV0, KernelPath: KernelEventV1, PolicyPath: PolicyEventV0, SDKPath: SDKEventV0, TurnsPath: TurnV0,
	AuditPath: CallEventV2, ModelPath: ModelEventV0,
}

// Decode decodes one line without its newline. Errors wrap [ErrSyntax], [ErrDuplicateKey],
// [ErrSchema] or, if the path is not that of a layer, [ErrUnknownSchema].
func (d *LineDecoder) Decode(line []byte) (Record, error) {
	l := Record{Schema: d.id}
	if d.id == KernelEventV1 {
		if err := DecodeKernelEvent(line, &d.kernel); err != nil {
			return Record{}, err
		}
		if l.Kernel, l.RunID, l.Seq = &d.kernel, d.kernel.RunID, d.kernel.Seq; d.kernel.V0 {
			l.Schema = KernelEventV0
		}
		return l, nil
	}
	var err error
	d.in.Reset(bytes.NewBuffer(line))
	in := lineReader{&d.in}
	switch d.id {
	case EventV0:
		l.Event = &Event{}
		err = l.Event.read(in)
		l.RunID, l.Seq = l.Event.RunID, l.Event.Seq
	case PolicyEventV0:
		l.Policy = &PolicyEvent{}
		err = l.Policy.read(in)
		l.RunID, l.Seq = l.Policy.RunID, l.Policy.Seq
	case SDKEventV0:
		l.SDK = &SDKEvent{}
		err = l.SDK.read(in)
		l.RunID, l.Seq = l.SDK.RunID, l.SDK.Seq
	case TurnV0:
		l.Turn = &Turn{}
		err = l.Turn.read(in)
		l.RunID, l.Seq = l.Turn.RunID, l.Turn.Seq
	case CallEventV2:
		l.Call = &CallEvent{}
		err = l.Call.read(in)
		l.RunID, l.Seq = l.Call.RunID, l.Call.Seq
	case ModelEventV0:
		l.Model = &ModelEvent{}
		err = l.Model.read(in)
		l.RunID, l.Seq = l.Model.RunID, l.Model.Seq
	default:
		return Record{}, ErrUnknownSchema
	}
	if err == nil {
		if _, err = in.ReadToken(); err == io.EOF {
			return l, nil
		}
	}
	if serr := checkSyntax(line); serr != nil {
		return Record{}, serr
	}
	return Record{}, fmt.Errorf("%w: %s", ErrSchema, oneLine(err.Error()))
}
