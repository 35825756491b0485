// Package audittest switches the kernel's audit on for a test, and then back to what it was.
package audittest
