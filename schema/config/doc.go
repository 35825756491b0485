// Package config reads the small JSON and YAML files that people and models write for assay-run: specs, policies,
// contracts, evaluation files, rules, suites and price lists. All of them follow the same rules: every key must be
// known and unique, every value must have its field's type, and each fault names the line, the column and the key.
//
// YAML is restricted to what JSON can express: one document, string keys, no anchors, aliases, merge keys or tags, so
// a small file cannot grow into a large value. Both formats may begin with a byte order mark, are nested at most 32
// deep, and become one [Document], which knows where each value is. Callers limit the size of data; a hostile file
// within that limit gives an error, never a panic and never much more work than its size.
//
// [TOML] reads files of other programs, whose keys are not all known: task.toml of Harbor, and what package managers
// read.
//
// Types of values that several files share (Bytes, MilliCPUs) read themselves, so that the same text means the same
// everywhere.
package config
