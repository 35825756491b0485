// Package archive keeps a run's evidence, from its first line to the reviewer.
//
// A [Spool] is the directory a live run appends to: layers of NDJSON lines,
// whole documents, captured bytes. Sealing turns it into a bundle, a
// deterministic tar whose first member is the manifest: the sha256 of the
// manifest is the bundle's identity, the same for every codec. [Recover] seals
// what an interrupted run left. [Open] and [Verify] read bundles, and treat
// them as hostile. [Reader.Items] is the pass that all readers share: it yields
// decoded lines and other members. A [Tap] gets lines while they are verified.
//
// Promises: memory does not grow with the run, nothing is lost without being
// counted, a bundle's final name never holds half a bundle, and the same
// inputs give the same bytes on every machine. schema/SPEC.md specifies the
// format.
package archive
