package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/gitpatch"
)

// hostile is one file of the corpus: one fault, one code.
type hostile struct {
	name string
	code Code
	make func(f files) []byte
}

func hostileCorpus() []hostile {
	list := []hostile{
		{"empty-file", CodeTruncated, func(files) []byte { return nil }},
		{"text-file", CodeUnsupportedFormat, func(files) []byte { return []byte("this is no bundle\n") }},
		{"zip-file", CodeUnsupportedFormat, func(files) []byte {
			return []byte("PK\x05\x06" + strings.Repeat("\x00", 18))
		}},
		{"gzip-cut-in-the-middle", CodeTruncated, inBytes(func(b []byte) []byte { return b[:len(b)/2] })},
		{"gzip-cut-in-the-trailer", CodeTruncated, inBytes(func(b []byte) []byte { return b[:len(b)-3] })},
		{"gzip-cut-in-the-header", CodeTruncated, inBytes(func(b []byte) []byte { return b[:7] })},
		{"gzip-flipped-byte-in-the-checksum", CodeCompression, inBytes(func(b []byte) []byte {
			b[len(b)-6] ^= 1
			return b
		})},
		{"gzip-of-an-unknown-method", CodeCompression, inBytes(func(b []byte) []byte { b[2] = 7; return b })},
		{"tar-without-an-end", CodeTruncated, func(f files) []byte {
			b := joined(f.entries(canonical(f.manifest())))
			return gzipped(b[:len(b)-len(zeros)])
		}},
		{"tar-cut-in-a-member", CodeTruncated, func(f files) []byte {
			b := joined(f.entries(canonical(f.manifest())))
			return gzipped(b[:len(b)-len(zeros)-100])
		}},
		{"garbage-after-the-gzip", CodeTrailing, inBytes(func(b []byte) []byte {
			return append(b, "garbage, longer than a gzip header"...)
		})},
		{"garbage-after-the-tar", CodeTrailing, func(f files) []byte {
			return gzipped(append(joined(f.entries(canonical(f.manifest()))), "garbage"...))
		}},
		{"a-second-gzip-after-the-first", CodeTrailing, inBytes(func(b []byte) []byte {
			return append(b, gzipped([]byte("more"))...)
		})},
		{"empty-tar", CodeManifestFirst, func(files) []byte { return gzipped(zeros[:]) }},

		{"flipped-byte-in-a-member", CodeDigest, inTar(func(l []entry) []entry { l[len(l)-1].body[0] ^= 1; return l })},
		{"size-differs-from-the-manifest", CodeSize, inManifest(func(m *schema.Manifest) {
			e := m.Files[schema.StdoutPath]
			e.Bytes++
			m.Files[schema.StdoutPath] = e
		})},
		{"member-missing", CodeMissing, inTar(func(l []entry) []entry { return l[:len(l)-1] })},
		{"member-extra", CodeExtra, insertLast(plainEntry("stdio/zz", []byte("x")))},
		{"header-checksum-wrong", CodeHeaderChecksum, inTar(func(l []entry) []entry {
			l[1].header[148] ^= 1
			return l
		})},

		{"manifest-second", CodeManifestFirst, inTar(func(l []entry) []entry { l[0], l[1] = l[1], l[0]; return l })},
		{"manifest-of-another-schema", CodeManifest, inManifest(func(m *schema.Manifest) { m.Schema += "x" })},
		{"manifest-entry-with-another-path", CodeManifest, inManifest(func(m *schema.Manifest) {
			e := m.Files[schema.StdoutPath]
			e.Path = "stdio/other"
			m.Files[schema.StdoutPath] = e
		})},
		{"manifest-with-a-key-twice", CodeManifest, func(f files) []byte {
			doc := strings.Replace(string(canonical(f.manifest())), `"run_id"`, `"run_id": "x", "run_id"`, 1)
			return gzipped(joined(f.entries([]byte(doc))))
		}},
		{"manifest-compact", CodeManifestForm, func(f files) []byte {
			doc, _ := json.Marshal(f.manifest())
			return gzipped(joined(f.entries(doc)))
		}},
		{"manifest-lists-a-climbing-path", CodeUnsafePath, inManifest(func(m *schema.Manifest) {
			m.Files["../x"] = manifestFile("../x", 0, sha256.Sum256(nil))
		})},
		{"manifest-lists-itself", CodeManifest, inManifest(func(m *schema.Manifest) {
			m.Files[schema.ManifestPath] = manifestFile(schema.ManifestPath, 0, sha256.Sum256(nil))
		})},
		{"layer-not-in-the-bundle", CodeRequired, inFiles(func(f files) { delete(f, schema.TurnsPath) })},

		{"member-twice", CodeDuplicateMember, inTar(func(l []entry) []entry { return append(l, l[len(l)-1]) })},
		{"members-out-of-order", CodeOrder, inTar(func(l []entry) []entry { l[1], l[2] = l[2], l[1]; return l })},
		{"pax-global-header", CodeHeaderExtension, insertLast(typed("x", 'g', nil))},
		{"gnu-long-name", CodeHeaderExtension, insertLast(typed("././@LongLink", 'L', nil))},
		{"gnu-sparse", CodeHeaderExtension, insertLast(typed("stdio/zz", 'S', nil))},
		{"pax-sparse", CodeHeaderExtension, inTar(func(l []entry) []entry {
			l[1].header = append(pax(paxRecord("GNU.sparse.major", "1")), l[1].header...)
			return l
		})},
		{"pax-mtime", CodeHeaderExtension, inTar(func(l []entry) []entry {
			l[1].header = append(pax(paxRecord("mtime", "1.5")), l[1].header...)
			return l
		})},
		{"pax-path-not-needed", CodeHeaderForm, inTar(func(l []entry) []entry {
			l[1].header = append(pax(paxRecord("path", l[1].path)), l[1].header...)
			return l
		})},
		{"pax-path-that-climbs", CodeUnsafePath, inTar(func(l []entry) []entry {
			l[1].header = append(pax(paxRecord("path", "../../etc/passwd")), l[1].header...)
			return l
		})},
		{"pax-header-of-a-gigabyte", CodeHeaderExtension, inTar(func(l []entry) []entry {
			h := header(paxName, 1<<30, 'x')
			l[1].header = append(h[:], l[1].header...)
			return l
		})},
		{"pax-record-with-a-wrong-length", CodeHeaderExtension, inTar(func(l []entry) []entry {
			l[1].header = append(pax("99 path=x\n"), l[1].header...)
			return l
		})},
		{"size-in-base-256", CodeHeaderForm, changeHeader(func(h []byte) {
			copy(h[124:136], "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff")
		})},
		{"uid-of-somebody", CodeHeaderForm, changeHeader(func(h []byte) { copy(h[108:116], "0001750\x00") })},
		{"mtime-of-today", CodeHeaderForm, changeHeader(func(h []byte) { copy(h[136:148], "15000000000\x00") })},
		{"mode-setuid", CodeHeaderForm, changeHeader(func(h []byte) { copy(h[100:108], "0004755\x00") })},
		{"user-name", CodeHeaderForm, changeHeader(func(h []byte) { copy(h[265:], "root") })},
		{"old-style-header", CodeHeaderForm, changeHeader(func(h []byte) { clear(h[257:]); h[156] = 0 })},
		{"data-in-the-padding", CodeHeaderForm, inTar(func(l []entry) []entry {
			b := l[len(l)-1].body
			b[len(b)-1] = 1
			return l
		})},
		{"nul-within-a-name", CodeHeaderForm, insertLast(typed("stdio/zz", '0', func(h []byte) {
			copy(h[20:], "hidden")
		}))},

		{"document-too-large", CodeLimit, inFiles(func(f files) {
			f[schema.SurfacePath] = bytes.Repeat([]byte{' '}, maxDocument+1)
		})},
		{"line-too-long", CodeLimit, inFiles(func(f files) {
			f.edit(schema.PolicyPath, `"tool":"read_file"`, `"tool":"`+strings.Repeat("x", MaxLine)+`"`)
		})},
		{"decompression-bomb", CodeBomb, bomb},

		{"line-that-is-no-json", CodeJSON, inFiles(func(f files) {
			f.edit(schema.KernelPath, `"value":"`, `"value":`)
		})},
		{"document-that-is-no-json", CodeJSON, inFiles(func(f files) { f.edit(schema.SurfacePath, `{`, `[`) })},
		{"line-with-a-number-that-fills-memory", CodeJSON, inFiles(func(f files) {
			f.edit(schema.KernelPath, `"mode":0`, `"mode":1e999999999`)
		})},
		{"line-with-a-key-twice", CodeDuplicateKey, inFiles(func(f files) {
			f.edit(schema.KernelPath, `"mode":0`, `"mode":0,"mode":0`)
		})},
		{"document-with-a-key-twice", CodeDuplicateKey, inFiles(func(f files) {
			f.edit(schema.ResultPath, `"outcome"`, `"outcome": "limit", "outcome"`)
		})},
		{"line-of-no-known-kind", CodeSchema, inFiles(func(f files) {
			f.edit(schema.KernelPath, `"kind":"openat"`, `"kind":"opened"`)
		})},
		{"integrity-of-another-line", CodeIntegrity, inIntegrity(func(f files) {
			f.edit(schema.KernelPath, `"pid":4000`, `"pid":4001`)
		})},
		{"integrity-of-more-lines", CodeIntegrity, inIntegrity(func(f files) {
			f.edit(schema.IntegrityPath, `"lines": 3`, `"lines": 4`)
		})},
		{"integrity-without-a-layer", CodeIntegrity, inIntegrity(func(f files) {
			f.edit(schema.IntegrityPath, `"kernel": {`, `"colonel": {`)
		})},
		{"integrity-of-another-stream", CodeIntegrity, inIntegrity(func(f files) {
			f.edit(schema.IntegrityPath, `"stdio/stdout": {`, `"stdio/stdin": {`)
		})},
		{"integrity-of-no-digest", CodeSchema, inIntegrity(func(f files) {
			f.edit(schema.IntegrityPath, `"root": "sha256:`, `"root": "sha512:`)
		})},
		{"checkpoint-of-another-line", CodeIntegrity, inFiles(func(f files) { f.checkpoint("kernel", 2, "x") })},
		{"checkpoint-of-more-lines", CodeIntegrity, inFiles(func(f files) { f.checkpoint("kernel", 9, "") })},
		{"checkpoint-of-another-lifecycle", CodeIntegrity, inFiles(func(f files) {
			f.checkpoint("lifecycle", 1, "x")
		})},
		{"line-that-contradicts-itself", CodeSchema, inFiles(func(f files) {
			f.edit(schema.KernelPath, `"access_mode":"read"`, `"access_mode":"write"`)
		})},
		{"line-with-a-pid-that-does-not-fit", CodeSchema, inFiles(func(f files) {
			f.edit(schema.KernelPath, `"pid":4000`, `"pid":4294967296`)
		})},
		{"line-with-an-added-key-in-v0", CodeSchema, inFiles(func(f files) {
			f.edit(schema.KernelPath, `"mode":0`, `"mode":0,"more":0`)
		})},
		{"line-that-is-empty", CodeJSON, inFiles(func(f files) {
			b := bytes.TrimSuffix(f[schema.KernelPath], []byte("\n"))
			f[schema.KernelPath] = append(b[:bytes.LastIndexByte(b, '\n')+1], '\n')
		})},
		{"layer-of-another-schema", CodeSchema, inFiles(func(f files) {
			f.edit(schema.PolicyPath, schema.PolicyEventV0, schema.SDKEventV0)
		})},
		{"document-with-a-bad-value", CodeSchema, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"sdk_layer": "absent"`, `"sdk_layer": "some"`)
		})},
		{"run-that-tells-its-output", CodeSchema, inFiles(func(f files) {
			f.edit(schema.RunPath, `"kernel"`, `"output": "/tmp/x", "kernel"`)
		})},
		{"last-line-without-a-newline", CodeUnterminated, inFiles(func(f files) {
			f[schema.PolicyPath] = bytes.TrimSuffix(f[schema.PolicyPath], []byte("\n"))
			f.edit(schema.HealthPath, `"policy": {
      "seen": 1,
      "written": 1`, `"policy": {
      "seen": 0,
      "written": 0`)
		})},
		{"seq-with-a-gap", CodeSeq, inFiles(func(f files) { f.edit(schema.KernelPath, `"seq":1`, `"seq":9`) })},
		{"seq-that-starts-at-1", CodeSeq, inFiles(func(f files) { f.edit(schema.PolicyPath, `"seq":0`, `"seq":1`) })},
		{"line-of-another-run", CodeRunID, inFiles(func(f files) {
			f.edit(schema.KernelPath, testRunID, "run_other")
		})},
		{"document-of-another-run", CodeRunID, inFiles(func(f files) {
			f.edit(schema.SurfacePath, testRunID, "run_other")
		})},
		{"run-started-missing", CodeLifecycle, inFiles(func(f files) {
			f.edit(schema.EventsPath, `"type":"run_started"`, `"type":"process_started"`)
		})},
		{"run-finished-missing", CodeLifecycle, inFiles(func(f files) {
			f.edit(schema.EventsPath, `"type":"run_finished"`, `"type":"process_exited"`)
		})},
		{"run-finished-twice", CodeLifecycle, inFiles(func(f files) {
			_, last, _ := bytes.Cut(f[schema.EventsPath], []byte("\n"))
			f[schema.EventsPath] = append(f[schema.EventsPath],
				bytes.Replace(last, []byte(`"seq":1`), []byte(`"seq":2`), 1)...)
			f.edit(schema.HealthPath, `"lifecycle": {
      "seen": 2,
      "written": 2`, `"lifecycle": {
      "seen": 3,
      "written": 3`)
		})},
		{"exit-code-hidden-by-a-key-of-another-case", CodeResult, inFiles(func(f files) {
			f.edit(schema.ResultPath, `"exit_code": 0`, `"exit_code": 1, "Exit_Code": 0`)
		})},
		{"counts-that-wrap-around", CodeCounts, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"coalesced": 0,
      "filtered": 0`, `"coalesced": 9223372036854775808,
      "filtered": 9223372036854775808`)
		})},
		{"hook-counts-without-a-kernel-account", CodeCounts, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"hooks": []`,
				`"hooks": [{"name": "x", "required": false, "attached": true, "self_tested": false,
				"seen": 2, "filtered": 0, "coalesced": 0, "emitted": 1, "dropped": 0, "failed_reads": 0, "recursion_misses": 0}]`)
		})},
		{"losses-that-wrap-around-in-a-complete-layer", CodeHealth, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"kernel_layer": "partial_ringbuf_drops"`, `"kernel_layer": "complete"`)
			f.edit(schema.HealthPath, `"ringbuf_drops": 1`, `"ringbuf_drops": 0`)
			f.edit(schema.HealthPath, `"hooks": []`,
				`"hooks": [{"name": "x", "required": false, "attached": true, "self_tested": false,
				"seen": 0, "filtered": 0, "coalesced": 0, "emitted": 0, "dropped": 0,
				"failed_reads": 9223372036854775808, "recursion_misses": 9223372036854775808}]`)
		})},
		{"contract-of-another-run", CodeRunID, inFiles(func(f files) {
			f.contract(func(c *schema.Contract) { c.RunID = "run_other" })
		})},
		{"contract-of-no-run", CodeContract, withContract(func(f files, c *schema.Contract) { c.RunID = "" })},
		{"contract-with-another-verdict", CodeContract, withContract(func(f files, c *schema.Contract) {
			f.edit(schema.ResultPath, `"contract": "passed"`, `"contract": "failed"`)
		})},
		{"contract-without-a-verdict-in-the-result", CodeContract, withContract(func(f files, c *schema.Contract) {
			f.edit(schema.ResultPath, `"contract": "passed"`, `"contract": null`)
		})},
		{"contract-missing", CodeContract, inFiles(func(f files) {
			f.edit(schema.ResultPath, `"contract": null`, `"contract": "passed"`)
		})},
		{"contract-missing-with-output", CodeContract, inFiles(func(f files) {
			f[schema.CheckOutputPath("a")] = []byte("ok\n")
		})},
		{"contract-verdict-not-of-its-results", CodeContract, withContract(func(f files, c *schema.Contract) {
			c.Results[0].Passed, c.Results[0].ExitCode = false, pointerTo(1)
		})},
		{"contract-passed-with-paths-not-restored", CodeContract, withContract(func(f files, c *schema.Contract) {
			c.ProtectedChanges = []schema.ProtectedChange{{Path: "t", Change: "modified", During: "agent"}}
		})},
		{"contract-result-passed-by-a-signal", CodeContract, withContract(func(f files, c *schema.Contract) {
			c.Results[0].ExitCode, c.Results[0].Signal = nil, pointerTo("SIGKILL")
		})},
		{"contract-result-without-an-end", CodeContract, withContract(func(f files, c *schema.Contract) {
			c.Contract.Checks[0].ExpectExitZero, c.Results[0].ExitCode = false, nil
		})},
		{"contract-result-of-another-check", CodeContract, withContract(func(f files, c *schema.Contract) {
			c.Results[0].Name = "b"
		})},
		{"contract-with-a-result-missing", CodeContract, withContract(func(f files, c *schema.Contract) {
			c.Results = []schema.CheckResult{}
		})},
		{"contract-output-missing", CodeContract, withContract(func(f files, c *schema.Contract) {
			delete(f, schema.CheckOutputPath("a"))
		})},
		{"contract-output-of-another-size", CodeContract, withContract(func(f files, c *schema.Contract) {
			f[schema.CheckOutputPath("a")] = []byte("longer\n")
		})},
		{"contract-output-of-another-check", CodeContract, withContract(func(f files, c *schema.Contract) {
			c.Results[0].OutputPath = schema.CheckOutputPath("b")
		})},
		{"contract-output-kept-exceeds-written", CodeContract, withContract(func(f files, c *schema.Contract) {
			c.Results[0].OutputBytes = 2
		})},
		{"output-of-no-check", CodeContract, withContract(func(f files, c *schema.Contract) {
			f[schema.CheckOutputPath("b")] = []byte("ok\n")
		})},
		{"contract-failed-and-exit-code-0", CodeContract, withContract(func(f files, c *schema.Contract) {
			c.Results[0].Passed, c.Results[0].ExitCode, c.Verdict = false, pointerTo(1), schema.VerdictFailed
			f.edit(schema.ResultPath, `"contract": "passed"`, `"contract": "failed"`)
		})},
		{"contract-baseline-gates-nothing", CodeContract, withContract(func(f files, c *schema.Contract) {
			c.Baseline, c.Results[0].GatesNothing = append(c.Baseline, c.Results[0]), pointerTo(false)
		})},
		{"blob-of-another-name", CodeBlobName, inFiles(func(f files) {
			f[schema.BlobsDir+strings.Repeat("0", 64)] = []byte("text")
		})},
		{"workspace-blob-missing", CodeWorkspace, inFiles(func(f files) {
			f.changes(`{"path":"a","change":"added","before":null,"after":{"kind":"file","mode":"0644","bytes":1,` +
				`"digest":"sha256:` + strings.Repeat("0", 64) + `","git_blob":null},"program":null,` +
				`"blob":"sha256:` + strings.Repeat("0", 64) + `"}`)
		})},
		{"workspace-patch-without-a-section", CodeWorkspace, inFiles(func(f files) {
			f.changes(addedLink)
			f[schema.PatchPath] = []byte{}
		})},
		{"workspace-patch-of-another-path", CodeWorkspace, inFiles(func(f files) {
			f.changes(addedLink)
			f[schema.PatchPath] = bytes.ReplaceAll(f[schema.PatchPath], []byte("/l"), []byte("/m"))
		})},
		{"workspace-patch-of-another-content", CodeWorkspace, inFiles(func(f files) {
			f.changes(addedLink)
			f[schema.PatchPath] = bytes.Replace(f[schema.PatchPath], []byte("+to"), []byte("+no"), 1)
		})},
		{"workspace-path-twice", CodeWorkspace, inFiles(func(f files) {
			f.changes(strings.Replace(addedLink, `,"in_patch":true`, "", 1) + "," +
				strings.Replace(addedLink, `,"in_patch":true`, "", 1))
		})},
		{"workspace-path-outside", CodeSchema, inFiles(func(f files) {
			f.changes(strings.Replace(addedLink, `"path":"l"`, `"path":"../l"`, 1))
		})},
		{"surface-not-sorted", CodeSurface, inFiles(func(f files) {
			f.edit(schema.SurfacePath, `"filesystem_paths": []`, `"filesystem_paths": ["/b", "/a"]`)
		})},
		{"drops-in-a-complete-layer", CodeHealth, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"kernel_layer": "partial_ringbuf_drops"`, `"kernel_layer": "complete"`)
		})},
		{"sdk-layer-without-a-shim", CodeHealth, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"sdk_layer": "absent"`, `"sdk_layer": "self_reported"`)
		})},
		{"policy-absent-with-lines", CodeHealth, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"policy_layer": "present"`, `"policy_layer": "absent"`)
		})},
		{"kernel-layer-not-on-linux", CodeHealth, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"platform": "linux"`, `"platform": "darwin"`)
			f.edit(schema.RunPath, `"platform": "linux"`, `"platform": "darwin"`)
		})},
		{"clean-correlation-with-ambiguities", CodeHealth, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"cgroup_correlation": "partial"`, `"cgroup_correlation": "clean"`)
			f.edit(schema.CorrelationPath, `"status": "partial"`, `"status": "clean"`)
			f.edit(schema.CorrelationPath, `"ambiguities": []`, `"ambiguities": ["run_interrupted"]`)
		})},
		{"turn-of-another-index", CodeSeq, inFiles(func(f files) { f.turn(`"index":1,"verifier_verdict":"pass"`) })},
		{"turn-rejected-with-output", CodeSchema, inFiles(func(f files) {
			f.turn(`"index":0,"verifier_verdict":"not_run","policy_rejected":{"rule":"x"},"rejected_by":"policy","output":1`)
		})},
		{"turn-rejected-and-verified", CodeSchema, inFiles(func(f files) {
			f.turn(`"index":0,"verifier_verdict":"pass","policy_rejected":{"rule":"x"},"rejected_by":"policy"`)
		})},
		{"turn-rejected-by-nothing", CodeSchema, inFiles(func(f files) {
			f.turn(`"index":0,"verifier_verdict":"not_run","policy_rejected":{"rule":"x"}`)
		})},
		{"written-is-not-the-number-of-lines", CodeCounts, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"seen": 3,
      "written": 3`, `"seen": 4,
      "written": 4`)
		})},
		{"seen-is-not-the-sum", CodeCounts, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"seen": 3`, `"seen": 4`)
		})},
		{"hook-that-loses-silently", CodeCounts, inFiles(func(f files) {
			f.edit(schema.HealthPath, `"hooks": []`,
				`"hooks": [{"name": "sys_exit", "attached": true, "self_tested": true, "seen": 5, "filtered": 1, "coalesced": 1, "emitted": 1, "dropped": 1}]`)
			f.edit(schema.HealthPath, `"layers"`,
				`"kernel": {"emitted": 1, "received": 1, "decoded": 1, "malformed": 0, "written": 3, "filtered": 0, "dropped": 0, "forks": 0, "exits": 0, "left_cgroup": 0}, "layers"`)
		})},
		{"exit-code-differs-from-the-lifecycle", CodeResult, inFiles(func(f files) {
			f.edit(schema.ResultPath, `"exit_code": 0`, `"exit_code": 1`)
		})},
		{"exit-code-differs-from-a-lifecycle-beyond-64-bits", CodeResult, inFiles(func(f files) {
			f.edit(schema.EventsPath, `"exit_code":0`, `"exit_code":18446744073709551615`)
		})},
		{"exit-code-with-a-fraction", CodeSchema, inFiles(func(f files) {
			f.edit(schema.EventsPath, `"exit_code":0`, `"exit_code":1.0`)
		})},
		{"signal-number-of-a-run-that-exited", CodeResult, inFiles(func(f files) {
			f.edit(schema.EventsPath, `"signal":null`, `"signal":9`)
		})},
		{"exited-without-an-exit-code", CodeResult, inFiles(func(f files) {
			f.edit(schema.ResultPath, `"exit_code": 0`, `"exit_code": null`)
			f.edit(schema.EventsPath, `"exit_code":0`, `"exit_code":null`)
		})},
		{"path-below-a-file", CodeUnsafePath, inFiles(func(f files) { f["events.ndjson/x"] = []byte("x") })},
		{"path-below-the-manifest", CodeUnsafePath, inFiles(func(f files) { f["manifest.json/x"] = []byte("x") })},
		{"raw-argument-of-another-command", CodeSchema, inFiles(func(f files) {
			f.edit(schema.RunPath, `"command": [`, `"command_raw": {"0": "/w=="}, "command": [`)
		})},
		{"raw-argument-beyond-the-command", CodeSchema, inFiles(func(f files) {
			f.edit(schema.RunPath, `"command": [`, `"command_raw": {"9": "/w=="}, "command": [`)
		})},
		{"redacted-fewer-than-by-rule", CodeCounts,
			withReceipt(`"mode": "enabled", "redacted_count": 1, "by_rule": {"env": 2}, "by_field": {"run.json": 1}`)},
		{"redacted-more-than-by-field", CodeCounts,
			withReceipt(`"mode": "enabled", "redacted_count": 2, "by_rule": {"env": 2}, "by_field": {"run.json": 1}`)},
		{"redacted-counts-that-wrap-around", CodeCounts,
			withReceipt(`"mode": "enabled", "redacted_count": 0, "by_rule": {"a": 9223372036854775808, "b": 9223372036854775808}, "by_field": {}`)},
		{"redacted-without-a-mode", CodeSchema,
			withReceipt(`"mode": "perhaps", "redacted_count": 0, "by_rule": {}, "by_field": {}`)},
		{"redaction-that-was-disabled", CodeHealth, func(f files) []byte {
			f.edit(schema.RunPath, `"kernel"`, `"redaction": "disabled", "kernel"`)
			return withReceipt(`"mode": "enabled", "redacted_count": 0, "by_rule": {}, "by_field": {}`)(f)
		}},
		{"redaction-dropped-a-member-that-is-there", CodeHealth,
			withRemoval(`"redacted_count": 0, "by_rule": {}, "by_field": {}, "dropped": ["stdio/stdout"]`)},
		{"redaction-dropped-a-layer-with-lines", CodeHealth,
			withRemoval(`"redacted_count": 0, "by_rule": {}, "by_field": {}, "dropped": ["layers/kernel.ndjson"]`)},
		{"redaction-removal-does-not-add-up", CodeCounts,
			withRemoval(`"redacted_count": 1, "by_rule": {"env": 1}, "by_field": {}`)},
		{"redaction-removal-from-no-identity", CodeSchema,
			withRemoval(`"redacted_count": 0, "by_rule": {}, "by_field": {}, "from": "sha512:00"`)},
		{"redacted-bytes-that-hide-a-cut", CodeResult, inFiles(func(f files) {
			f.edit(schema.ResultPath, `"captured": 6`, `"redacted_bytes": -1, "captured": 6`)
		})},
		{"captured-bytes-that-are-not-there", CodeResult, inFiles(func(f files) {
			f.edit(schema.ResultPath, `"captured": 6`, `"captured": 5`)
		})},
	}
	for name, kind := range map[string]byte{
		"hard-link": '1', "symlink": '2', "character-device": '3', "block-device": '4', "directory": '5', "fifo": '6',
		"contiguous-file": '7',
	} {
		list = append(list, hostile{"member-is-a-" + name, CodeMemberType,
			insertLast(typed("stdio/zz", kind, func(h []byte) {
				if kind == '1' || kind == '2' {
					copy(h[157:], "/etc/passwd")
				}
			}))})
	}
	for name, path := range map[string]string{
		"climbing": "../zz", "climbing-within": "stdio/../../zz", "absolute": "/zz", "empty": "",
		"backslash":     `stdio\zz`,
		"doubled-slash": "stdio//zz", "trailing-slash": "stdio/", "hidden": ".zz", "control-character": "z\nz",
		"not-ascii": "zé",
	} {
		list = append(list, hostile{"path-" + name, CodeUnsafePath, insertLast(plainEntry(path, nil))})
	}
	return list
}

// addedLink is a change of workspace/changes.json that is in the patch.
const addedLink = `{"path":"l","change":"added","before":null,"after":{"kind":"link","mode":"0777","bytes":2,` +
	`"digest":null,"git_blob":null,"target":"to"},"program":null,"in_patch":true}`

// changes adds workspace/changes.json with some changes, and a patch that adds the link l.
func (f files) changes(list string) {
	var patch bytes.Buffer
	to := gitpatch.State{Mode: gitpatch.Link, ID: gitpatch.ID([]byte("to"))}
	_ = gitpatch.NewWriter(&patch).Create("l", to, []byte("to")) // to memory: it cannot fail
	size := 0
	if strings.Contains(list, "in_patch") {
		f[schema.PatchPath], size = patch.Bytes(), patch.Len()
	}
	var run schema.Run
	if err := json.Unmarshal(f[schema.RunPath], &run); err != nil {
		panic(err)
	}
	f[schema.ChangesPath] = fmt.Appendf(nil, `{"schema":"assay.runner.workspace_changes.v0","run_id":%q,`+
		`"workspace":"/w","limit_bytes":10,"kept_bytes":2,"patch_bytes":%d,"gaps":[],"changes":[%s],"artifacts":[]}`,
		run.RunID, size, list)
}
