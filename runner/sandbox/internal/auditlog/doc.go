// Package auditlog reads what the kernel's audit tells of accesses that Landlock
// refused (Linux 6.15, security/landlock/audit.c). It switches nothing on: where
// the host audits nothing, there is nothing to read.
//
// Landlock names the domain of a refusal, and with the first one the process that made
// the domain. When the domain ends it tells how many refusals there were, so that what
// did not arrive is known.
package auditlog
