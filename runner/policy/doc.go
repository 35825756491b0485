// Package policy decides which tool calls an agent may make.
//
// A [policyfile.File] is what an operator wrote: lists of allowed and denied tools, and rules. A [Set] is a policy in
// force: a file, read once before the agent starts, plus rules that clients add while it runs. Rules can only forbid,
// so an added rule never allows what was forbidden.
//
// [Set.Check] decides one call and reports every violation. It fails closed: a rule that cannot be evaluated denies
// the call. Its reasons never quote the value that matched: reasons are logged, and the value may be a secret.
// Regular expressions are RE2 and limited in size, so the time to decide a call is linear in the size of its
// parameters. [Set.Explain] lists what each rule says about a call.
package policy
