package sandbox

// Names of operations in denials.
const (
	OpRead    = "read"
	OpWrite   = "write"
	OpExec    = "exec"
	OpConnect = "connect"
	OpBind    = "bind"
	OpSignal  = "signal"
	OpPtrace  = "ptrace"
	OpCall    = "call" // the target is a system call
)

// Attempt is an operation that the kernel refused.
type Attempt struct {
	Op string
	// Target is a path, or an endpoint: ip:port, [ip6]:port, unix:/path, unix:@abstract. A path that ends with a
	// slash stands for a name in that directory.
	Target string
	Errno  int
	// Empty means that the operation fails anyway unless the target is an empty directory.
	Empty bool
}

// Rules of a profile that have no line in a policy.
const (
	RuleMode        = "mode"         // the path is not writable in this mode
	RuleNetworkMode = "network.mode" // the address is outside the network namespace
)

const ruleReach = "runner"
