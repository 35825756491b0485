package slots

import "testing"

func TestTable(t *testing.T) {
	var table Table[string]
	slots := []uint32{0, 15, 16, 5119, 20_000_000}
	for _, slot := range append(slots, 1<<32-1) {
		if v := table.Get(slot); v != "" {
			t.Errorf("slot %d of an empty table is %q", slot, v)
		}
	}
	for i, slot := range slots {
		*table.At(slot) = string(rune('a' + i))
	}
	for i, slot := range slots {
		if v := table.Get(slot); v != string(rune('a'+i)) {
			t.Errorf("slot %d is %q, want %q", slot, v, string(rune('a'+i)))
		}
	}
	for _, slot := range []uint32{1, 14, 17, 4000} {
		if v := table.Get(slot); v != "" {
			t.Errorf("slot %d, which was never set, is %q", slot, v)
		}
	}
	if table.At(1<<32-1) != nil {
		t.Error("there is a slot of an impossible number")
	}
}
