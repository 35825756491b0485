package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/assay-run/assay-run/schema"
)

// entry is one member as it goes into a hostile tar: any header, any body.
type entry struct {
	path   string
	header []byte
	body   []byte // padding included
}

func plainEntry(path string, body []byte) entry {
	return entry{path, appendHeaders(nil, path, int64(len(body))), padded(body)}
}

func padded(b []byte) []byte { return append(bytes.Clone(b), zeros[:padding(int64(len(b)))]...) }

// typed is an entry without a body and of another type.
func typed(path string, kind byte, change func(h []byte)) entry {
	h := header(path, 0, kind)
	if change != nil {
		change(h[:])
	}
	return entry{path, resum(h[:]), nil}
}

// resum corrects the checksum of a changed header.
func resum(h []byte) []byte {
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h[:blockSize] {
		sum += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// files are a bundle's members without the manifest.
type files map[string][]byte

// edit replaces text that must be there.
func (f files) edit(path, old, new string) {
	if !bytes.Contains(f[path], []byte(old)) {
		panic(fmt.Sprintf("%s does not contain %s: %s", path, old, f[path]))
	}
	f[path] = bytes.Replace(f[path], []byte(old), []byte(new), 1)
}

// turn adds a turn, and its account.
func (f files) turn(rest string) {
	f[schema.TurnsPath] = fmt.Appendf(nil,
		`{"schema":%q,"run_id":%q,"seq":0,"tool":"x","source":"gateway","tool_call_id":"c","t_start_ns":0,"t_end_ns":0,%s}`+"\n", schema.TurnV0, testRunID, rest)
	f.edit(schema.HealthPath, `"turns": {
      "seen": 0,
      "written": 0`, `"turns": {
      "seen": 1,
      "written": 1`)
}

func (f files) manifest() schema.Manifest {
	m := schema.Manifest{Schema: schema.ManifestV0, RunID: testRunID, Files: map[string]schema.ManifestFile{}}
	for p, b := range f {
		m.Files[p] = manifestFile(p, int64(len(b)), sha256.Sum256(b))
	}
	return m
}

// entries is the tar of a sound bundle, to be spoiled.
func (f files) entries(manifest []byte) []entry {
	list := []entry{plainEntry(schema.ManifestPath, manifest)}
	for _, p := range slices.Sorted(maps.Keys(f)) {
		list = append(list, plainEntry(p, f[p]))
	}
	return list
}

func joined(list []entry) []byte {
	var b []byte
	for _, e := range list {
		b = append(append(b, e.header...), e.body...)
	}
	return append(b, zeros[:]...)
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

func canonical(v any) []byte {
	b, err := schema.Document(v)
	if err != nil {
		panic(err)
	}
	return b
}

// inFiles spoils what the members say; the archive around them is sound.
func inFiles(spoil func(f files)) func(f files) []byte {
	return func(f files) []byte {
		spoil(f)
		f.reseal()
		return gzipped(joined(f.entries(canonical(f.manifest()))))
	}
}

// checkpoint adds a checkpoint of the first n lines of a layer before the end of the
// lifecycle; spoil is added to the last of them.
func (f files) checkpoint(layer string, n int, spoil string) {
	var t tree
	for _, p := range schema.Layers {
		if schema.LayerName(p) == layer {
			lines := bytes.SplitAfter(f[p], []byte{'\n'})
			for i := range min(n, len(lines)-1) {
				line := bytes.TrimSuffix(lines[i], []byte{'\n'})
				if i == n-1 {
					line = append(bytes.Clone(line), spoil...)
				}
				t.add(tlog.RecordHash(line))
			}
		}
	}
	lines := bytes.SplitAfter(f[schema.EventsPath], []byte{'\n'})
	last := len(lines) - 2
	seq := fmt.Sprintf(`"seq":%d,`, last)
	point := fmt.Sprintf(`{"schema":%q,"run_id":%q,%s"type":"checkpoint","t_ns":1,"checkpoint":{"layers":{%q:{"lines":%d,"root":%q}}}}`+"\n",
		schema.EventV0, testRunID, seq, layer, n, digest(t.root()))
	end := bytes.Replace(lines[last], []byte(seq), fmt.Appendf(nil, `"seq":%d,`, last+1), 1)
	f[schema.EventsPath] = slices.Concat(bytes.Join(lines[:last], nil), []byte(point), end)
	f.edit(schema.HealthPath, fmt.Sprintf(`"lifecycle": {
      "seen": %d,
      "written": %d`, last+1, last+1), fmt.Sprintf(`"lifecycle": {
      "seen": %d,
      "written": %d`, last+2, last+2))
}

// reseal makes integrity.json of what the other members are now.
func (f files) reseal() {
	doc := schema.Integrity{Schema: schema.IntegrityV0, RunID: testRunID,
		Checkpoint: schema.Checkpoint{Layers: map[string]schema.LayerTree{}, Members: map[string]schema.MemberBytes{}}}
	for _, p := range schema.Layers {
		var t tree
		t.addLines(f[p][:bytes.LastIndexByte(f[p], '\n')+1])
		doc.Layers[schema.LayerName(p)] = t.state()
	}
	for p, b := range f {
		if isStream(p) {
			doc.Members[p] = schema.MemberBytes{Bytes: int64(len(b)), SHA256: digest(sha256.Sum256(b))}
		}
	}
	f[schema.IntegrityPath] = canonical(doc)
}

// inIntegrity spoils what integrity.json, or the checkpoints, hold the members
// against.
func inIntegrity(spoil func(f files)) func(f files) []byte {
	return func(f files) []byte {
		f.reseal()
		spoil(f)
		return gzipped(joined(f.entries(canonical(f.manifest()))))
	}
}

// withReceipt is a bundle whose health has a receipt of redaction.
func withReceipt(receipt string) func(f files) []byte {
	return inFiles(func(f files) {
		f.edit(schema.HealthPath, `"hooks": []`, `"redaction": {`+receipt+`}, "hooks": []`)
	})
}

// withRemoval is one whose secrets were removed later.
func withRemoval(removal string) func(f files) []byte {
	return withReceipt(`"mode": "enabled", "redacted_count": 0, "by_rule": {}, "by_field": {}, "removals": [{` +
		removal + `}]`)
}

// inManifest spoils the manifest alone.
func inManifest(spoil func(m *schema.Manifest)) func(f files) []byte {
	return func(f files) []byte {
		m := f.manifest()
		spoil(&m)
		return gzipped(joined(f.entries(canonical(m))))
	}
}

// inTar spoils the list of members.
func inTar(spoil func(list []entry) []entry) func(f files) []byte {
	return func(f files) []byte {
		return gzipped(joined(spoil(f.entries(canonical(f.manifest())))))
	}
}

// inBytes spoils the packed archive.
func inBytes(spoil func(packed []byte) []byte) func(f files) []byte {
	return func(f files) []byte { return spoil(gzipped(joined(f.entries(canonical(f.manifest()))))) }
}

func insertLast(e entry) func(f files) []byte {
	return inTar(func(l []entry) []entry { return append(l, e) })
}

// changeHeader spoils the header of the second member, with a right checksum.
func changeHeader(change func(h []byte)) func(f files) []byte {
	return inTar(func(l []entry) []entry { change(l[1].header); resum(l[1].header); return l })
}

func pax(records string) []byte {
	h := header(paxName, int64(len(records)), 'x')
	return append(h[:], padded([]byte(records))...)
}

// contract adds an outcome contract that passed, as change leaves it.
func (f files) contract(change func(c *schema.Contract)) {
	f.edit(schema.ResultPath, `"contract": null`, `"contract": "passed"`)
	f[schema.CheckOutputPath("a")] = []byte("ok\n")
	c := schema.Contract{
		Schema: schema.ContractV0, RunID: testRunID, Digest: digest(sha256.Sum256(nil)), FileAfter: "unchanged",
		Contract: schema.ContractDefinition{Checks: []schema.Check{{Name: "a", Command: "echo ok", ExpectExitZero: true,
			TimeoutSecs: 1}}},
		Verdict: schema.VerdictPassed, Reasons: []string{}, ProtectedChanges: []schema.ProtectedChange{},
		Results: []schema.CheckResult{{
			Name: "a", Passed: true, Ran: true, ExitCode: pointerTo(0), OutputTail: "ok\n", OutputBytes: 3,
			OutputKept: 3,
			OutputPath: schema.CheckOutputPath("a"), Rerun: "sh -c 'echo ok'",
		}},
	}
	change(&c)
	f[schema.ContractPath] = canonical(c)
}

func pointerTo[T any](v T) *T { return &v }

// withContract spoils what a bundle says about a contract.
func withContract(spoil func(f files, c *schema.Contract)) func(f files) []byte {
	return inFiles(func(f files) { f.contract(func(c *schema.Contract) { spoil(f, c) }) })
}

// bomb is a sound bundle but for a member of 1 GiB of zeros, packed by zstd's
// run-length blocks (RFC 8878, 3.1.1.2.2) into some 36 KB.
func bomb(f files) []byte {
	const blocks, blockLen = 8192, 128 << 10
	h := sha256.New()
	for range blocks {
		h.Write(make([]byte, blockLen))
	}
	const path = "stdio/zz"
	m := f.manifest()
	m.Files[path] = manifestFile(path, blocks*blockLen, [sha256.Size]byte(h.Sum(nil)))
	b := joined(append(f.entries(canonical(m)), entry{path, appendHeaders(nil, path, blocks*blockLen), nil}))
	out := zstdCodec.stored(b[:len(b)-len(zeros)])
	out = append(out, "\x28\xb5\x2f\xfd\x00\x50"...) // no content size, a window of 1 MiB
	for i := range blocks {
		head := uint32(blockLen<<3 | 1<<1)
		if i == blocks-1 {
			head |= 1
		}
		out = append(append(out, binary.LittleEndian.AppendUint32(nil, head)[:3]...), 0)
	}
	return append(out, zstdCodec.stored(zeros[:])...)
}
