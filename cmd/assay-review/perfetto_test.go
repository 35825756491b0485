package main

import (
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// perfettoField is a field of a message: its name, its wire type, and the message or
// text in it.
type perfettoField struct {
	name string
	wire protowire.Type
	of   string // a message, "text", or empty
	most uint64 // of a number; 0: any
}

// perfettoSchema is the part of Perfetto's trace format that events of a track need, as
// google/perfetto has it in protos/perfetto/trace: trace.proto, trace_packet.proto,
// and in track_event/ track_event.proto, track_descriptor.proto,
// process_descriptor.proto and debug_annotation.proto.
var perfettoSchema = map[string]map[protowire.Number]perfettoField{
	"Trace": {1: {"packet", protowire.BytesType, "TracePacket", 0}},
	"TracePacket": {
		8:  {"timestamp", protowire.VarintType, "", 0},
		10: {"trusted_packet_sequence_id", protowire.VarintType, "", 1<<32 - 1},
		11: {"track_event", protowire.BytesType, "TrackEvent", 0},
		13: {"sequence_flags", protowire.VarintType, "", 3},
		60: {"track_descriptor", protowire.BytesType, "TrackDescriptor", 0},
	},
	"TrackDescriptor": {
		1: {"uuid", protowire.VarintType, "", 0},
		2: {"name", protowire.BytesType, "text", 0},
		3: {"process", protowire.BytesType, "ProcessDescriptor", 0},
		5: {"parent_uuid", protowire.VarintType, "", 0},
	},
	"ProcessDescriptor": {
		1: {"pid", protowire.VarintType, "", 1<<31 - 1},
		2: {"cmdline", protowire.BytesType, "text", 0},
		6: {"process_name", protowire.BytesType, "text", 0},
	},
	"TrackEvent": {
		4:  {"debug_annotations", protowire.BytesType, "DebugAnnotation", 0},
		9:  {"type", protowire.VarintType, "", 4},
		11: {"track_uuid", protowire.VarintType, "", 0},
		22: {"categories", protowire.BytesType, "text", 0},
		23: {"name", protowire.BytesType, "text", 0},
	},
	"DebugAnnotation": {
		6:  {"string_value", protowire.BytesType, "text", 0},
		10: {"name", protowire.BytesType, "text", 0},
	},
}

// ofPerfettosSchema refuses a field that the message does not have, one of another
// type, a number that does not fit, and text that is not UTF-8.
func ofPerfettosSchema(t *testing.T, name string, m []byte) {
	t.Helper()
	for len(m) > 0 {
		num, wire, n := protowire.ConsumeTag(m)
		if n < 0 {
			t.Fatalf("%s: %v", name, protowire.ParseError(n))
		}
		m = m[n:]
		f, ok := perfettoSchema[name][num]
		if !ok || f.wire != wire {
			t.Fatalf("%s has field %d of wire type %d, want %v", name, num, wire, f)
		}
		if wire == protowire.VarintType {
			v, n := protowire.ConsumeVarint(m)
			if n < 0 || f.most > 0 && v > f.most {
				t.Fatalf("%s.%s is %d", name, f.name, v)
			}
			m = m[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(m)
		if n < 0 {
			t.Fatalf("%s.%s: %v", name, f.name, protowire.ParseError(n))
		}
		m = m[n:]
		if f.of != "text" {
			ofPerfettosSchema(t, f.of, v)
		} else if !utf8.Valid(v) {
			t.Errorf("%s.%s is %q", name, f.name, v)
		}
	}
}
