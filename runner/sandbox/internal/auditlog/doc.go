// Package auditlog reads from the kernel's audit which accesses Landlock refused (since
// Linux 6.15, security/landlock/audit.c). It never switches auditing on: if auditing is
// off, Open fails.
//
// Each record names the Landlock domain of the refusal. The first record of a domain
// names the process that made it. When the domain ends, the kernel reports how many
// refusals there were, so the number of missing records is known. If the kernel loses that
// record too, the log says that it is unsure.
package auditlog
