// Package manual writes the manual pages of a program when it is packaged. It is built only with
// the tag man, because the generator's initialization would slow down every start.
package manual
