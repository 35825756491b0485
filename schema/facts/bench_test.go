package facts

import (
	"fmt"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// BenchmarkReader reads lines as a build makes them: each file is made, written, read and renamed.
func BenchmarkReader(b *testing.B) {
	var lines []schema.KernelEvent
	for i := range 20_000 {
		file := fmt.Sprintf("/w/project/target/%d/t%d", i/100, i)
		tmp := file + ".tmp"
		lines = append(lines,
			schema.KernelEvent{Kind: schema.KindOpen, ExecID: 1, Value: tmp, Flags: 0o101, Created: true,
				HasResult: true},
			schema.KernelEvent{Kind: schema.KindOpen, ExecID: 1, Value: "/usr/lib/x/libx.so", HasResult: true},
			schema.KernelEvent{Kind: schema.KindOpen, ExecID: 1, Value: file, HasResult: true},
			schema.KernelEvent{Kind: schema.KindWrite, ExecID: 1, Value: tmp, HasResult: true},
			schema.KernelEvent{Kind: schema.KindRename, ExecID: 1, Value: tmp, Target: file, HasResult: true})
	}
	for b.Loop() {
		r := NewReader(true)
		for i := range lines {
			r.Read(&lines[i])
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(lines)), "ns/line")
}
