package gateway

import "fmt"

// Turns says how calls become turns. Zero fields take their defaults.
type Turns struct {
	// CLITool and CheckTool are the names of the tools whose outputs are
	// classified, drive_cli and check_outcome.
	CLITool, CheckTool string
	// FieldBytes is how much is kept of one text, 16 KiB, and TurnBytes of a
	// turn's values together, 256 KiB.
	FieldBytes, TurnBytes int
}

// maxTurnBytes leaves room for the rest of a line.
const maxTurnBytes = 512 << 10

// Effective has the defaults for what is zero.
func (t Turns) Effective() Turns {
	def(&t.CLITool, "drive_cli")
	def(&t.CheckTool, "check_outcome")
	def(&t.TurnBytes, 256<<10)
	def(&t.FieldBytes, min(16<<10, t.TurnBytes))
	return t
}

// Check reports why t cannot be used.
func (t Turns) Check() error {
	e := t.Effective()
	switch {
	case e.TurnBytes < 1 || e.TurnBytes > maxTurnBytes:
		return fmt.Errorf("%d bytes kept of a turn: 1 to %d are allowed", e.TurnBytes, maxTurnBytes)
	case e.FieldBytes < 1 || e.FieldBytes > e.TurnBytes:
		return fmt.Errorf("%d bytes kept of a field: 1 to the turn's %d are allowed", e.FieldBytes, e.TurnBytes)
	case len(e.CLITool) > maxToolName || len(e.CheckTool) > maxToolName:
		return fmt.Errorf("a tool's name has at most %d bytes", maxToolName)
	case e.CLITool == e.CheckTool:
		return fmt.Errorf("the tool %q cannot be both the command line's and the check", e.CLITool)
	}
	return nil
}
