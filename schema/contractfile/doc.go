// Package contractfile holds outcome contracts as plain data: a definition of done, as a list of shell commands that
// must pass. [Load] reads a contract, strictly, and [Contract.Validate] lists everything that would make it prove
// nothing. Package runner/contract evaluates contracts.
package contractfile
