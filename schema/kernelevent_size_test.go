package schema

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// build writes what a build looks like: processes that come, open headers and
// sources in many directories (a third of them not there), write one file each
// and go, some microseconds apart.
func build(n int, line func([]byte)) {
	r := rand.New(rand.NewPCG(1, 2))
	dirs := make([]string, 400)
	for i := range dirs {
		dirs[i] = fmt.Sprintf("/home/user/project/node_modules/@scope/package-%x/dist/%s", r.Uint32()&0xffffff,
			[...]string{"lib", "src", "esm/internal", "types"}[r.IntN(4)])
	}
	var buf []byte
	now, id, pid := int64(50_000_000), uint64(1), uint32(40_000)
	for i := range n {
		now += int64(2_000 + r.ExpFloat64()*40_000)
		e := KernelEvent{RunID: "run_01JABCDEFGHJKMNPQRSTVWXYZ0", Seq: uint64(i), TNS: now, Kind: KindOpen, PID: pid,
			TID: pid, ExecID: id, HasResult: true, Result: int64(3 + r.IntN(20)), Flags: 0o2000000}
		e.Value = fmt.Sprintf("%s/%s%x.%s", dirs[min(r.IntN(400), r.IntN(400))],
			[...]string{"index", "util", "parse", "types", "chunk-"}[r.IntN(5)], r.IntN(1<<12),
			[...]string{"js", "d.ts", "json", "mjs"}[r.IntN(4)])
		switch k := i % 100; {
		case k == 0:
			e.Kind, e.HasResult, e.Result, e.Flags, e.PPID, e.CgroupID, e.Value = KindFork, false, 0, 0, 40_000, 77_123,
				""
			pid, id = pid+1+uint32(r.IntN(3)), id+1
		case k == 1:
			e.Kind, e.HasResult, e.Result, e.Flags, e.PPID, e.CgroupID, e.Value = KindExec, false, 0, 0, 40_000, 77_123,
				"/usr/bin/node"
			e.Cwd, e.Argv, e.EnvKeys = "/home/user/project",
				[]string{"node", "--max-old-space-size=4096", dirs[r.IntN(400)] + "/cli.js"},
				[]string{"HOME", "PATH", "LANG", "NODE_ENV", "npm_config_cache"}
			id++
		case k < 10:
			e.Class, e.Value = ClassLoader,
				fmt.Sprintf("/usr/lib/x86_64-linux-gnu/lib%s.so.%d",
					[...]string{"c", "m", "dl", "stdc++", "pthread", "z", "ssl", "crypto"}[k-2], k)
		case k == 97:
			e.Flags, e.Mode = 0o2001101, 0o644
		case k == 98:
			e.Kind, e.HasResult, e.Result, e.Flags, e.BytesOut = KindWrite, false, 0, 0, uint64(r.IntN(1<<16))
		case k == 99:
			e.Kind, e.HasResult, e.Result, e.Flags, e.Value = KindExit, false, 0, 0, ""
		case k%3 == 0:
			e.Result, e.UserMemory = -2, true
		}
		buf = append(AppendJSON(buf[:0], &e), '\n')
		line(buf)
	}
}

type counter int64

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }

// BenchmarkCompressedSize tells how many bytes an event takes in a .tar.gz.
func BenchmarkCompressedSize(b *testing.B) {
	const events = 200_000
	for _, level := range []int{1, 3, 5, 6, 9} {
		b.Run(fmt.Sprint("gzip", level), func(b *testing.B) {
			var plain, packed counter
			for b.Loop() {
				plain, packed = 0, 0
				z, err := gzip.NewWriterLevel(&packed, level)
				if err != nil {
					b.Fatal(err)
				}
				build(events, func(line []byte) { plain.Write(line); z.Write(line) })
				z.Close()
			}
			b.ReportMetric(float64(packed)/events, "B/event")
			b.ReportMetric(float64(plain)/events, "plainB/event")
		})
	}
}
