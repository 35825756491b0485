//go:build amd64 || arm64

package notify

import (
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// A call whose arguments the decoder does not know would end the recorder.
func TestEveryNotifiedCallCanBeRead(t *testing.T) {
	native, compat := calls()
	for _, table := range []map[uint32]*kernel.Call{native, compat} {
		for nr, c := range table {
			for _, arg := range []uint8{c.FD, c.Dirfd, c.Path, c.Dirfd2, c.Path2, c.Text} {
				if arg > 5 && arg != kernel.NoArg {
					t.Errorf("%s (%d) has an argument %d", c.Name, nr, arg)
				}
			}
			switch c.Kind {
			case schema.KindConnect, schema.KindBind, schema.KindSendto:
				if c.Path == kernel.NoArg && c.Name != "sendmsg" && c.Name != "sendmmsg" {
					t.Errorf("%s (%d) has no address", c.Name, nr)
				}
			case schema.KindExec, schema.KindAccept, schema.KindWrite, schema.KindMmapShared:
				t.Errorf("%s (%d) is known by its result only", c.Name, nr)
			}
			if hookNames[c.Hook] == "" {
				t.Errorf("%s (%d) counts for hook %v, which has no name", c.Name, nr, c.Hook)
			}
		}
	}
	if _, err := filter(); err != nil {
		t.Error(err)
	}
}

func TestJoin(t *testing.T) {
	for _, c := range []struct {
		base, name, want string
		unresolved       bool
	}{
		{"/w", "a/b", "/w/a/b", false},
		{"/", "a", "/a", false},
		{"", "/etc//./passwd", "/etc/passwd", false},
		{"/w/d", "../a", "/w/a", false},
		{"/w", "../../../a", "/a", false},
		{"/w", "..", "/", false},
		{"/w", "link/../a", "/w/link/../a", true}, // link may be a symbolic link
		{"", "/a/..", "/a/..", true},
		{"/w", "", "/w", false},
		{"", "/", "/", false},
	} {
		got, unresolved := join([]byte(c.base), []byte(c.name))
		if string(got) != c.want || unresolved != c.unresolved {
			t.Errorf("join(%q, %q) = %q, %t, want %q, %t", c.base, c.name, got, unresolved, c.want, c.unresolved)
		}
	}
}
