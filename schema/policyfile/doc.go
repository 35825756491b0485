// Package policyfile holds policy files as plain data: lists of tools and other things by name, rules about tool calls,
// and the settings of a sandbox. [Load] reads one and finds everything that is wrong with it. Package runner/policy
// decides tool calls by it.
package policyfile
