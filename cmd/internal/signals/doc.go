// Package signals catches the signals that assay-run passes on to a command.
//
// Each signal has a channel of its own with room for one, so a flood of one signal hides no other: the flood
// fills its own channel, and os/signal drops the rest of it.
package signals
