package kernel_test

import (
	"fmt"

	"github.com/assay-run/assay-run/kernel"
)

// Probe says which hooks this host offers, and why not where it does not.
func ExampleProbe() {
	hooks, err := kernel.Probe()
	if err != nil {
		fmt.Println("nothing can be observed:", err)
		return
	}
	for _, h := range hooks {
		if h.Required && !h.Attached {
			fmt.Println(h.Name, "is missing")
		}
	}
}

// Coverage says, by dimension, what the observer sees and what it cannot see.
func ExampleCoverage() {
	for _, d := range kernel.Coverage() {
		fmt.Println(d.Name, len(d.Observes) > 0, len(d.BlindSpots) > 0)
	}
}
