package signals

import "os"

// dropped are the signals that are caught and not passed on.
var dropped []os.Signal

// passedOn returns every signal that can be passed on.
func passedOn() []os.Signal { return []os.Signal{os.Interrupt} }

// fromKernel is false: this system has no such signals.
func fromKernel(os.Signal) bool { return false }
