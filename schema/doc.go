// Package schema holds every artifact of a bundle as a Go type, with the JSON
// Schema (2020-12) each one is checked against.
//
// A bundle is a deterministic tar of small JSON documents ([Run], [Result],
// [ObservationHealth], [CapabilitySurface], [CorrelationReport]), of layers,
// and of captured bytes. A layer is NDJSON: one JSON object a line, each with
// "schema", "run_id" and a "seq" that counts from 0 without a gap. SPEC.md in
// this folder specifies all of it for a second implementation.
//
// Names and meanings of the assay.runner.*.v0 contracts are fixed: fields are
// added, never changed. The package imports nothing of this module, so that a
// consumer can use it alone. All types are plain data. They can be copied, and are not
// safe for concurrent writes.
package schema
