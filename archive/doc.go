// Package archive keeps a run's evidence: the spool it is appended to while
// the run lives, the sealed bundle, and the readers that verify one.
package archive
