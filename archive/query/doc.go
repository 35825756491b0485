// Package query finds what is in bundles by expressions: the Common Expression
// Language (CEL, cel.dev) over typed variables. An expression is compiled and its
// types are checked before anything is read; it cannot loop, call out or change
// anything.
//
// What matches is handed out in the order of the bundle. Kernel events are decoded
// and evaluated on all cores, in bounded memory.
package query
