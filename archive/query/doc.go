// Package query searches bundles with expressions of the Common Expression
// Language (CEL, cel.dev) over typed variables. An expression is compiled and its
// types are checked before a bundle is read. It cannot loop forever, call other
// programs, or change anything.
//
// Matches come in the order of the bundle. Kernel events are decoded and evaluated
// on all cores, in bounded memory.
package query
