// Package policy decides which tool calls an agent may make.
//
// A [File] is what an operator wrote: lists of allowed and denied tools, and
// rules. A [Set] is a policy in force: a file, read and frozen before the agent
// starts, plus rules that clients add while it runs. Rules can only forbid, so
// that adding one never allows what was forbidden.
//
// [Set.Check] decides one call. It collects every violation, fails closed (a
// rule that cannot be evaluated denies), and its reasons never quote the value
// that was matched: they end up in logs, and the value may be a secret. Regular
// expressions are RE2 and bounded in size, so a call is decided in time linear
// in its parameters.
package policy
