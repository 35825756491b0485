// Package auditlog reads from the kernel's audit which accesses Landlock refused (since Linux 6.15,
// security/landlock/audit.c). It never turns auditing on: if auditing is off, Open fails.
//
// Each record names the Landlock domain of the refusal. A domain's first record names the process that made the
// domain. When a domain ends, the kernel reports its number of refusals, so the number of missing records is known.
// If the kernel loses that report too, the result says that it is unsure.
package auditlog
