package runner

// State is where a run is in its life. In each of them a run ends when it is told to: by SIGTERM
// or a second SIGINT or, until the command is gone, by its timeout.
type State string

// The states, in their order. A run whose command does not start goes from StateStarting or an
// earlier state to StateSealing.
const (
	// StatePreparing makes what holds, confines and observes the command, and evaluates the baseline
	// of the contract.
	StatePreparing State = "preparing"
	// StateSelfTest makes sure that the observer sees a process of the session.
	StateSelfTest State = "self-test"
	// StateStarting starts the command.
	StateStarting State = "starting"
	// StateRunning lasts until nothing of the command is left.
	StateRunning State = "running"
	// StateDraining waits for whoever reads the command's output.
	StateDraining State = "draining"
	// StateChecking evaluates the contract.
	StateChecking State = "checking"
	// StateSealing writes the documents and the bundle. Run returns in it.
	StateSealing State = "sealing"
	// StateReleasing tells the user, and waits until guard and observer are free.
	StateReleasing State = "releasing"
)

// States lists the states in their order.
func States() []State {
	return []State{
		StatePreparing, StateSelfTest, StateStarting, StateRunning, StateDraining, StateChecking, StateSealing,
		StateReleasing,
	}
}
