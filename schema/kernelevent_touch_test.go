package schema

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTouches(t *testing.T) {
	touch := func(k KernelKind, flags uint64) (got []string) {
		e := KernelEvent{Kind: k, Value: "v", Target: "t", Flags: flags}
		for name, how := range e.Touches() {
			words := name
			for i, w := range []string{"read", "write", "create", "remove", "change", "run", "connect"} {
				if how&(1<<i) != 0 {
					words += " " + w
				}
			}
			got = append(got, words)
		}
		return got
	}
	for _, c := range []struct {
		kind  KernelKind
		flags uint64
		want  []string
	}{
		{KindOpen, 0, []string{"v read"}},
		{KindOpen, openWrOnly, []string{"v write"}},
		{KindOpen, openRdWr, []string{"v read write"}},
		{KindOpen, openTrunc, []string{"v read write"}},
		{KindOpen, openWrOnly | openCreat, []string{"v write create"}},
		{KindRename, 0, []string{"v remove", "t create"}},
		{KindLink, 0, []string{"v", "t create"}},
		{KindSymlink, 0, []string{"v create"}},
		{KindSetxattr, 0, []string{"v change"}},
		{KindUnlink, 0, []string{"v remove"}},
		{KindExec, 0, []string{"v run"}},
		{KindExecFailed, 0, []string{"v"}},
		{KindSendto, 0, []string{"v connect"}},
		{KindFileBlocked, 0, []string{"v"}},
		{KindChdir, 0, nil}, {KindBind, 0, nil}, {KindFlow, 0, nil}, {KindMount, 0, nil}, {999, 0, nil},
	} {
		if diff := cmp.Diff(c.want, touch(c.kind, c.flags)); diff != "" {
			t.Errorf("%v with flags %o: %s", c.kind, c.flags, diff)
		}
	}
	for _, k := range Kinds() {
		e := KernelEvent{Kind: k}
		if value, target := k.touches(&e); value == unsaid || target == unsaid {
			t.Errorf("touches does not say what %v touches", k)
		}
	}
	e := KernelEvent{Kind: KindRename, Target: "t"}
	for name := range e.Touches() {
		if name == "" {
			t.Error("an empty name is touched")
		}
	}
}
