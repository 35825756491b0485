// Package expr is the expressions that find and judge what is in bundles: the
// Common Expression Language (CEL, cel.dev) over typed variables. An expression
// is compiled and its types are checked before anything is read; it cannot
// loop, call out or change anything.
package expr
