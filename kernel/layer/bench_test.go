package layer

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

func BenchmarkBuilderAndAppender(b *testing.B) {
	var buf bytes.Buffer
	line := make([]byte, 0, 4096)
	bl := NewBuilder(Options{RunID: "run_01JABCDEFGHJKMNPQRSTVWXYZ0", Start: start,
		Surface: surface.New("r", b.TempDir()), Sink: func(e *schema.KernelEvent) error {
			line = append(schema.AppendJSON(line[:0], e), '\n')
			buf.Write(line)
			if buf.Len() > 1<<20 {
				buf.Reset()
			}
			return nil
		}})
	paths := make([]string, 20000)
	for i := range paths {
		paths[i] = fmt.Sprintf("/home/user/project/node_modules/package-%d/lib/file_%d.js", i/50, i)
	}
	push(b, bl, forkEvent(0, 1, 10), execEvent(1, 10, "/usr/bin/node"))
	ev := openEvent(2, 10, "/x", cloexec, 0)
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		i++
		ev.Time, ev.ID, ev.Count = at(2000*i^(i&3)*1500), i, 1
		ev.Value = paths[i%uint64(len(paths))]
		if err := bl.Push(&ev); err != nil {
			b.Fatal(err)
		}
	}
}
