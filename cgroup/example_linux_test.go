package cgroup_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/oklog/ulid/v2"

	"github.com/assay-run/assay-run/cgroup"
)

// A session keeps a command and all that it starts together. Removing it ends
// whatever is left.
func Example() {
	host := cgroup.Probe()
	session, err := host.NewSession("example-"+ulid.Make().String(), cgroup.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Remove()

	cmd := exec.Command("sh", "-c", "sleep 1000 & echo started")
	cmd.Stdout = os.Stdout
	if err := session.Agent().Start(cmd); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cmd.Wait())
	if err := session.Agent().Kill(); err != nil {
		fmt.Println(err)
		return
	}
	if err := session.Agent().Wait(context.Background()); err != nil { // until it is empty
		fmt.Println(err)
		return
	}
	left, err := session.Agent().Procs()
	fmt.Println(len(left), "processes are left", err)
	// Output:
	// started
	// <nil>
	// 0 processes are left <nil>
}
