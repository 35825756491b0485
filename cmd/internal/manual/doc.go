// Package manual writes the manual pages of a program when it is packaged: their generator would cost every run its
// initialization.
package manual
