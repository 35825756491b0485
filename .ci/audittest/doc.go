// Package audittest switches the kernel's audit on for a test, and restores it afterwards.
package audittest
