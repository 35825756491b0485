// Package find evaluates an expression over what is in a bundle and hands out
// what matches, in the bundle's order. Kernel events are decoded and evaluated
// on all cores, in bounded memory.
package find
