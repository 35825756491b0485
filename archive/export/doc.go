// Package export converts a bundle to the formats of other tools: traces for
// OpenTelemetry and Perfetto, judgements as JUnit, CTRF and SARIF, and an
// in-toto statement.
//
// No format holds all of a bundle. What one leaves out is returned beside it,
// counted, so that the user can be told. Text from evidence is escaped for each
// format, and what is too much for a reader is cut with a count of the rest.
package export
