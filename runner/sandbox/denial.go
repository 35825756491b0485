package sandbox

// Operations, as denials name them.
const (
	OpRead    = "read"
	OpWrite   = "write"
	OpExec    = "exec"
	OpConnect = "connect"
	OpBind    = "bind"
	OpSignal  = "signal"
	OpPtrace  = "ptrace"
)

// Attempt is an operation of the command that the kernel refused.
type Attempt struct {
	Op string
	// Target is a path, or an endpoint: ip:port, [ip6]:port, unix:/path,
	// unix:@abstract. A path that ends with a slash is of a name in that directory.
	Target string
	Errno  int
}

// Rules of a profile that come from no line of a policy.
const (
	RuleMode        = "mode"         // it is below nothing that may be written
	RuleNetworkMode = "network.mode" // it is outside of the network namespace
)

const ruleReach = "runner"
